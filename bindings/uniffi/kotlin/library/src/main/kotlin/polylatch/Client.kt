package polylatch

import com.sun.jna.Native
import kotlinx.coroutines.CoroutineScope
import polylatch.ffi.ConnectWith
import polylatch.ffi.Direct
import polylatch.ffi.Look
import polylatch.ffi.NativeClient
import polylatch.ffi.OptionEntry
import polylatch.ffi.OptionWord
import polylatch.ffi.WantedOptions
import polylatch.ffi.WantedWay
import polylatch.ffi.uniffiCallbackInterfaceLossListener
import polylatch.ffi.uniffiRustFutureContinuationCallbackImpl
import kotlin.time.Duration
import kotlin.time.DurationUnit
import kotlin.time.toKotlinDuration

/** What a break did: whether the lease was ended, and which client holds the lock now. */
public typealias BreakResult = polylatch.ffi.BreakResult
/** What a store, as configured, can do. */
public typealias Capability = polylatch.ffi.Capability
/** A client as the store knows it: program, host, process, and when it was last heard. */
public typealias ClientView = polylatch.ffi.ClientView
/** A distribution of times: how many, their sum in seconds, and counts below bounds. */
public typealias Histogram = polylatch.ffi.Histogram
/** A holder as the store knows it: client, fencing token, label, and when its lease ends. */
public typealias HolderView = polylatch.ffi.HolderView
/** An event of a client: its name, its level, a line for display, and fields that depend on the event. */
public typealias LockEvent = polylatch.ffi.LockEvent
/** A lock in a snapshot: its kind, its holders, and its waiters in the order of the queue. */
public typealias LockView = polylatch.ffi.LockView
/** What a store knew at one instant: locks, clients and the latest breaks. */
public typealias Snapshot = polylatch.ffi.Snapshot
/** The numbers of a client since it was made. */
public typealias Stats = polylatch.ffi.Stats
/** A waiter as the store knows it: client, position, label, and its latest heartbeat. */
public typealias WaiterView = polylatch.ffi.WaiterView

/**
 * One client of one store of locks; one per process is enough. Everything may be called from any thread
 * and any coroutine.
 *
 * Leases are renewed by a native thread, whatever the virtual machine does meanwhile.
 */
public class Client internal constructor(internal val native: NativeClient, private val listening: Listening?) {
    public companion object {
        /**
         * Connects to the store at [url], such as `redis://localhost` or `sqlite:locks.db`; without one, to
         * what `POLYLATCH_URL` says, or else to an embedded file.
         *
         * [program] is the name that people see beside held locks. [options] are those of the URL: texts,
         * numbers, Booleans and durations. The store is asked once, so a wrong password is an error here.
         *
         * [onEvent] is called with the events of this client, beginning with the warnings of connecting; see
         * [LockEvent]. The option `level` says from which level on: `error`, `warn`, `info` (the default) or `debug`,
         * which adds what comes with every lock. An event below the level costs nothing. [onEvent] is called on a thread of its own, in the order of the events, so it may block and holds up no
         * lock. What it throws goes to that thread's handler of uncaught exceptions, and the next event comes all the
         * same. It is not called any more once [close] has returned.
         *
         * Throws [InvalidConfigException], [BackendUnavailableException], [BackendRejectedException],
         * [NameConflictException].
         */
        public suspend fun connect(
            url: String? = null,
            program: String? = null,
            options: Map<String, Any> = emptyMap(),
            onEvent: ((LockEvent) -> Unit)? = null,
        ): Client = open("kotlin", url, program, options, onEvent)

        internal suspend fun open(
            language: String,
            url: String?,
            program: String?,
            options: Map<String, Any>,
            onEvent: ((LockEvent) -> Unit)?,
        ): Client {
            CallbackThread
            val native = NativeClient()
            val listening = onEvent?.let { Listening(native.events(), it) }
            var connected = false
            try {
                val entries = options.map { (key, value) -> OptionEntry(key, word(key, value)) }
                dispatched { native.connect(ConnectWith(url, program, language, entries)) }
                connected = true
                listening?.begin()
                return Client(native, listening)
            } finally {
                if (!connected) native.destroy()
            }
        }
    }

    /** The id of this client in the store. */
    public val id: String get() = told { native.id() }

    /** The store's URL without its secrets. */
    public val url: String get() = told { native.url() }

    /** What this client has done since it was made, in numbers. Costs no request. */
    public val stats: Stats get() = told { native.stats() }

    /**
     * The same as text that Prometheus reads, with these labels on every line; the label `backend` is there already.
     *
     * Throws [InvalidArgumentException] for a label that Prometheus does not accept.
     */
    public fun prometheus(labels: Map<String, String> = emptyMap()): String = told { native.prometheus(labels) }

    /** What this store, as configured, can do. */
    public val capability: Capability get() = told { native.capability() }

    /**
     * Names a lock, with how it is to be acquired. Nothing is sent before it is.
     *
     * [lease]: how long the lease lasts unless renewed, 100 ms to a day. Shorter: a dead holder is noticed
     * sooner. Longer: a slow network or a pause does not lose the lock. [wait]: how long to wait for a lock
     * that another client holds; without it, as long as it takes. [label]: a description shown to operators;
     * no secrets. [owner]: an acquisition with the same id in this client while it is held enters at once.
     * [maxHold]: never hold it for longer. [beatEvery]: renew only while [Held.beat] is called at least this
     * often. [fifo]: false may take a free lock although other clients are queued. [renew]: false lets the lease
     * end after its full length. [keepIdle]: after a release the client keeps the lease for the next caller, for at
     * most this long, 100 ms to a day, and acquiring it again costs no request; another client that asks for the lock
     * has it released. A process that stops while it keeps a lease blocks the lock until the lease ends. On memory and
     * Redis stores.
     */
    public fun lock(
        name: String,
        lease: Duration? = null,
        wait: Duration? = null,
        label: String? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        beatEvery: Duration? = null,
        fifo: Boolean? = null,
        renew: Boolean? = null,
        keepIdle: Duration? = null,
    ): Lock = Lock(
        this, name, WantedWay.MUTEX, wantedOptions(lease, wait, label, owner, maxHold, beatEvery, fifo, renew, keepIdle),
    )

