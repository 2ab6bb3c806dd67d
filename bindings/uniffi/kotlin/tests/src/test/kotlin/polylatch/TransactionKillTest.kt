package polylatch.tests

import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.EnumSource
import polylatch.InProgressException
import java.sql.Connection
import java.util.UUID
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import kotlin.random.Random
import kotlin.test.assertEquals
import kotlin.test.assertTrue

/** Keys that a worker chooses from, and by how many the next worker's choice begins later. */
private const val CHOICE = 30
private const val NEW_KEYS = 8

/** Workers at a time. */
private const val LANES = 3

/**
 * Workers in processes of their own, several at a time on the same keys, are killed at random moments. What is recorded as done
 * is done, once, and what is done is recorded. `POLYLATCH_JVM_KILLS`: how many are killed on each database (2).
 */
class TransactionKillTest {
    private val kills = System.getenv("POLYLATCH_JVM_KILLS")?.toInt() ?: 2

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = ["MYSQL"])
    fun `what a killed worker has done is recorded, and nothing else is`(database: Database) {
        val (runs, scope) = database.runs to "kills ${UUID.randomUUID()}"
        val next = AtomicInteger()
        val lanes = Executors.newFixedThreadPool(LANES)
        val ended = List(minOf(LANES, kills)) {
            CompletableFuture.runAsync(
                {
                    generateSequence { next.getAndIncrement().takeIf { it < kills } }
                        .forEach { number -> killed(database, scope, number * NEW_KEYS) }
                },
                lanes,
            )
        }
        lanes.shutdown()
        ended.forEach { it.join() }

        database.connect().use { connection ->
            val works = List((kills - 1) * NEW_KEYS + CHOICE) { KeyedWork(runs, connection, scope, it) }
            // The claims of killed workers end with their leases.
            val recorded = works.flatMap { work -> eventually { work.recorded() } }
            val done = connection.done(scope)
            assertEquals(emptySet(), done.keys - recorded.toSet(), "done but not recorded")
            assertEquals(emptySet(), recorded.toSet() - done.keys, "recorded but not done")
            works.forEach { work -> eventually { work.finish() } }
            val all = connection.done(scope)
            assertEquals(works.flatMap { it.effects }.associateWith { 1 }, all, "each is done once")
            // Of a few, each may have been killed before it had done anything.
            assertTrue(kills < 20 || done.isNotEmpty())
            // The server is that of other tests too.
            connection.transaction { connection.execute("DELETE FROM ${database.table} WHERE scope LIKE '$scope%'") }
            println("$database: $kills kills; ${done.size} of ${all.size} effects done by killed workers, 0 not recorded, 0 not done")
        }
    }

    /** A process that dies before it has rolled back cannot keep a claim for longer than its lease. */
    private fun <T> eventually(call: () -> T): T {
        val late = System.nanoTime() + TimeUnit.SECONDS.toNanos(30)
        while (true) {
            try {
                return call()
            } catch (error: InProgressException) {
                if (System.nanoTime() > late) throw error
                Thread.sleep(20)
            }
        }
    }

    private fun Connection.done(scope: String): Map<String, Int> = transaction {
        strings("SELECT work FROM effects WHERE work LIKE '$scope k%'").groupingBy { it }.eachCount()
    }

    /** Has a worker work, and kills it at a random moment. */
    private fun killed(database: Database, scope: String, first: Int) {
        val classes = System.getProperty("surefire.test.class.path") ?: System.getProperty("java.class.path")
        val worker = ProcessBuilder(
            // It starts sooner so.
            System.getProperty("java.home") + "/bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx96m",
            "-Djava.io.tmpdir=${System.getProperty("java.io.tmpdir")}", "-cp", classes,
            "polylatch.tests.TransactionWorkerKt", database.dialect, database.url, scope, "$first", "$CHOICE",
        ).redirectError(ProcessBuilder.Redirect.INHERIT).start()
        try {
            assertEquals("ready", worker.inputStream.bufferedReader().readLine())
            Thread.sleep(Random.nextLong(250))
            assertTrue(worker.isAlive)
        } finally {
            worker.destroyForcibly().waitFor()
        }
    }
}
