package polylatch

import kotlinx.coroutines.CancellationException
import polylatch.ffi.LossListener
import polylatch.ffi.RunSlot
import polylatch.ffi.RunWith
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds
import kotlin.time.toKotlinDuration

/** What becomes of a key whose work has failed. */
public enum class OnFailure(internal val word: String) {
    /** Every repetition gets the failure: work that failed may have had an effect. */
    STORE("store"),

    /** The next run does the work again. Right only if failed work has no effect. */
    FREE("free"),
}

/** The answer to a run: [value], and whether an earlier run did the work. */
public class Outcome<T> internal constructor(public val value: T, public val replayed: Boolean)

/**
 * How to run the work of a key. What is missing is the client's, or the library's, to say. In Java, begin with `new RunOptions()`:
 * every method with an option returns other options.
 */
public class RunOptions(
    /** What the request consists of. The same key with another one is refused. */
    public val payload: ByteArray? = null,
    /** What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. */
    public val fingerprint: String? = null,
    /** How long the answer is kept after the work: 1 s to 10 years, 24 h by default; [Duration.INFINITE] is for ever. */
    public val retention: Duration? = null,
    /** Length of the claim's lease: 100 ms to a day. A process that dies blocks its key for so long. */
    public val lease: Duration? = null,
    /** How long to wait for another run of the key: without it as long as it takes; zero does not wait. */
    public val wait: Duration? = null,
    /** What becomes of the key if the work throws; [WorkFailedException] may say otherwise. [OnFailure.STORE] by default. */
    public val onFailure: OnFailure? = null,
) {
    /** In Java, where the other constructor cannot be called. */
    public constructor() : this(payload = null)

    private fun like(
        payload: ByteArray? = this.payload,
        fingerprint: String? = this.fingerprint,
        retention: Duration? = this.retention,
        lease: Duration? = this.lease,
        wait: Duration? = this.wait,
        onFailure: OnFailure? = this.onFailure,
    ) = RunOptions(payload, fingerprint, retention, lease, wait, onFailure)

    /** Sets what the request consists of. */
    public fun payload(payload: ByteArray): RunOptions = like(payload = payload)

    /** Sets what the payload is recognized by instead. */
    public fun fingerprint(fingerprint: String): RunOptions = like(fingerprint = fingerprint)

    /** Sets how long the answer is kept. */
    public fun retention(retention: java.time.Duration): RunOptions = like(retention = retention.toKotlinDuration())

    /** Keeps the answer for ever. */
    public fun keepForever(): RunOptions = like(retention = Duration.INFINITE)

    /** Sets the length of the claim's lease. */
    public fun lease(lease: java.time.Duration): RunOptions = like(lease = lease.toKotlinDuration())

    /** Sets how long to wait for another run of the key; zero does not wait. */
    public fun waitAtMost(wait: java.time.Duration): RunOptions = like(wait = wait.toKotlinDuration())

    /** Sets what becomes of the key if the work throws. */
    public fun onFailure(onFailure: OnFailure): RunOptions = like(onFailure = onFailure)

    internal fun native() = RunWith(
        payload,
        fingerprint,
        retention?.secs(),
        lease?.secs(),
        wait?.takeIf { it.isFinite() }?.secs(),
        onFailure?.word,
    )
}

/** The claim on a key under which idempotent work runs. It is renewed until the work has ended. */
public class Claim internal constructor(private val slot: RunSlot) {
    /** Larger than that of every claim on the same key before. Hand it to what the work changes. */
    public val fencingToken: Long get() = slot.fencingToken()

    /** How many runs of this key began since it was free; more than 1 if one before died, so that its work may be done in part. */
    public val runs: Long get() = slot.runs()

    /** For how long it may be relied on from now; zero once it is over. */
    public val remaining: Duration get() = slot.remaining().seconds

    /** Throws [LeaseLostException] if it was lost: another client may do the work. Costs no request. */
    public fun check(): Unit = told { slot.check() }

    /** Calls [listener] with the reason when it is lost, on a thread of its own; never after the work has ended. */
    public fun onLost(listener: (reason: String) -> Unit): Unit = told {
        slot.onLost(object : LossListener {
            override fun lost(reason: String) {
                try {
                    listener(reason)
                } catch (error: Throwable) {
                    val thread = Thread.currentThread()
                    thread.uncaughtExceptionHandler.uncaughtException(thread, error)
                }
            }
        })
    }
}

/** The keys and one-time tokens of one scope; see [Client.idempotency]. */
public class Idempotency internal constructor(private val client: Client, public val scope: String) {
    /**
     * Does the [work] of a key, unless it was done: then its stored answer is returned. The result has at most 1 MiB.
     *
     * [key]: what is unique to one request, 1 to 255 bytes, made by its client, such as a UUID. What [work] throws is
     * thrown on, once it is stored or its key is freed; repetitions of a stored failure throw [WorkFailedException]. If
     * the coroutine is cancelled while it works, nothing is stored, and the key is free when the lease ends.
     *
     * Throws [InProgressException], [PayloadMismatchException], [WorkFailedException], [ResultTooLargeException],
     * [NotRecordedException], and errors of the store before the work.
     */
    public suspend fun run(
        key: String,
        options: RunOptions = RunOptions(),
        work: suspend (Claim) -> ByteArray,
    ): Outcome<ByteArray> {
        val slot = told { client.native.runSlot(scope, key, options.native()) }
        try {
            val entry = dispatched { slot.startRun() }
            if (!entry.mine) {
                val answer = entry.answer ?: ByteArray(0)
                entry.failure?.let { throw WorkFailedException(it, answer) }
                return Outcome(answer, true)
            }
            val result = try {
                work(Claim(slot))
            } catch (cancelled: CancellationException) {
                throw cancelled
            } catch (error: Exception) {
                failed(slot, error)
                throw error
            }
            finishing { slot.complete(result) }
            return Outcome(result, false)
        } finally {
            // Nothing once it is finished.
            slot.abandon()
            slot.destroy()
        }
    }

    /** As [run], for a text: other languages read it as JSON if it is. */
    public suspend fun runText(
        key: String,
        options: RunOptions = RunOptions(),
        work: suspend (Claim) -> String,
    ): Outcome<String> {
        val outcome = run(key, options) { claim -> work(claim).encodeToByteArray() }
        return Outcome(outcome.value.decodeToString(), outcome.replayed)
    }

    private suspend fun failed(slot: RunSlot, error: Exception) {
        try {
            finishing { slot.fail(answerOf(error), (error as? WorkFailedException)?.onFailure?.word) }
        } catch (unrecorded: PolylatchException) {
            error.addSuppressed(unrecorded)
        }
    }

    /** Deletes what is stored for a key, unless a client works on it: `forgotten`, `absent` or `running`. */
    public suspend fun forget(key: String): String = dispatched { client.native.forgetKey(scope, key) }

    /** Issues a token that can be consumed once within [ttl], 1 s to 10 years. */
    public suspend fun issue(ttl: Duration): String = dispatched { client.native.issueToken(scope, ttl.secs()) }

    /** Consumes a token: `first`, `duplicate` or `unknown`. However many calls do so at once, one is the first. */
    public suspend fun consume(token: String): String = dispatched { client.native.consumeToken(scope, token) }
}

/** What repetitions get of work that threw. */
internal fun answerOf(error: Exception): ByteArray =
    (error as? WorkFailedException)?.answer ?: "${error.javaClass.name}: ${error.message}".encodeToByteArray()
