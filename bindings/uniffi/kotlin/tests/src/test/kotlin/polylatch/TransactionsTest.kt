package polylatch.tests

import org.junit.jupiter.api.Timeout
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.EnumSource
import polylatch.InvalidArgumentException
import polylatch.Outcome
import polylatch.TransactionRunOptions
import polylatch.TransactionRuns
import polylatch.TransactionStepsOptions
import polylatch.TransactionWork
import polylatch.WorkFailedException
import java.io.IOException
import java.lang.reflect.InvocationTargetException
import java.lang.reflect.Proxy
import java.sql.Connection
import java.util.UUID
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import java.util.concurrent.TimeoutException
import kotlin.test.assertContentEquals
import kotlin.test.assertEquals
import kotlin.test.assertFailsWith
import kotlin.test.assertFalse
import kotlin.test.assertNull
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.minutes

private const val SCOPE = "orders/7"

private val never = TransactionWork<String> { error("it was done again") }

private fun Outcome<*>.both() = value to replayed

/** Idempotent work inside transactions of the program's own. */
@Timeout(60)
class TransactionsTest {
    private val key = UUID.randomUUID().toString()

    private fun with(database: Database, test: Database.(Connection) -> Unit) {
        database.runs
        database.connect().use { database.test(it) }
    }

    private fun Database.inOne(
        connection: Connection,
        key: String,
        options: TransactionRunOptions = TransactionRunOptions(),
        work: TransactionWork<String> = never,
    ) = connection.transaction { runs.runText(connection, SCOPE, key, options, work) }

    @ParameterizedTest
    @EnumSource
    fun `a repetition gets the answer of the first transaction`(database: Database) = with(database) { connection ->
        val options = TransactionRunOptions(payload = "3 apples".encodeToByteArray(), retention = 5.minutes)
        val answers = List(2) {
            inOne(connection, key, options) { claim ->
                assertTrue(claim.fencingToken > 0 && claim.runs == 1L)
                connection.effect(key)
                """{"order": "42 ü"}"""
            }
        }
        assertEquals(listOf("""{"order": "42 ü"}""" to false, """{"order": "42 ü"}""" to true), answers.map { it.both() })
        assertEquals(1, connection.effects(key))
        fails("payload_mismatch", "another payload") {
            inOne(connection, key, TransactionRunOptions(payload = "4 apples".encodeToByteArray()))
        }
        val bytes = byteArrayOf(0, -1, 39, 92)
        val first = connection.transaction { runs.begin(connection, "orders/8", key).apply { complete(bytes) } }
        assertFalse(first.replayed)
        assertContentEquals(bytes, first.value)
        val again = connection.transaction { runs.begin(connection, "orders/8", key) }
        assertTrue(again.replayed)
        assertContentEquals(bytes, again.value)
        fails("invalid_argument", "earlier run") { again.claim }
        fails("invalid_argument", "earlier run") { again.complete("another") }
    }

    @ParameterizedTest
    @EnumSource
    fun `what is thrown after the effect leaves nothing`(database: Database) = with(database) { connection ->
        assertFailsWith<IOException> {
            inOne(connection, key) {
                connection.effect(key)
                throw IOException("no card")
            }
        }
        assertEquals(0, connection.effects(key))
        assertEquals("done" to false, inOne(connection, key) { connection.effect(key); "done" }.both())
        fails("invalid_argument", "1048577 bytes") { inOne(connection, "$key large") { "x".repeat((1 shl 20) + 1) } }
        assertEquals("" to false, inOne(connection, "$key large") { "" }.both())
        assertEquals(1, connection.effects(key))
    }

    @ParameterizedTest
    @EnumSource
    fun `a stored failure is thrown for every repetition`(database: Database) = with(database) { connection ->
        connection.transaction {
            runs.begin(connection, SCOPE, key).fail(WorkFailedException("declined", "refused".encodeToByteArray()))
        }
        val failed = fails("failed") { inOne(connection, key) } as WorkFailedException
        assertEquals("refused" to true, failed.answer.decodeToString() to failed.replayed)
        connection.transaction { runs.begin(connection, "orders/8", key).fail(IOException("no card")) }
        val other = fails("failed") { connection.transaction { runs.begin(connection, "orders/8", key) } }
        assertEquals("java.io.IOException: no card", (other as WorkFailedException).answer.decodeToString())
    }

