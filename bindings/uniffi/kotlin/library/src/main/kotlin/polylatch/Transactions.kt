package polylatch

import polylatch.ffi.NativeRunClaim
import polylatch.ffi.NativeRun
import polylatch.ffi.NativeRuns
import polylatch.ffi.SqlRunWith
import java.sql.Connection
import java.sql.SQLException
import kotlin.time.Duration
import kotlin.time.toKotlinDuration

/** Work in a transaction, which may throw anything. */
public fun interface TransactionWork<T> {
    /** Does the work. What it throws ends the run, and the transaction is the caller's to roll back. */
    @Throws(Exception::class)
    public fun run(claim: TransactionClaim): T
}

/**
 * How to run work that is one transaction. What is missing is the library's to say. In Java, begin with
 * `new TransactionRunOptions()`: every method with an option returns other options.
 */
public class TransactionRunOptions(
    /** What the request consists of. The same key with another one is refused. */
    public val payload: ByteArray? = null,
    /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
    public val fingerprint: String? = null,
    /** How long the answer is kept: 1 s to 10 years, 24 h by default; [Duration.INFINITE] is for ever. */
    public val retention: Duration? = null,
    /**
     * A repetition does not wait for another transaction with the same key: [InProgressException] at once on
     * PostgreSQL and MariaDB. MySQL waits for `innodb_lock_wait_timeout`, SQLite for `busy_timeout`.
     */
    public val noWait: Boolean = false,
) {
    /** In Java, where the other constructor cannot be called. */
    public constructor() : this(payload = null)

    /** What the request consists of. The same key with another one is refused. */
    public fun payload(payload: ByteArray): TransactionRunOptions =
        TransactionRunOptions(payload, fingerprint, retention, noWait)

    /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
    public fun fingerprint(fingerprint: String): TransactionRunOptions =
        TransactionRunOptions(payload, fingerprint, retention, noWait)

    /** How long the answer is kept: 1 s to 10 years. */
    public fun retention(retention: java.time.Duration): TransactionRunOptions =
        TransactionRunOptions(payload, fingerprint, retention.toKotlinDuration(), noWait)

    /** Keeps the answer for ever. */
    public fun keepForever(): TransactionRunOptions =
        TransactionRunOptions(payload, fingerprint, Duration.INFINITE, noWait)

    /** A repetition does not wait for another transaction with the same key. */
    public fun noWait(): TransactionRunOptions = TransactionRunOptions(payload, fingerprint, retention, true)

    internal fun native() = SqlRunWith(payload, fingerprint, retention?.secs(), null, noWait)
}

/** How to run work in several transactions. In Java, begin with `new TransactionStepsOptions()`. */
public class TransactionStepsOptions(
    /** What the request consists of. The same key with another one is refused. */
    public val payload: ByteArray? = null,
    /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
    public val fingerprint: String? = null,
    /** How long the answer is kept: 1 s to 10 years, 24 h by default; [Duration.INFINITE] is for ever. */
    public val retention: Duration? = null,
    /** 100 ms to a day, 15 s by default. Each step renews it; if the client dies, another one goes on when it ends. */
    public val lease: Duration? = null,
) {
    /** In Java, where the other constructor cannot be called. */
    public constructor() : this(payload = null)

    /** What the request consists of. The same key with another one is refused. */
    public fun payload(payload: ByteArray): TransactionStepsOptions =
        TransactionStepsOptions(payload, fingerprint, retention, lease)

    /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
    public fun fingerprint(fingerprint: String): TransactionStepsOptions =
        TransactionStepsOptions(payload, fingerprint, retention, lease)

    /** How long the answer is kept: 1 s to 10 years. */
    public fun retention(retention: java.time.Duration): TransactionStepsOptions =
        TransactionStepsOptions(payload, fingerprint, retention.toKotlinDuration(), lease)

    /** Keeps the answer for ever. */
    public fun keepForever(): TransactionStepsOptions =
        TransactionStepsOptions(payload, fingerprint, Duration.INFINITE, lease)

    /** 100 ms to a day. Each step renews it. */
    public fun lease(lease: java.time.Duration): TransactionStepsOptions =
        TransactionStepsOptions(payload, fingerprint, retention, lease.toKotlinDuration())

    internal fun native() = SqlRunWith(payload, fingerprint, retention?.secs(), lease?.secs(), false)
}

/** The claim on a key under which the work of a transaction runs, or of several. */
public class TransactionClaim internal constructor(private val native: NativeRunClaim) {
    /** Larger than that of every claim on the same key before. */
    public val fencingToken: Long get() = native.fencingToken()

    /** How many runs of this key began, this one counted; of work in steps, how many clients worked on it. */
    public val runs: Long get() = native.runs()
}

/** The work of a key that has begun: a claim to work under, or the answer of an earlier run. */
public abstract class BegunWork internal constructor(private val native: NativeRunClaim?, answer: ByteArray?) {
    /** The answer of an earlier run, or what was recorded here; null before. */
    public var value: ByteArray? = answer
        private set

