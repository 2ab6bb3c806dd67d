/**
 * The same locks for threads, for Java and for Kotlin without coroutines: every call blocks until it is
 * done. A thread that is interrupted while it waits leaves nothing behind.
 */
package polylatch.blocking

import kotlinx.coroutines.runBlocking
import polylatch.Capability
import polylatch.ffi.BreakResult
import polylatch.ffi.LockEvent
import polylatch.ffi.Snapshot
import polylatch.ffi.Stats
import polylatch.ffi.WantedOptions
import polylatch.ffi.WantedWay
import polylatch.wantedOptions
import java.time.Duration
import java.util.function.Consumer
import kotlin.time.toJavaDuration
import kotlin.time.toKotlinDuration

/** One client of one store of locks; see [polylatch.Client]. Closing it releases what it holds. */
public class Client private constructor(internal val client: polylatch.Client) : AutoCloseable {
    public companion object {
        /** Connects; see [polylatch.Client.connect]. [onEvent] is called with the events of this client from the option `level` on. */
        @JvmStatic
        @JvmOverloads
        @Throws(InterruptedException::class)
        public fun connect(
            url: String? = null,
            options: Map<String, Any> = emptyMap(),
            program: String? = null,
            onEvent: Consumer<LockEvent>? = null,
        ): Client = Client(runBlocking { polylatch.Client.open("java", url, program, options, onEvent?.let { it::accept }) })
    }

    /** The id of this client in the store. */
    public val id: String get() = client.id

    /** The store's URL without its secrets. */
    public val url: String get() = client.url

    /** What this client has done since it was made, in numbers; see [polylatch.Client.stats]. */
    public val stats: Stats get() = client.stats

    /** The same as text that Prometheus reads; see [polylatch.Client.prometheus]. */
    @JvmOverloads
    public fun prometheus(labels: Map<String, String> = emptyMap()): String = client.prometheus(labels)

    /** What this store, as configured, can do. */
    public val capability: Capability get() = client.capability

    /** Names a lock. Nothing is sent before it is acquired. */
    public fun lock(name: String): Lock = Lock { with -> polylatch.Lock(client, name, WantedWay.MUTEX, with.wanted()) }

    /** Names a lock beside other readers. */
    public fun readLock(name: String): Lock = Lock { with -> polylatch.RwLock(client, name, with.wanted()).read() }

    /** Names a lock that excludes readers and other writers. */
    public fun writeLock(name: String): Lock = Lock { with -> polylatch.RwLock(client, name, with.wanted()).write() }

    /** Names [count] of the [capacity] permits of a semaphore, as one lease. */
    public fun permits(name: String, capacity: Int, count: Int): Lock = Lock { with ->
        polylatch.Semaphore(client, name, capacity, with.wanted()).permits(count)
    }

    /** Names several locks that are had all together or not at all. */
    public fun lockAll(names: Collection<String>): LockAll =
        LockAll { with -> polylatch.LockAll(client, names.toList(), with.wanted()) }

    /** Names a scope of idempotent work; see [polylatch.Client.idempotency]. */
    public fun idempotency(scope: String): Idempotency = Idempotency(client.idempotency(scope))

    /** Reads who holds and who waits; see [polylatch.Client.inspect]. */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun inspect(name: String? = null, prefix: String? = null, limit: Int? = null): Snapshot =
        runBlocking { client.inspect(name, prefix, limit) }

    /** Ends the lease of a holder; see [polylatch.Client.breakLease]. */
    @Throws(InterruptedException::class)
    public fun breakLease(name: String, fencingToken: Long, by: String, reason: String): BreakResult =
        runBlocking { client.breakLease(name, fencingToken, by, reason) }

    override fun close(): Unit = uninterrupted { client.close() }
}

/** How to acquire: what was not said stays with the client and the library. */
internal data class With(
    val lease: kotlin.time.Duration? = null,
    val wait: kotlin.time.Duration? = null,
    val label: String? = null,
    val owner: String? = null,
    val maxHold: kotlin.time.Duration? = null,
    val beatEvery: kotlin.time.Duration? = null,
    val fifo: Boolean? = null,
    val renew: Boolean? = null,
    val keepIdle: kotlin.time.Duration? = null,
) {
    fun wanted(): WantedOptions = wantedOptions(lease, wait, label, owner, maxHold, beatEvery, fifo, renew, keepIdle)
}

