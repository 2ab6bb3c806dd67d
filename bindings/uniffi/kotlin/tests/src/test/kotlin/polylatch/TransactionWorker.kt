package polylatch.tests

import polylatch.InProgressException
import polylatch.StaleTokenException
import polylatch.StepsAttempt
import polylatch.TransactionRuns
import polylatch.TransactionStepsOptions
import java.sql.Connection
import java.sql.DriverManager
import java.sql.SQLException
import java.util.UUID
import kotlin.random.Random
import kotlin.time.Duration.Companion.milliseconds

/** The steps of work that has some. */
val STEPS = listOf("charge", "send", "count")

/** The work of a key: of every second one it is one transaction, of the others it is in steps. */
class KeyedWork(private val runs: TransactionRuns, private val connection: Connection, private val scope: String, number: Int) {
    private val key = "k$number"
    private val inSteps = number % 2 == 1

    /** What the work changes, as it is found in the table of effects. */
    val effects: List<String> = if (inSteps) STEPS.map { "$scope $key $it" } else listOf("$scope $key")

    /** What of [effects] is recorded as done; nothing is done. */
    fun recorded(): List<String> {
        connection.autoCommit = false
        try {
            if (!inSteps) return if (runs.begin(connection, scope, key).replayed) effects else emptyList()
            val attempt = steps().claim(connection)
            return if (attempt.replayed) effects else attempt.finished.keys.map { "$scope $key $it" }
        } finally {
            connection.rollback()
        }
    }

    /** Does what is left to do. Returns the stored answer. */
    fun finish(): String? {
        if (!inSteps) {
            return connection.transaction { runs.runText(connection, scope, key) { done(effects.single()) }.value }
        }
        var attempt: StepsAttempt = connection.transaction { steps().claim(connection) }
        if (attempt.replayed) return attempt.text
        STEPS.zip(effects).filter { (step, _) -> step !in attempt.finished }.forEach { (step, effect) ->
            attempt = connection.transaction { attempt.step(connection, step, done(effect)) }
        }
        connection.transaction { attempt.complete(connection, "all of $key") }
        return attempt.text
    }

    private fun done(effect: String): String {
        connection.effect(effect)
        return effect
    }

    private fun steps() = runs.steps(scope, key, TransactionStepsOptions(lease = 300.milliseconds))
}

/** Works on random keys until it is killed: DIALECT URL SCOPE FIRST COUNT. */
fun main(given: Array<String>) {
    val (dialect, url, scope, first, count) = given
    val runs = TransactionRuns(dialect)
    val connection = DriverManager.getConnection(url)
    // What is loaded once is loaded before it counts.
    repeat(2) { KeyedWork(runs, connection, "$scope ${UUID.randomUUID()}", it).finish() }
    println("ready")
    while (true) {
        try {
            KeyedWork(runs, connection, scope, first.toInt() + Random.nextInt(count.toInt())).finish()
        } catch (_: InProgressException) {
            // Another worker has it, or had it when it was killed.
        } catch (_: StaleTokenException) {
            // Another worker went on after a pause of this one.
        } catch (_: SQLException) {
            // A deadlock, or a file that is busy: `transaction` rolled back.
        }
    }
}
