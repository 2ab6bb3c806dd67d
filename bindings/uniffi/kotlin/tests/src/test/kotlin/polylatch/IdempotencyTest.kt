package polylatch.tests

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import org.junit.jupiter.api.Test
import polylatch.Claim
import polylatch.Client
import polylatch.OnFailure
import polylatch.RunOptions
import polylatch.WorkFailedException
import java.io.IOException
import java.time.Duration.ofSeconds
import java.util.UUID
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertTrue
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

class IdempotencyTest {
    private val never: suspend (Claim) -> String = { error("it was done again") }

    @Test
    fun `a repetition gets the first answer`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val keys = client.idempotency("orders/customer-7 ${UUID.randomUUID()}")
            val options = RunOptions(payload = "one".encodeToByteArray(), retention = Duration.INFINITE)
            val first = keys.runText("k", options) { claim ->
                claim.check()
                assertTrue(claim.fencingToken > 0 && claim.runs == 1L && claim.remaining > Duration.ZERO)
                "order 42 ü"
            }
            assertEquals("order 42 ü", first.value)
            assertFalse(first.replayed)
            val again = keys.runText("k", options, never)
            assertEquals("order 42 ü", again.value)
            assertTrue(again.replayed)
            val other = RunOptions(payload = "two".encodeToByteArray())
            fails("payload_mismatch", "another payload") { keys.runText("k", other, never) }
            fails("invalid_argument", "the key") { keys.runText("", work = never) }
            fails("invalid_argument", "retention") { keys.runText("l", RunOptions(retention = 1.milliseconds), never) }
            assertEquals("forgotten", keys.forget("k"))
            assertEquals("absent", keys.forget("k"))
            assertContentEquals(byteArrayOf(0, -1), keys.run("l") { byteArrayOf(0, -1) }.value)
            val token = keys.issue(60.seconds)
            assertEquals(listOf("first", "duplicate"), List(2) { keys.consume(token) })
        }
    }

    @Test
    fun `concurrent runs get one answer, and a cancelled one frees its key with its lease`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val keys = client.idempotency("concurrent ${UUID.randomUUID()}")
            val working = CompletableDeferred<Unit>()
            val gate = CompletableDeferred<String>()
            val first = async {
                keys.runText("k") {
                    working.complete(Unit)
                    gate.await()
                }
            }
            working.await()
            fails("in_progress", "in progress on host") { keys.runText("k", RunOptions(wait = Duration.ZERO), never) }
            val second = async { keys.runText("k", work = never) }
            gate.complete("done")
            assertEquals(listOf("done", "done"), listOf(first.await().value, second.await().value))
            assertTrue(second.await().replayed)

            val stuck = CompletableDeferred<Unit>()
            val cancelled = launch {
                keys.runText("l", RunOptions(lease = 500.milliseconds)) {
                    stuck.complete(Unit)
                    CompletableDeferred<String>().await()
                }
            }
            stuck.await()
            cancelled.cancelAndJoin()
            assertEquals("2", keys.runText("l") { claim -> claim.runs.toString() }.value)
        }
    }

    @Test
    fun `a failure is stored or frees its key`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val keys = client.idempotency("failures ${UUID.randomUUID()}")
            assertFailsWith<IOException> { keys.runText("k") { throw IOException("no card") } }
            val stored = fails("failed") { keys.runText("k", work = never) } as WorkFailedException
            assertEquals("java.io.IOException: no card", stored.answer.decodeToString())
            assertTrue(stored.replayed)
            val free = RunOptions(onFailure = OnFailure.FREE)
            assertFailsWith<IOException> { keys.runText("l", free) { throw IOException("again") } }
            assertFailsWith<WorkFailedException> {
                keys.runText("l", free) { throw WorkFailedException("declined", onFailure = OnFailure.STORE) }
            }
            fails("failed") { keys.runText("l", free, never) }
            fails("result_too_large") { keys.run("m") { ByteArray((1 shl 20) + 1) } }
        }
    }

    @Test
    fun `threads have the same`() = stores().forEach { url ->
        polylatch.blocking.Client.connect(url).use { client ->
            val keys = client.idempotency("threads ${UUID.randomUUID()}")
            assertEquals("a", keys.runText("k") { "a" }.value)
            assertTrue(keys.runText("k") { error("it was done again") }.replayed)
            assertFailsWith<IOException> { keys.runText("l") { throw IOException() } }
            assertEquals("first", keys.consume(keys.issue(ofSeconds(60))))
            assertEquals("forgotten", keys.forget("k"))
        }
    }
}
