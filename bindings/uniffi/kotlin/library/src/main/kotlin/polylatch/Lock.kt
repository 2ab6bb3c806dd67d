package polylatch

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.cancel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.isActive
import kotlinx.coroutines.withContext
import polylatch.ffi.Direct
import polylatch.ffi.Operation
import polylatch.ffi.Place
import polylatch.ffi.Prepared
import polylatch.ffi.Wanted
import polylatch.ffi.WantedOptions
import polylatch.ffi.WantedWay
import java.util.concurrent.atomic.AtomicBoolean

/** What can be acquired: [Lock] and [LockAll]. */
public abstract class Acquirable<H : Held> internal constructor(private val client: Client) {
    internal abstract val wanted: Wanted

    internal abstract fun held(place: Place): H

    // What is wrong with the options is said by each acquisition.
    private val prepared: Prepared by lazy(LazyThreadSafetyMode.PUBLICATION) {
        Prepared(told { client.native.prepare(wanted) }.toLong())
    }

    /**
     * Acquires it, waiting as long as the options say.
     *
     * A coroutine that is cancelled meanwhile leaves nothing behind: what the store may have granted is
     * released in the background.
     *
     * Throws [WaitTimeoutException] with who holds it; [InvalidArgumentException] before anything is sent;
     * [CanceledException] when the client is closed; [NameConflictException]; [UnsupportedException];
     * [BackendUnavailableException]; [BackendRejectedException].
     */
    public suspend fun acquire(): H = held(checkNotNull(enter(wait = true)))

    /** Acquires it if it is available at once; null if another client holds it or is queued before. */
    public suspend fun tryAcquire(): H? = enter(wait = false)?.let(::held)

    /**
     * Runs [block] while it is held, and releases it.
     *
     * When the lease is lost, the scope of [block] is cancelled, and this throws [LeaseLostException]: also
     * if the block has ended meanwhile. Code that does not suspend has to ask [Held.check].
     */
    public suspend fun <T> withLease(block: suspend CoroutineScope.(H) -> T): T {
        val held = acquire()
        val result = try {
            cancelledByLoss(held, block)
        } catch (error: Throwable) {
            // What the block threw is not replaced by a failed release.
            try {
                held.release()
            } catch (unreleased: PolylatchException) {
                if (error !is LeaseLostException) error.addSuppressed(unreleased)
            }
            throw error
        }
        held.release()
        return result
    }

    private suspend fun <T> cancelledByLoss(held: H, block: suspend CoroutineScope.(H) -> T): T {
        val lost = AtomicBoolean()
        try {
            return coroutineScope {
                held.onLost { reason ->
                    lost.set(true)
                    cancel("the lease is lost: $reason")
                }
                block(held)
            }
        } catch (cancelled: CancellationException) {
            // If the caller was cancelled too, that is what it expects to hear.
            if (lost.get() && currentCoroutineContext().isActive) held.check()
            throw cancelled
        }
    }

    private suspend fun enter(wait: Boolean): Place? {
        val place = Place(prepared)
        var held = false
        try {
            held = dispatched { Direct.call(place.number, if (wait) Operation.ACQUIRE else Operation.TRY) }
            return if (held) place else null
        } finally {
            if (!held) place.drop()
        }
    }
}

/** A lock to acquire: a name and options. Nothing is sent, and nothing is checked, before it is acquired. */
public class Lock internal constructor(
    client: Client,
    /** The name of the lock. */
    public val name: String,
    way: WantedWay,
    options: WantedOptions,
    count: Int = 0,
    capacity: Int = 0,
) : Acquirable<Guard>(client) {
    override val wanted: Wanted = Wanted(listOf(name), false, way, count.toLong(), capacity.toLong(), options)

    override fun held(place: Place): Guard = Guard(place, name)

    override fun toString(): String = "Lock($name)"
}

/** A lock that many may read or one may write. Readers and writers share one queue. */
public class RwLock internal constructor(
    private val client: Client,
    /** The name that readers and writers share. */
    public val name: String,
    private val options: WantedOptions,
) {
    /** The lock beside other readers. */
    public fun read(): Lock = Lock(client, name, WantedWay.READ, options)

    /** The lock alone. */
    public fun write(): Lock = Lock(client, name, WantedWay.WRITE, options)
}

/** A lock with a number of permits. */
public class Semaphore internal constructor(
    private val client: Client,
    /** The name of the semaphore. */
    public val name: String,
    private val capacity: Int,
    private val options: WantedOptions,
) {
    /** Some of the permits, as one lease: 1 to the capacity, all or none. */
    public fun permits(count: Int): Lock = Lock(client, name, WantedWay.PERMITS, options, count, capacity)
}

/** Several locks, of which all are acquired or none. */
public class LockAll internal constructor(
    client: Client,
    /** The names of the locks. */
    public val names: List<String>,
    options: WantedOptions,
) : Acquirable<GuardSet>(client) {
    override val wanted: Wanted = Wanted(names, true, WantedWay.MUTEX, 0, 0, options)

    override fun held(place: Place): GuardSet = GuardSet(place)

    override fun toString(): String = "LockAll($names)"
}

