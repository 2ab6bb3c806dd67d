package polylatch.tests

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Test
import polylatch.Client
import polylatch.LeaseLostException
import polylatch.PolylatchException
import polylatch.ffi.Fault
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertIs
import kotlin.time.Duration
import kotlin.time.Duration.Companion.days
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

class BadInputTest {
    @Test
    fun `an argument that cannot be is refused by its name`() = on("memory:bad") { client ->
        val cases: List<Pair<List<String>, suspend () -> Unit>> = listOf(
            listOf("name") to { client.lock("").acquire() },
            listOf("name") to { client.lock("a\u0000b").acquire() },
            listOf("name") to { client.lock("x".repeat(2000)).acquire() },
            listOf("surrogate") to { client.lock("\ud800").acquire() },
            listOf("lease", "-1") to { client.lock("a", lease = (-1).seconds).acquire() },
            listOf("lease") to { client.lock("a", lease = Duration.ZERO).acquire() },
            listOf("lease") to { client.lock("a", lease = 2.days).acquire() },
            listOf("lease", "finite") to { client.lock("a", lease = Duration.INFINITE).acquire() },
            listOf("wait", "-0.001") to { client.lock("a", wait = (-1).milliseconds).acquire() },
            listOf("wait") to { client.lock("a", wait = 4000.days).acquire() },
            listOf("max_hold") to { client.lock("a", maxHold = 1.milliseconds).acquire() },
            listOf("beat_every") to { client.lock("a", beatEvery = 1.milliseconds).acquire() },
            listOf("keep_idle") to { client.lock("a", keepIdle = 1.milliseconds).acquire() },
            listOf("label") to { client.lock("a", label = "x".repeat(300)).acquire() },
            listOf("owner") to { client.lock("a", owner = "").acquire() },
            listOf("0 permits") to { client.semaphore("a", 0).permits(1).acquire() },
            listOf("permits", "-3") to { client.semaphore("a", -3).permits(1).acquire() },
            listOf("4 permits", "1 to 3") to { client.semaphore("a", 3).permits(4).acquire() },
            listOf("count", "-1") to { client.semaphore("a", 3).permits(-1).acquire() },
            listOf("no locks") to { client.lockAll(emptyList()).acquire() },
            listOf("128") to { client.lockAll((0..200).map { "$it" }).acquire() },
            listOf("limit", "-1") to { client.inspect(limit = -1) },
            listOf("token", "-1") to { client.breakLease("a", -1, "ann", "why") },
        )
        cases.forEach { (words, call) ->
            val error = fails("invalid_argument", *words.toTypedArray()) { call() }
            assertEquals("none", error.effect)
        }
        assertEquals(emptyList(), client.inspect().locks)
    }

    @Test
    fun `only a plain lock is kept`() {
        polylatch.blocking.Client.connect("memory:").use { client ->
            val length = java.time.Duration.ofSeconds(1)
            client.lock("a").keepIdle(length).acquire().release()
            listOf(client.readLock("b"), client.writeLock("b"), client.permits("b", 2, 1)).forEach { lock ->
                fails("invalid_argument", "keep_idle is for a plain lock") { lock.keepIdle(length).tryAcquire() }
            }
        }
    }

    @Test
    fun `an option that is unknown or wrong is refused before anything is sent`() {
        fun connecting(url: String?, vararg options: Pair<String, Any>): Unit =
            runBlocking { Client.connect(url, options = mapOf(*options)).close() }
        fails("invalid_config", "nope") { connecting("memory:", "nope" to 1) }
        fails("invalid_config", "gopher") { connecting("gopher://x") }
        fails("invalid_config", "lease") { connecting("memory:", "lease" to (-1).seconds) }
        fails("invalid_config", "lease") { connecting("memory:", "lease" to Double.NaN) }
        fails("invalid_config") { connecting("memory:?lease=5s", "lease" to 5.seconds) }
        assertFailsWith<IllegalArgumentException> { connecting("memory:", "lease" to listOf(5)) }
        connecting("memory:", "lease" to java.time.Duration.ofSeconds(5))
        connecting("memory:", "lease" to 5.seconds, "push" to "hint")
        val secret = fails("backend_unavailable") {
            connecting("redis://user:hunter2@127.0.0.1:1", "timeout" to 300.milliseconds)
        }
        assertEquals(false, "hunter2" in secret.toString() + secret.context)
    }

    @Test
    fun `every code has its class, and an unknown one the base`() {
        val exceptionOf = Class.forName("polylatch.ErrorsKt").getMethod("exceptionOf", Fault::class.java)
        fun of(code: String, reason: String? = null) = exceptionOf.invoke(
            null, Fault(code, "never", "none", reason, "text", "hint", "redis", "acquire", "a", 2, 0.5),
        )
        errors.forEach { (code, row) ->
            val error = assertIs<PolylatchException>(of(code))
            assertEquals("${row["kind"].asString}Exception", error.javaClass.simpleName)
            assertEquals(code, error.code)
            assertEquals(500.milliseconds, error.context.elapsed)
        }
        assertEquals("broken", (of("lease_lost", "broken") as LeaseLostException).reason)
        assertEquals("PolylatchException", of("from_a_later_version")!!.javaClass.simpleName)
    }
}