    /** Pools hand out connections that are not the driver's own. */
    @ParameterizedTest
    @EnumSource
    fun `nothing but statements is sent on the connection`(database: Database) = with(database) { connection ->
        val called = mutableSetOf<String>()
        val watched = Proxy.newProxyInstance(javaClass.classLoader, arrayOf(Connection::class.java)) { _, method, given ->
            called += method.name
            try {
                method.invoke(connection, *given.orEmpty())
            } catch (error: InvocationTargetException) {
                throw error.targetException
            }
        } as Connection
        connection.autoCommit = false
        runs.runText(watched, SCOPE, key) { "first" }
        val steps = runs.steps(SCOPE, "$key steps").claim(watched)
        steps.step(watched, "one").renew(watched).complete(watched, "done")
        runs.purge(watched)
        connection.rollback()
        assertEquals(setOf("getAutoCommit", "prepareStatement"), called)
        assertEquals("again" to false, inOne(connection, key) { "again" }.both())
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = ["SQLITE"])
    fun `a duplicate waits for the first transaction`(database: Database) = with(database) { connection ->
        val begun = CountDownLatch(1)
        val second = connection.transaction {
            runs.runText(connection, SCOPE, key) { "first" }
            val second = CompletableFuture.supplyAsync {
                connect().use { other ->
                    begun.countDown()
                    inOne(other, key)
                }
            }
            begun.await()
            assertFailsWith<TimeoutException> { second.get(300, TimeUnit.MILLISECONDS) }
            second
        }
        assertEquals("first" to true, second.get(30, TimeUnit.SECONDS).both())
        // If the first one is rolled back, the second one does the work.
        connection.autoCommit = false
        runs.begin(connection, SCOPE, "$key again")
        val other = CompletableFuture.supplyAsync { connect().use { inOne(it, "$key again") { "second" } } }
        assertFailsWith<TimeoutException> { other.get(300, TimeUnit.MILLISECONDS) }
        connection.rollback()
        assertEquals("second" to false, other.get(30, TimeUnit.SECONDS).both())
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = ["SQLITE"])
    fun `without waiting a duplicate is in progress`(database: Database) = with(database) { connection ->
        connect().use { other ->
            val second = { other.transaction { runs.begin(other, SCOPE, key, TransactionRunOptions(noWait = true)) } }
            connection.transaction {
                val attempt = runs.begin(connection, SCOPE, key)
                fails("in_progress", "transaction") { second() }
                attempt.complete("1")
            }
            assertEquals("1", second().text)
        }
    }

    @ParameterizedTest
    @EnumSource
    fun `steps go on after the last commit`(database: Database) = with(database) { connection ->
        val steps = { runs.steps(SCOPE, key, TransactionStepsOptions(lease = 10.minutes)) }
        val claimed = connection.transaction { steps().claim(connection) }
        val charged = connection.transaction {
            connection.effect("$key charge")
            claimed.step(connection, "charge", """{"receipt": 7}""")
        }
        // The next one is rolled back.
        assertFailsWith<IOException> {
            connection.transaction {
                connection.effect("$key send")
                charged.step(connection, "send")
                throw IOException()
            }
        }
        fails("in_progress", "lease") { connection.transaction { steps().claim(connection) } }
        fails("invalid_argument", "charge") { connection.transaction { charged.step(connection, "charge") } }
        val renewed = connection.transaction { charged.renew(connection) }
        connection.transaction { renewed.release(connection) }
        val other = connection.transaction { steps().claim(connection) }
        assertEquals(listOf("charge"), other.finished.keys.toList())
        assertEquals("""{"receipt": 7}""", other.text("charge"))
        assertNull(other.text("send"))
        assertEquals(2, other.claim.runs)
        // The first one is not the present one any more.
        fails("stale_token") {
            connection.transaction {
                connection.effect("$key send")
                renewed.step(connection, "send")
            }
        }
        val sent = connection.transaction {
            connection.effect("$key send")
            other.step(connection, "send", byteArrayOf(1))
        }
        connection.transaction { sent.complete(connection, "done") }
        val again = connection.transaction { steps().claim(connection) }
        assertEquals(true to "done", again.replayed to again.text)
        assertTrue(again.finished.isEmpty())
        assertEquals(listOf(1, 1), listOf("charge", "send").map { connection.effects("$key $it") })
        // A failure of work in steps is stored too.
        connection.transaction {
            runs.steps(SCOPE, "$key fails").claim(connection).fail(connection, WorkFailedException("declined"))
        }
        fails("failed") { connection.transaction { runs.steps(SCOPE, "$key fails").claim(connection) } }
    }

