package polylatch.tests

import io.micrometer.core.instrument.FunctionCounter
import io.micrometer.core.instrument.FunctionTimer
import io.micrometer.core.instrument.Gauge
import io.micrometer.core.instrument.simple.SimpleMeterRegistry
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout
import polylatch.Client
import polylatch.ConditionalUpdate
import polylatch.Dialect
import polylatch.FencedUpdate
import polylatch.RunOptions
import polylatch.Term
import polylatch.TransactionRunOptions
import polylatch.TransactionRuns
import java.sql.Connection
import java.util.UUID
import java.util.concurrent.TimeUnit
import kotlin.test.assertEquals
import kotlin.test.assertTrue
import kotlin.time.Duration.Companion.seconds

/** The programs of the package's page and of the guide as they stand there; the project's tests compare them. */
@Timeout(60)
class PageTest {
    private object log {
        fun warn(line: String) = System.err.println(line)
    }

    private val url = stores().last()
    private val order = 42
    private val key = UUID.randomUUID().toString()
    private val body = "a book".encodeToByteArray()
    private val written = mutableListOf<Pair<Int, Long>>()
    private val answers = mutableListOf<Any>()

    private fun write(order: Int, token: Long) {
        written += order to token
    }

    private fun respond(vararg parts: Any) {
        answers.add(parts.toList())
    }

    private fun insertOrder(connection: Connection) = connection.effect(key)

    @Test
    fun `a first lock`(): Unit = runBlocking(Dispatchers.Default) {
        val client = Client.connect(url)
        client.withLock("orders/42", lease = 30.seconds, wait = 5.seconds) { guard ->
            write(order, guard.fencingToken)    // the token lets the resource refuse holders from before
        }
        client.close()

        assertEquals(order, written.single().first)
    }

    @Test
    fun `a fenced write`() = on(url) { client ->
        val guard = client.lock("account/7").acquire()
        Database.POSTGRES.connect().use { connection ->
            connection.execute(
                "DROP TABLE IF EXISTS account; CREATE TABLE account (id BIGINT, balance BIGINT, fence BIGINT); " +
                    "INSERT INTO account VALUES (7, 100, 0)",
            )

            val write = FencedUpdate.update(Dialect.POSTGRES, "account", "fence", listOf("balance"), listOf("id"))
            val values = mapOf("balance" to 150L, "fence" to guard.fencingToken, "id" to 7L)
            connection.prepareStatement(write.sql).use { statement ->
                write.parameters.forEachIndexed { at, name -> statement.setLong(at + 1, values.getValue(name)) }
                statement.executeUpdate()           // 1: done; 0: ask with probeSql, and FencedUpdate.whyUnchanged
            }

            assertEquals(listOf("150"), connection.strings("SELECT balance FROM account"))
        }
        guard.release()
    }

    @Test
    fun `idempotent work`() = on(url) { client ->
        repeat(2) {
            val orders = client.idempotency("orders/customer-7")     // the operation, and the caller by its credentials
            val outcome = orders.runText(key, RunOptions(payload = body)) { claim ->   // the key is made by the client
                claim.check()                                        // still ours? hand claim.fencingToken to what is changed
                """{"order": 42}"""
            }
            respond(outcome.value, outcome.replayed)
        }
        assertEquals(listOf<Any>(listOf("""{"order": 42}""", false), listOf("""{"order": 42}""", true)), answers)
    }

    @Test
    fun `work in a transaction`() {
        Database.POSTGRES.runs
        Database.POSTGRES.connect().use { connection ->
            repeat(2) {
                val runs = TransactionRuns(Dialect.POSTGRES)            // MYSQL (MariaDB too), or SQLITE: run its schemaSql once
                connection.autoCommit = false                           // SQLite: transaction_mode=IMMEDIATE in the URL
                try {
                    val options = TransactionRunOptions(payload = body)
                    runs.runText(connection, "orders/customer-7", key, options) { claim ->
                        insertOrder(connection)                         // an SQLException is thrown on
                        """{"order": 42}"""
                    }
                    connection.commit()                                 // the work and its record, or neither
                } catch (error: Exception) {
                    connection.rollback()                               // nothing was done
                    throw error
                }
            }
            assertEquals(1, connection.effects(key))
        }
    }

    @Test
    fun events(): Unit = runBlocking(Dispatchers.Default) {
        val client = Client.connect(url, onEvent = { event ->
            if (event.level == "warn" || event.level == "error") log.warn(event.line)
        })
        println(client.stats.held)          // numbers since the client was made; stats.wait is a histogram
        respond(client.prometheus())        // the same as text that Prometheus reads
        client.close()
        assertTrue("polylatch_" in answers.single().toString())
    }

    @Test
    fun `meters of Micrometer`() = on(url) { client ->
        val registry = SimpleMeterRegistry()

        Gauge.builder("polylatch.held") { client.stats.held }.register(registry)
        Gauge.builder("polylatch.waiting") { client.stats.waiting }.register(registry)
        FunctionCounter.builder("polylatch.losses", client) { it.stats.losses.values.sum().toDouble() }.register(registry)
        FunctionTimer.builder("polylatch.wait", client, { it.stats.wait.count }, { it.stats.wait.sum }, TimeUnit.SECONDS)
            .register(registry)

        val guard = client.lock("orders/42").acquire()
        assertEquals(1.0, registry["polylatch.held"].gauge().value())
        assertEquals(0.0, registry["polylatch.waiting"].gauge().value())
        assertEquals(1.0, registry["polylatch.wait"].functionTimer().count())
        client.breakLease("orders/42", guard.fencingToken, by = "a test", reason = "a loss is counted")
        val lost = CompletableDeferred<Unit>()
        guard.onLost { lost.complete(Unit) }
        lost.await()
        assertEquals(0.0, registry["polylatch.held"].gauge().value())
        assertEquals(1.0, registry["polylatch.losses"].functionCounter().count())
    }

    @Test
    fun `a conditional write, of the guide`() = Database.MYSQL.connect().use { connection ->
        connection.execute("DROP TABLE IF EXISTS item; CREATE TABLE item (id BIGINT, stock BIGINT); INSERT INTO item VALUES (7, 4)")

        val take = ConditionalUpdate.update(Dialect.MYSQL, "item", listOf(Term("stock", "-")), listOf(Term("stock", ">=")), listOf("id"))
        // take.parameters: "stock -", "id", "stock >="

        assertEquals(listOf("stock -", "id", "stock >="), take.parameters)
        val values = mapOf("stock -" to 3L, "id" to 7L, "stock >=" to 3L)
        val rows = List(2) {
            connection.prepareStatement(take.sql).use { statement ->
                take.parameters.forEachIndexed { at, name -> statement.setLong(at + 1, values.getValue(name)) }
                statement.executeUpdate()
            }
        }
        assertEquals(listOf(1, 0), rows, "3 of 4, and not 3 of 1")
    }
}
