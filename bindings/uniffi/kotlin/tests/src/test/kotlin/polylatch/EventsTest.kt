package polylatch.tests

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Test
import polylatch.Client
import polylatch.LockEvent
import java.io.File
import java.nio.file.Files
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.function.Consumer
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.milliseconds

private class Heard : (LockEvent) -> Unit {
    val events = ConcurrentLinkedQueue<LockEvent>()

    override fun invoke(event: LockEvent) {
        events += event
    }

    /** Waits until it came. The test's own limit ends it. */
    suspend fun of(name: String): LockEvent {
        while (true) events.find { it.event == name }?.let { return it } ?: delay(2)
    }
}

class EventsTest {
    @Test
    fun `a listener receives the events of its own client, up to a loss`() = onEveryStore { url ->
        val heard = Heard()
        Client.connect(url).use { other ->
            val holder = other.lock("a").acquire()
            Client.connect(url, options = mapOf("level" to "debug"), onEvent = heard).use { client ->
                val waiter = async { client.lock("a").acquire() }
                assertEquals("a", heard.of("waiting").lock)
                holder.release()
                val guard = waiter.await()
                assertEquals("broken", other.breakLease("a", guard.fencingToken, "ann", "test").outcome)
                val lost = heard.of("lost")
                assertEquals(
                    listOf("a", guard.fencingToken, "broken", "error"),
                    listOf(lost.lock, lost.fencingToken, lost.reason, lost.level),
                )
                assertContains(lost.line, "reason=broken")
                assertEquals(listOf("waiting", "acquired"), heard.events.map { it.event }.take(2))
                assertEquals(setOf<String?>(client.id), heard.events.map { it.client }.toSet())
                client.withLock("b") { }
            }
            // Closing waited for the last event.
            assertEquals("released", heard.events.last().event)
        }
    }

    @Test
    fun `what a listener throws goes to the handler of its thread, and the next event comes`() {
        val thrown = ConcurrentLinkedQueue<String>()
        val before = Thread.getDefaultUncaughtExceptionHandler()
        Thread.setDefaultUncaughtExceptionHandler { thread, error -> thrown += "${thread.name}: ${error.message}" }
        try {
            runBlocking {
                val options = mapOf("level" to "debug")
                Client.connect("memory:throwing", options = options, onEvent = { error("on ${it.event}") })
                    .use { it.withLock("a") { } }
            }
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before)
        }
        assertEquals(listOf("polylatch-events: on acquired", "polylatch-events: on released"), thrown.toList())
    }

    @Test
    fun `a listener may call, and close its own client`() {
        val closed = CompletableDeferred<Unit>()
        val client = CompletableDeferred<polylatch.blocking.Client>()
        val listener = Consumer<LockEvent> { event ->
            if (event.event == "released" && !closed.isCompleted) {
                val own = runBlocking { client.await() }
                own.lock("b").acquire().release()
                own.close()
                closed.complete(Unit)
            }
        }
        client.complete(polylatch.blocking.Client.connect("memory:closing", mapOf("level" to "debug"), null, listener))
        runBlocking {
            client.await().lock("a").acquire().release()
            closed.await()
        }
    }

    @Test
    fun `an unreachable store is reported once, and once when it answers again`() = onOwnRedis { url, server ->
        val heard = Heard()
        val options = mapOf("timeout" to 300.milliseconds, "poll" to 100.milliseconds)
        Client.connect(url, options = options, onEvent = heard).use { client ->
            signal("STOP", server)
            val waiter = async { client.lock("a").acquire() }
            assertEquals("warn", heard.of("store_unreachable").level)
            signal("CONT", server)
            waiter.await().release()
            assertEquals("info", heard.of("store_reachable").level)
            assertEquals(1, heard.events.count { it.event == "store_unreachable" })
        }
    }

    @Test
    fun `a listener hears its level and above, by default no lock that was free`() = onEveryStore { url ->
        suspend fun heardAt(options: Map<String, Any>): List<String> {
            val heard = Heard()
            Client.connect(url).use { other ->
                Client.connect(url, options = options, onEvent = heard).use { client ->
                    client.withLock("free") { }
                    val holder = other.lock("a").acquire()
                    val waiter = kotlinx.coroutines.coroutineScope {
                        val waiter = async { client.lock("a").acquire() }
                        while (client.stats.waiting == 0L) delay(2)
                        holder.release()
                        waiter.await()
                    }
                    waiter.release()
                    lostReason(client.lock("b", lease = 200.milliseconds, renew = false).acquire())
                    heard.of("lost")
                }
            }
            return heard.events.map { "${it.level} ${it.event}" }
        }
        assertEquals(listOf("info waiting", "info acquired", "error lost"), heardAt(emptyMap()))
        assertEquals(listOf("error lost"), heardAt(mapOf("level" to "error")))
        assertEquals(listOf("debug acquired", "debug released"), heardAt(mapOf("level" to "debug")).take(2))
        fails("invalid_config", "must be one of error, warn, info, debug") {
            Client.connect(url, options = mapOf("level" to "loud"), onEvent = Heard())
        }
    }

    @Test
    fun `numbers tell a small story`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val held = client.lock("a").acquire()
            assertNull(client.lock("a").tryAcquire())
            fails("wait_timeout") { client.lock("a", wait = 50.milliseconds).acquire() }
            assertEquals(1, client.stats.held)
            held.release()
            val short = client.lock("a", lease = 200.milliseconds, renew = false).acquire()
            assertEquals("expired", lostReason(short))
            val stats = client.stats
            assertEquals(client.capability.backend, stats.backend)
            assertEquals(listOf(2L, 1L, 1L, 0L), listOf(stats.acquired, stats.refused, stats.timedOut, stats.failed))
            assertEquals(1, stats.losses["expired"])
            assertEquals(1, stats.errors["wait_timeout"])
            assertEquals(2, stats.hold.count)
            assertEquals(stats.hold.bounds.size + 1, stats.hold.counts.size)
            assertTrue(stats.hold.sum > 0.19)
            assertContains(client.prometheus(mapOf("service" to "shop")), "service=\"shop\"")
            fails("invalid_argument", "le") { client.prometheus(mapOf("le" to "x")) }
        }
    }
}

private fun signal(name: String, process: Process) {
    check(ProcessBuilder("kill", "-$name", "${process.pid()}").start().waitFor() == 0)
}

private fun onOwnRedis(test: suspend kotlinx.coroutines.CoroutineScope.(String, Process) -> Unit) {
    val folder: File = Files.createTempDirectory("polylatch").toFile()
    val socket = folder.resolve("redis.sock")
    val server = ProcessBuilder("redis-server", "--port", "0", "--unixsocket", "$socket", "--save", "")
        .directory(folder).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()
    try {
        runBlocking(kotlinx.coroutines.Dispatchers.Default) {
            kotlinx.coroutines.withTimeout(60_000) {
                while (!socket.exists()) delay(2)
                test("redis+unix:$socket", server)
            }
        }
    } finally {
        server.destroyForcibly().waitFor()
        folder.deleteRecursively()
    }
}