    /** [value] as text. */
    public val text: String? get() = value?.decodeToString()

    /** Whether an earlier run did the work. Then there is nothing to do: [value] is its answer. */
    public val replayed: Boolean get() = native == null

    /** The claim under which to work. Throws [InvalidArgumentException] for a replayed answer. */
    public val claim: TransactionClaim get() = TransactionClaim(mine)

    internal val mine: NativeRunClaim
        get() = native ?: throw refused("an earlier run did the work of this key; its answer is in value")

    internal fun record(connection: Connection, result: ByteArray) {
        carryOut(inTransaction(connection), told { mine.complete(result) })
        value = result
    }

    internal fun recordFailure(connection: Connection, error: Exception) {
        carryOut(inTransaction(connection), told { mine.fail(answerOf(error)) })
    }
}

/** The work of one key in the caller's transaction; see [TransactionRuns.begin]. */
public class TransactionAttempt internal constructor(private val connection: Connection, found: Found) :
    BegunWork(found.claim, found.answer) {
    /**
     * Records the result: the last call before the commit.
     *
     * Throws [InvalidArgumentException] for a result of more than 1 MiB, [StaleTokenException] if the claim is not
     * the present one. Roll back after each of them: nothing is done then.
     */
    @Throws(SQLException::class)
    public fun complete(result: ByteArray): Unit = record(connection, result)

    /** The same for a text: other languages read it as JSON if it is. */
    @Throws(SQLException::class)
    public fun complete(result: String): Unit = record(connection, result.encodeToByteArray())

    /**
     * Records a failure that every repetition gets: the answer of a [WorkFailedException], or else the class and the
     * message. What the transaction changed is committed with it.
     */
    @Throws(SQLException::class)
    public fun fail(error: Exception): Unit = recordFailure(connection, error)
}

/**
 * The work of one key in several transactions, as it was when the last call about it was committed; see
 * [TransactionRuns.steps]. Each call that records something returns the next one. After a rollback go on with the one
 * before.
 */
public class StepsAttempt internal constructor(found: Found) : BegunWork(found.claim, found.answer) {
    /** Names and values of the finished steps, in their order. */
    public val finished: Map<String, ByteArray> =
        found.claim?.finished().orEmpty().associate { step -> step.name to step.value }

    /** The value of a finished step as text; null if it is not finished. */
    public fun text(step: String): String? = finished[step]?.decodeToString()

    /**
     * Records that a step is finished, and renews the lease: the last call before the step's commit. [name]: 1 to 100
     * bytes.
     *
     * Throws [StaleTokenException] if another client has taken the work over (roll back: the step was not done by
     * this one), [InvalidArgumentException] for a step that is finished already and for values of more than 1 MiB in
     * all.
     */
    @JvmOverloads
    @Throws(SQLException::class)
    public fun step(connection: Connection, name: String, value: ByteArray = ByteArray(0)): StepsAttempt =
        StepsAttempt(carryOut(inTransaction(connection), told { mine.step(name, value) }))

    /** The same for a text: other languages read it as JSON if it is. */
    @Throws(SQLException::class)
    public fun step(connection: Connection, name: String, value: String): StepsAttempt =
        step(connection, name, value.encodeToByteArray())

    /** Renews the lease; commit it. Throws [StaleTokenException]. */
    @Throws(SQLException::class)
    public fun renew(connection: Connection): StepsAttempt =
        StepsAttempt(carryOut(inTransaction(connection), told { mine.renew() }))

    /** Ends the claim without an answer, so that another client goes on at once; commit it. Throws [StaleTokenException]. */
    @Throws(SQLException::class)
    public fun release(connection: Connection) {
        carryOut(inTransaction(connection), told { mine.release() })
    }

    /** Records the result of all: the last call before the last commit. Throws as [TransactionAttempt.complete]. */
    @Throws(SQLException::class)
    public fun complete(connection: Connection, result: ByteArray): Unit = record(connection, result)

    /** The same for a text: other languages read it as JSON if it is. */
    @Throws(SQLException::class)
    public fun complete(connection: Connection, result: String): Unit = record(connection, result.encodeToByteArray())

    /** Records a failure that every repetition gets. What finished steps have done remains. */
    @Throws(SQLException::class)
    public fun fail(connection: Connection, error: Exception): Unit = recordFailure(connection, error)
}

/** Work in several transactions; see [TransactionRuns.steps]. */
public class TransactionSteps internal constructor(private val native: NativeRun) {
    /**
     * Claims the work with its finished steps, or finds its answer. Commit it at once. If the answer to a commit is
     * lost, claim again with the same object: it says whether the step was committed.
     *
     * Throws [InProgressException] while another client works on it, [PayloadMismatchException],
     * [WorkFailedException], [ResultTooLargeException].
     */
    @Throws(SQLException::class)
    public fun claim(connection: Connection): StepsAttempt =
        StepsAttempt(carryOut(inTransaction(connection), native.claim()))
}