/** What can be acquired. Every method with an option returns another one; see [polylatch.Client.lock]. */
public abstract class Acquirable<Self, H : Held, N : polylatch.Held> internal constructor(
    private val with: With,
    private val lock: (With) -> polylatch.Acquirable<N>,
) {
    internal abstract fun like(with: With): Self

    internal abstract fun held(native: N): H

    /** Sets how long the lock outlives its last renewal. */
    public fun lease(lease: Duration): Self = like(with.copy(lease = lease.toKotlinDuration()))

    /** How long to wait for a lock that another client holds; as long as it takes otherwise. */
    public fun waitAtMost(wait: Duration): Self = like(with.copy(wait = wait.toKotlinDuration()))

    /** Sets a description that is shown to operators. */
    public fun label(label: String): Self = like(with.copy(label = label))

    /** Sets an id: a lock that is held under it is entered again. */
    public fun owner(owner: String): Self = like(with.copy(owner = owner))

    /** Sets when the lease ends, however healthy its holder is. */
    public fun maxHold(maxHold: Duration): Self = like(with.copy(maxHold = maxHold.toKotlinDuration()))

    /** Sets how often the work has to call [Held.beat], or the lease ends. */
    public fun beatEvery(beatEvery: Duration): Self = like(with.copy(beatEvery = beatEvery.toKotlinDuration()))

    /** Sets whether it is queued (the default), or may overtake waiters. */
    public fun fifo(fifo: Boolean): Self = like(with.copy(fifo = fifo))

    /** Sets whether the lease is renewed (the default), or ends after its length. */
    public fun renew(renew: Boolean): Self = like(with.copy(renew = renew))

    /** Acquires it, waiting as long as the options say; see [polylatch.Acquirable.acquire]. */
    @Throws(InterruptedException::class)
    public fun acquire(): H = held(runBlocking { lock(with).acquire() })

    /** Acquires it if it is available at once; null if another client holds it or is queued before. */
    @Throws(InterruptedException::class)
    public fun tryAcquire(): H? = runBlocking { lock(with).tryAcquire() }?.let(::held)
}

/** A lock to acquire. */
public class Lock internal constructor(
    private val with: With = With(),
    private val lock: (With) -> polylatch.Lock,
) : Acquirable<Lock, Guard, polylatch.Guard>(with, lock) {
    /**
     * Sets for how long the client keeps the lease after a release, for its next caller; see [polylatch.Client.lock].
     * For a lock of [Client.lock]: to acquire another one with it throws [polylatch.InvalidArgumentException].
     */
    public fun keepIdle(keepIdle: Duration): Lock = like(with.copy(keepIdle = keepIdle.toKotlinDuration()))

    override fun like(with: With): Lock = Lock(with, lock)

    override fun held(native: polylatch.Guard): Guard = Guard(native)
}

/** Several locks to acquire together. */
public class LockAll internal constructor(
    with: With = With(),
    private val lock: (With) -> polylatch.LockAll,
) : Acquirable<LockAll, GuardSet, polylatch.GuardSet>(with, lock) {
    override fun like(with: With): LockAll = LockAll(with, lock)

    override fun held(native: polylatch.GuardSet): GuardSet = GuardSet(native)
}

/** What is held; see [polylatch.Held]. Closing it releases. */
public abstract class Held internal constructor(private val held: polylatch.Held) : AutoCloseable {
    /** Whether it is still held, by the clock, now. Costs no request. */
    public val isHeld: Boolean get() = held.isHeld
    /** How long it is certainly held; zero after a loss. Costs no request. */
    public val remaining: Duration get() = held.remaining.toJavaDuration()

    /** Throws [polylatch.LeaseLostException] if it is lost. Costs no request. */
    public fun check(): Unit = held.check()

    /** Says that the work moves on; see [Acquirable.beatEvery]. */
    public fun beat(): Unit = held.beat()

    /** Calls [listener] with the reason when it is lost, on a thread of its own; never after a release. */
    public fun onLost(listener: Consumer<String>): Unit = held.onLost(listener::accept)

    /** Releases it and waits until the store has confirmed it; see [polylatch.Held.release]. */
    public fun release(): Unit = uninterrupted { held.release() }

    override fun close(): Unit = release()

    override fun toString(): String = held.toString()
}

/** A held lock; see [polylatch.Guard]. */
public class Guard internal constructor(private val guard: polylatch.Guard) : Held(guard) {
    /** The name of the lock. */
    public val name: String get() = guard.name
    /** The fencing token, which grows with every grant of the name. */
    public val fencingToken: Long get() = guard.fencingToken
    /** How strong the order of the tokens is, such as `strict`. */
    public val fenceQuality: String get() = guard.fenceQuality
    /** Name, holder and token as text. */
    public val sequencer: String get() = guard.sequencer
    /** How it is held: `mutex`, `read`, `write` or `permits`. */
    public val mode: String get() = guard.mode
    /** How often the lease was renewed. */
    public val renewals: Long get() = guard.renewals

    /** Gives the lease another length; see [polylatch.Guard.extend]. */
    public fun extend(lease: Duration): Duration =
        uninterrupted { guard.extend(lease.toKotlinDuration()) }.toJavaDuration()

    /** Makes a writer a reader, without a writer in between. */
    public fun downgrade(): Unit = uninterrupted { guard.downgrade() }

    /** Makes the only reader the writer; false if there are other readers. */
    public fun tryUpgrade(): Boolean = uninterrupted { guard.tryUpgrade() }
}

/** Several held locks. */
public class GuardSet internal constructor(private val set: polylatch.GuardSet) : Held(set) {
    /** The fencing token of each lock, by name. */
    public val fencingTokens: Map<String, Long> get() = set.fencingTokens
}

/** Carries out a short call that must not be left half done; an interrupt is kept for who asks next. */
private fun <T> uninterrupted(call: suspend () -> T): T {
    val interrupted = Thread.interrupted()
    try {
        return runBlocking { call() }
    } finally {
        if (interrupted) Thread.currentThread().interrupt()
    }
}
