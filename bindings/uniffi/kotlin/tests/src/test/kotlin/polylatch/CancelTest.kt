package polylatch.tests

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeoutOrNull
import org.junit.jupiter.api.Test
import polylatch.Client
import java.time.Duration
import java.util.concurrent.CompletableFuture
import kotlin.concurrent.thread
import kotlin.random.Random
import kotlin.test.assertIs
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.microseconds
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

class CancelTest {
    @Test
    fun `a cancelled wait leaves the line`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val guard = client.lock("line").acquire()
            val waiter = launch { client.lock("line").acquire() }
            while (client.inspect(name = "line").locks.single().waiters.isEmpty()) Unit
            waiter.cancelAndJoin()
            while (client.inspect(name = "line").locks.single().waiters.isNotEmpty()) delay(5)
            assertNull(withTimeoutOrNull(50.milliseconds) { client.lock("line").acquire() })
            guard.release()
        }
    }

    @Test
    fun `cancellations at any moment leave no lock behind`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val random = Random(7)
            repeat(300) {
                val holder = launch {
                    client.lock("race", lease = 3600.seconds).withLease { awaitCancellation() }
                }
                delay(random.nextInt(0, 1500).microseconds)
                holder.cancelAndJoin()
            }
            // Far less than the lease: it is free because everything was undone.
            client.lock("race", wait = 20.seconds).acquire().release()
            while (client.inspect(prefix = "race").locks.any { it.holders.isNotEmpty() || it.waiters.isNotEmpty() }) {
                delay(5)
            }
        }
    }

    @Test
    fun `a coroutine without a dispatcher goes on elsewhere than on the thread that wakes`() = stores().forEach { url ->
        runBlocking(Dispatchers.Unconfined) {
            Client.connect(url).use { client ->
                val first = client.lock("line").acquire()
                val second = launch {
                    client.lock("line", wait = 30.seconds).withLease {
                        // It blocks its thread on another call, which has to be woken too.
                        runBlocking { client.inspect(name = "line") }
                    }
                }
                while (client.inspect(name = "line").locks.single().waiters.isEmpty()) Unit
                first.release()
                second.join()
            }
        }
    }

    @Test
    fun `an interrupted thread leaves the line`() = onEveryStore { url ->
        polylatch.blocking.Client.connect(url).use { client ->
            client.lock("line").acquire().use {
                val outcome = CompletableFuture<Throwable>()
                val waiter = thread {
                    try {
                        client.lock("line").acquire()
                        outcome.complete(IllegalStateException("it was acquired"))
                    } catch (error: InterruptedException) {
                        outcome.complete(error)
                    }
                }
                while (client.inspect("line").locks.single().waiters.isEmpty()) Unit
                waiter.interrupt()
                assertIs<InterruptedException>(outcome.get())
                while (client.inspect("line").locks.single().waiters.isNotEmpty()) Thread.sleep(5)
            }
            // A release is carried out also by a thread that was interrupted before.
            val guard = client.lock("line").waitAtMost(Duration.ofSeconds(10)).acquire()
            Thread.currentThread().interrupt()
            guard.close()
            assertTrue(Thread.interrupted())
            client.lock("line").waitAtMost(Duration.ofSeconds(10)).acquire().close()
        }
    }
}
