package polylatch.tests

import kotlinx.coroutines.async
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Test
import polylatch.Client
import polylatch.StaleTokenException
import polylatch.TokenGate
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertNotNull
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

class LocksTest {
    @Test
    fun `a lock is held, seen, and given back`() = onEveryStore { url ->
        val client = Client.connect(url, program = "the test")
        val guard = client.lock("orders/42 ü 🔒", lease = 30.seconds, label = "why").acquire()
        assertEquals("orders/42 ü 🔒", guard.name)
        assertTrue(guard.isHeld)
        guard.check()
        assertTrue(guard.remaining > 500.milliseconds && guard.remaining <= 30.seconds)
        assertTrue(guard.validUntil > Duration.ZERO)
        assertEquals("mutex", guard.mode)
        assertTrue(guard.fenceQuality in setOf("strict", "time-floored"))
        assertTrue("orders" in guard.sequencer)

        val seen = client.inspect(name = guard.name)
        val holder = seen.locks.single().holders.single()
        assertEquals("why", holder.label)
        assertEquals(guard.fencingToken, holder.fencingToken)
        assertEquals(client.id, holder.client)
        // Who that is, is written beside the way.
        val who = generateSequence { runBlocking { client.inspect(name = guard.name) } }
            .firstNotNullOf { look -> look.clients.firstOrNull { it.id == holder.client } }
        assertEquals("kotlin" to "the test", who.language to who.program)
        assertEquals(ProcessHandle.current().pid(), who.pid)
        assertEquals(client.id, who.id)

        guard.release()
        guard.release()
        assertFalse(guard.isHeld)
        assertTrue(client.inspect(prefix = "orders").locks.all { it.holders.isEmpty() })
        val next = client.lock(guard.name).acquire()
        assertTrue(next.fencingToken > guard.fencingToken)
        client.close()
        client.close()
        fails("canceled") { client.lock("after").acquire() }
    }

    @Test
    fun `contention is a result, and a wait that runs out names the holder`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val guard = client.lock("busy", label = "the first").acquire()
            assertNull(client.lock("busy").tryAcquire())
            val error = fails("wait_timeout", "busy") { client.lock("busy", wait = 50.milliseconds).acquire() }
            assertEquals("busy", error.context.lock)
            guard.release()
            assertNotNull(client.lock("busy").tryAcquire()).release()
        }
    }

    @Test
    fun `a kept lock is entered again, and released for another client`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val lock = client.lock("kept", keepIdle = 60.seconds)
            if (client.capability.backend !in setOf("memory", "redis")) {
                fails("unsupported", "keep a lease after its release") { lock.acquire() }
                return@use
            }
            val tokens = List(5) { lock.withLease { it.fencingToken } }
            assertEquals(tokens.sorted().distinct(), tokens)
            // The store still has the first grant: only that one was a request.
            assertEquals(tokens.first(), client.inspect(name = "kept").locks.single().holders.single().fencingToken)
            Client.connect(url).use { other ->
                other.lock("kept", wait = 30.seconds).withLease { assertTrue(it.fencingToken > tokens.last()) }
            }
        }
    }

    @Test
    fun `a waiter is let in when the lock is given back`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val first = client.lock("line").acquire()
            val second = async { client.lock("line", wait = 30.seconds).acquire() }
            while (client.inspect(name = "line").locks.single().waiters.isEmpty()) Unit
            first.release()
            assertTrue(second.await().also { it.release() }.fencingToken > first.fencingToken)
        }
    }

    @Test
    fun `readers share, a reader steps up, permits run out`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val page = client.rwLock("page", wait = 10.seconds)
            val (one, other) = page.read().acquire() to page.read().acquire()
            assertNull(page.write().tryAcquire())
            assertFalse(one.tryUpgrade())
            other.release()
            val before = one.fencingToken
            assertTrue(one.tryUpgrade())
            assertTrue(one.fencingToken > before)
            assertEquals("write", one.mode)
            assertEquals(one.extend(60.seconds), one.validUntil)
            assertTrue(one.remaining > 40.seconds)
            fails("invalid_argument", "lease") { one.extend(1.milliseconds) }
            one.downgrade()
            assertEquals("read", one.mode)
            fails("invalid_argument", "read", "write") { one.downgrade() }
            one.release()

            val pool = client.semaphore("pool", 3)
            val two = pool.permits(2).acquire()
            assertNull(pool.permits(2).tryAcquire())
            val last = assertNotNull(pool.permits(1).tryAcquire())
            two.release()
            last.release()
        }
    }

    @Test
    fun `several locks are had together or not at all`() = onEveryStore { url ->
        Client.connect(url).use { client ->
            val set = client.lockAll(listOf("b", "a"), lease = 20.seconds).acquire()
            assertEquals(setOf("a", "b"), set.fencingTokens.keys)
            assertNull(client.lockAll(listOf("b", "c")).tryAcquire())
            assertNotNull(client.lock("c").tryAcquire()).release()
            set.check()
            assertTrue(set.remaining > Duration.ZERO)
            set.release()
            assertEquals(7, client.lockAll(listOf("a", "b")).withLease { 7 })
        }
    }

    @Test
    fun `an option that is false is not one that was not given`() = on("memory:flags") { client ->
        val guard = client.lock("fixed", lease = 300.milliseconds, renew = false).acquire()
        assertEquals("expired", lostReason(guard))
        assertEquals(0, guard.renewals)
    }

    @Test
    fun `a resource refuses holders from before`() {
        val gate = TokenGate(largest = 5)
        gate.admit(7)
        assertEquals(7, gate.largest)
        assertFailsWith<StaleTokenException> { gate.admit(6) }
        fails("invalid_argument", "-1") { gate.admit(-1) }
        assertNull(TokenGate().largest)
    }
}