    /** Names a lock that many may read or one may write; the options are those of [lock] without `keepIdle`. */
    public fun rwLock(
        name: String,
        lease: Duration? = null,
        wait: Duration? = null,
        label: String? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        beatEvery: Duration? = null,
        fifo: Boolean? = null,
        renew: Boolean? = null,
    ): RwLock = RwLock(this, name, wantedOptions(lease, wait, label, owner, maxHold, beatEvery, fifo, renew))

    /** Names a lock with this many [permits], 1 to 1000; the other options are those of [lock] without `keepIdle`. */
    public fun semaphore(
        name: String,
        permits: Int,
        lease: Duration? = null,
        wait: Duration? = null,
        label: String? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        beatEvery: Duration? = null,
        fifo: Boolean? = null,
        renew: Boolean? = null,
    ): Semaphore = Semaphore(this, name, permits, wantedOptions(lease, wait, label, owner, maxHold, beatEvery, fifo, renew))

    /**
     * Names several locks that are had all together or not at all. [wait] is for all of them together; the
     * other options are those of [lock] without `keepIdle`, for each.
     */
    public fun lockAll(
        names: Collection<String>,
        lease: Duration? = null,
        wait: Duration? = null,
        label: String? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        beatEvery: Duration? = null,
        fifo: Boolean? = null,
        renew: Boolean? = null,
    ): LockAll = LockAll(this, names.toList(), wantedOptions(lease, wait, label, owner, maxHold, beatEvery, fifo, renew))

    /** Runs [block] while it holds the lock: short for [lock] and [Lock.withLease]. */
    public suspend fun <T> withLock(
        name: String,
        lease: Duration? = null,
        wait: Duration? = null,
        label: String? = null,
        block: suspend CoroutineScope.(Guard) -> T,
    ): T = lock(name, lease, wait, label).withLease(block)

    /**
     * Names a scope of idempotent work: each of its keys is worked for once, and every repetition gets the stored answer.
     * Nothing is sent before the first call.
     *
     * [scope] names the operation and the caller it is done for, such as `orders/customer-7`. Take the caller's identity
     * from its credentials, never from its request: two callers that share a scope get each other's answers for the same key.
     */
    public fun idempotency(scope: String): Idempotency = Idempotency(this, scope)

    /**
     * Reads who holds and who waits. Changes nothing in the store.
     *
     * [name]: only this lock, also if it is free. [prefix]: only locks whose name starts so. [limit]: at
     * most so many. What a store cannot say is null.
     */
    public suspend fun inspect(name: String? = null, prefix: String? = null, limit: Int? = null): Snapshot =
        dispatched { native.inspectLocks(Look(name, prefix, limit?.toLong())) }

    /**
     * Breaks a lease, if it still has this [fencingToken]; the outcome is `broken`, `free` or
     * `changed_hands`. [by] and [reason] are recorded in the store, for operators.
     */
    public suspend fun breakLease(name: String, fencingToken: Long, by: String, reason: String): BreakResult =
        dispatched { native.breakLease(name, fencingToken, by, reason) }

    /**
     * Ends waiting, releases what is held, and waits (at most 5 s) until the store knows, then (at most 5 s) until
     * the listener has had all events; goes on to its end also in a cancelled coroutine. Repeatable. Later
     * acquisitions throw [CanceledException].
     */
    public suspend fun close(): Unit = finishing {
        native.shutDown()
        listening?.finish()
    }

    /** Runs [block] and closes the client. */
    public suspend fun <T> use(block: suspend (Client) -> T): T = try {
        block(this)
    } finally {
        close()
    }
}

/** The threads on which the generated half is called. */
private object CallbackThread {
    init {
        val staying = Direct.stayingAttached()
        listOf(
            uniffiRustFutureContinuationCallbackImpl,
            uniffiCallbackInterfaceLossListener.lost,
            uniffiCallbackInterfaceLossListener.uniffiFree,
            uniffiCallbackInterfaceLossListener.uniffiClone,
        ).forEach { Native.setCallbackThreadInitializer(it, staying) }
    }
}

internal fun wantedOptions(
    lease: Duration?,
    wait: Duration?,
    label: String?,
    owner: String?,
    maxHold: Duration?,
    beatEvery: Duration?,
    fifo: Boolean?,
    renew: Boolean?,
    keepIdle: Duration? = null,
) = WantedOptions(
    lease?.secs(), wait?.secs(), label, owner, maxHold?.secs(), beatEvery?.secs(), fifo, renew, keepIdle?.secs(),
)

internal fun Duration.secs(): Double = toDouble(DurationUnit.SECONDS)

private fun word(key: String, value: Any): OptionWord = when (value) {
    is String -> OptionWord.Text(value)
    is Boolean -> OptionWord.Flag(value)
    is Number -> OptionWord.Number(value.toDouble())
    is Duration -> OptionWord.Seconds(value.secs())
    is java.time.Duration -> OptionWord.Seconds(value.toKotlinDuration().secs())
    else -> throw IllegalArgumentException(
        "the option $key is a ${value.javaClass.name}; it must be a String, a Number, a Boolean or a Duration",
    )
}
