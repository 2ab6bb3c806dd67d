package polylatch.blocking

import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.runInterruptible
import polylatch.Claim
import polylatch.Outcome
import polylatch.RunOptions
import java.time.Duration
import kotlin.time.toKotlinDuration

/** Work that may throw anything. */
public fun interface Work<T> {
    /** Does the work; [claim] says whether it is still this run's. */
    @Throws(Exception::class)
    public fun run(claim: Claim): T
}

/** The keys and one-time tokens of one scope; see [polylatch.Idempotency]. */
public class Idempotency internal constructor(private val keys: polylatch.Idempotency) {
    /** The scope of these keys. */
    public val scope: String get() = keys.scope

    /** Does the work of a key, unless it was done; see [polylatch.Idempotency.run]. */
    @JvmOverloads
    @Throws(Exception::class)
    public fun run(key: String, options: RunOptions = RunOptions(), work: Work<ByteArray>): Outcome<ByteArray> =
        runBlocking { keys.run(key, options) { claim -> runInterruptible { work.run(claim) } } }

    /** The same for a text. */
    @JvmOverloads
    @Throws(Exception::class)
    public fun runText(key: String, options: RunOptions = RunOptions(), work: Work<String>): Outcome<String> =
        runBlocking { keys.runText(key, options) { claim -> runInterruptible { work.run(claim) } } }

    /** Deletes what is stored for a key: `forgotten`, `absent` or `running`. */
    @Throws(InterruptedException::class)
    public fun forget(key: String): String = runBlocking { keys.forget(key) }

    /** Issues a token that can be consumed once. */
    @Throws(InterruptedException::class)
    public fun issue(ttl: Duration): String = runBlocking { keys.issue(ttl.toKotlinDuration()) }

    /** Consumes a token: `first`, `duplicate` or `unknown`. */
    @Throws(InterruptedException::class)
    public fun consume(token: String): String = runBlocking { keys.consume(token) }
}
