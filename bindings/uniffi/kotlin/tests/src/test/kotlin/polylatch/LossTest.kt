package polylatch.tests

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Job
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Test
import polylatch.Client
import polylatch.Held
import polylatch.LeaseLostException
import java.util.concurrent.atomic.AtomicReference
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** Waits until it is lost, and tells why. */
suspend fun lostReason(held: Held): String {
    val reason = CompletableDeferred<String>()
    held.onLost(reason::complete)
    return reason.await()
}

class LossTest {
    @Test
    fun `a loss cancels the block, with all that it has started`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val started = CompletableDeferred<Long>()
            var child: Job? = null
            val work = launch {
                val error = assertFailsWith<LeaseLostException> {
                    client.withLock("import", lease = 30.seconds) { guard ->
                        child = launch { awaitCancellation() }
                        started.complete(guard.fencingToken)
                        awaitCancellation()
                    }
                }
                assertEquals("broken", error.reason)
                assertEquals("lease_lost", error.code)
            }
            val token = started.await()
            assertEquals("changed_hands", client.breakLease("import", token + 1, "ann", "a slip").outcome)
            assertEquals("broken", client.breakLease("import", token, "ann", "wrong import").outcome)
            work.join()
            assertTrue(child!!.isCancelled)
            assertEquals("free", client.breakLease("import", token, "ann", "again").outcome)
        }
    }

    @Test
    fun `a block that ends without having noticed is told at its end`() = on("memory:unnoticed") { client ->
        val error = assertFailsWith<LeaseLostException> {
            client.lock("short", lease = 200.milliseconds, renew = false).withLease { guard ->
                while (guard.isHeld) Thread.onSpinWait()
            }
        }
        assertEquals("expired", error.reason)
    }

    @Test
    fun `what the block throws is what the caller gets, and the lock is free`() = on("memory:throws") { client ->
        val thrown = assertFailsWith<IllegalStateException> {
            client.withLock("broken") { error("on purpose") }
        }
        assertEquals("on purpose", thrown.message)
        client.lock("broken", wait = 10.seconds).acquire().release()
        // A cancellation from outside stays one.
        val work = launch { client.withLock("broken") { awaitCancellation() } }
        while (client.inspect(name = "broken").locks.all { it.holders.isEmpty() }) Unit
        work.cancelAndJoin()
        client.lock("broken", wait = 10.seconds).acquire().release()
        assertFailsWith<CancellationException> { client.withLock("broken") { throw CancellationException("own") } }
    }

    @Test
    fun `a listener is told once, may call, and is not told of a release`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val released = client.lock("released").acquire()
            val told = AtomicReference<String>()
            released.onLost { told.set(it) }
            released.release()

            val limited = client.lock("limited", maxHold = 300.milliseconds).acquire()
            val result = CompletableDeferred<Boolean>()
            limited.onLost { reason ->
                // On a thread of its own: it may wait for another call of the library.
                result.complete(runBlocking { reason == "hold_limit" && client.lock("other").tryAcquire() != null })
            }
            assertTrue(result.await())
            val failure = fails("lease_lost") { limited.check() } as LeaseLostException
            assertEquals("hold_limit", failure.reason)
            assertEquals(null, told.get())
            assertFalse(limited.isHeld)
        }
    }

    @Test
    fun `work that stops beating loses its lock`() = on("memory:beats") { client ->
        val guard = client.lock("job", beatEvery = 1.seconds).acquire()
        repeat(5) {
            kotlinx.coroutines.delay(250)
            guard.beat()
            guard.check()
        }
        assertEquals("no_progress", lostReason(guard))
    }
}