    @ParameterizedTest
    @EnumSource
    fun `a client sees the record of a transaction, and old ones are purged`(database: Database) = with(database) { connection ->
        connection.transaction { runs.runText(connection, key, "k") { "[1, 2]" } }
        store?.let { url ->
            on(url) { client ->
                val outcome = client.idempotency(key).runText("k") { error("it was done again") }
                assertEquals("[1, 2]" to true, outcome.both())
            }
        }
        // Of other tests.
        while (connection.transaction { runs.purge(connection) } > 0) Unit
        connection.transaction { connection.execute("UPDATE $table SET keep_until_ms = 1 WHERE scope = '$key'") }
        assertEquals(1, connection.transaction { runs.purge(connection) })
        // Autocommit is no error here.
        connection.autoCommit = true
        assertEquals(0, runs.purge(connection, 10))
    }

    @ParameterizedTest
    @EnumSource
    fun `a connection in autocommit mode is refused before anything is sent`(database: Database) = with(database) { connection ->
        val begun = connection.transaction { runs.steps(SCOPE, key).claim(connection) }
        val attempt = connection.transaction { runs.begin(connection, "orders/8", key) }
        connection.autoCommit = true
        val calls = listOf<() -> Unit>(
            { runs.runText(connection, SCOPE, "$key other", work = never) },
            { runs.begin(connection, SCOPE, "$key other") },
            { runs.steps(SCOPE, "$key other").claim(connection) },
            { begun.step(connection, "one") },
            { begun.renew(connection) },
            { begun.release(connection) },
            { begun.complete(connection, "done") },
            { begun.fail(connection, IOException()) },
            { attempt.complete("done") },
            { attempt.fail(IOException()) },
        )
        calls.forEach { call -> fails("invalid_argument", "autocommit", "setAutoCommit(false)") { call() } }
        assertEquals("yes" to false, inOne(connection, "$key other") { "yes" }.both())
    }

    @ParameterizedTest
    @EnumSource(names = ["SQLITE", "POSTGRES"])
    fun `bad arguments are refused before anything is sent`(database: Database) = with(database) { connection ->
        fails("invalid_argument", "sqlite") { TransactionRuns("sqlite") }
        fails("invalid_argument", "schema") { TransactionRuns("mysql ?", "x") }
        fails("invalid_config") { TransactionRuns("postgres ?", "a;b") }
        connection.autoCommit = false
        val both = TransactionRunOptions(payload = ByteArray(0), fingerprint = "f")
        fails("invalid_argument", "fingerprint") { runs.begin(connection, SCOPE, key, both) }
        fails("invalid_argument", "the key") { runs.begin(connection, SCOPE, "") }
        fails("invalid_argument", "retention") {
            runs.begin(connection, SCOPE, key, TransactionRunOptions(retention = 1.milliseconds))
        }
        fails("invalid_argument", "lease") { runs.steps(SCOPE, key, TransactionStepsOptions(lease = 1.milliseconds)) }
        fails("invalid_argument", "100000") { runs.purge(connection, 0) }
        assertFailsWith<InvalidArgumentException> { runs.steps(SCOPE, "x".repeat(256)) }
    }
}