/**
 * Idempotent work whose record is committed by the caller's own transaction: both, or neither.
 *
 * ```kotlin
 * val runs = TransactionRuns(Dialect.POSTGRES)
 * connection.autoCommit = false
 * val outcome = runs.runText(connection, "orders/customer-7", key) { claim -> order(connection) }
 * connection.commit() // or rollback(), after whatever is thrown
 * ```
 *
 * Nothing is sent but the statements on the connection that is given, of any JDBC driver for PostgreSQL, MySQL,
 * MariaDB or SQLite. The caller begins, commits and rolls back; a connection in autocommit mode is refused. Calls
 * block: in a coroutine, make them within `withContext(Dispatchers.IO)`. What the driver throws is thrown on. The
 * limits of the database end a wait (`lock_timeout`, `innodb_lock_wait_timeout`, `busy_timeout`), and so does the end
 * of the connection.
 *
 * On PostgreSQL, MySQL and MariaDB the record is the one that [Client.idempotency] keeps in that database. On SQLite
 * it is in a table of its own, which [schemaSql] makes; begin there with `BEGIN IMMEDIATE`
 * (`transaction_mode=IMMEDIATE` in the URL).
 *
 * [dialect]: a word of [Dialect]. [schema]: that of the store on PostgreSQL. Throws [InvalidArgumentException] for
 * another dialect, [InvalidConfigException] for an impossible schema.
 */
public class TransactionRuns @JvmOverloads constructor(dialect: String, schema: String? = null) {
    private val native = told { NativeRuns(dialect, schema) }

    /** The script that makes the tables. Run again, it changes nothing. */
    public val schemaSql: String get() = native.schemaSql()

    /**
     * Does the [work] of a key in the caller's transaction, unless it was done: then its stored answer is returned.
     * The result has at most 1 MiB. It waits for another transaction with the same key.
     *
     * [scope]: the operation and the caller it is done for, 1 to 256 bytes. [key]: what is unique to one request, 1
     * to 255 bytes, made by its client, such as a UUID. What [work] throws is thrown on: roll back, and nothing was
     * done.
     *
     * Throws [InProgressException], [PayloadMismatchException], [WorkFailedException], [ResultTooLargeException],
     * those of [TransactionAttempt.complete], and what the driver throws. Roll back after each.
     */
    @JvmOverloads
    @Throws(Exception::class)
    public fun run(
        connection: Connection,
        scope: String,
        key: String,
        options: TransactionRunOptions = TransactionRunOptions(),
        work: TransactionWork<ByteArray>,
    ): Outcome<ByteArray> {
        val attempt = begin(connection, scope, key, options)
        val replayed = attempt.replayed
        if (!replayed) attempt.complete(work.run(attempt.claim))
        return Outcome(attempt.value ?: ByteArray(0), replayed)
    }

    /** As [run], for a text: other languages read it as JSON if it is. */
    @JvmOverloads
    @Throws(Exception::class)
    public fun runText(
        connection: Connection,
        scope: String,
        key: String,
        options: TransactionRunOptions = TransactionRunOptions(),
        work: TransactionWork<String>,
    ): Outcome<String> {
        val outcome = run(connection, scope, key, options) { claim -> work.run(claim).encodeToByteArray() }
        return Outcome(outcome.value.decodeToString(), outcome.replayed)
    }

    /** Claims a key, or finds its answer: the first half of [run], for work that is no lambda. */
    @JvmOverloads
    @Throws(SQLException::class)
    public fun begin(
        connection: Connection,
        scope: String,
        key: String,
        options: TransactionRunOptions = TransactionRunOptions(),
    ): TransactionAttempt = told { native.whole(scope, key, options.native()) }.use { run ->
        val found = try {
            carryOut(inTransaction(connection), run.claim())
        } catch (error: SQLException) {
            if (!options.noWait || !native.saysInProgress(error.errorCode.toString())) throw error
            throw exceptionOf(run.inProgress()).apply { initCause(error) }
        }
        TransactionAttempt(connection, found)
    }

    /** Names work in several transactions: a repetition goes on after the last step that was committed. Nothing is sent. */
    @JvmOverloads
    public fun steps(
        scope: String,
        key: String,
        options: TransactionStepsOptions = TransactionStepsOptions(),
    ): TransactionSteps = TransactionSteps(told { native.steps(scope, key, options.native()) })

    /** Deletes records whose retention is over, at most so many (1 to 100 000), and returns how many. Commit it. */
    @JvmOverloads
    @Throws(SQLException::class)
    public fun purge(connection: Connection, most: Int = 1000): Long =
        carryOut(connection, told { native.purge(most.toLong()) }).deleted
}
