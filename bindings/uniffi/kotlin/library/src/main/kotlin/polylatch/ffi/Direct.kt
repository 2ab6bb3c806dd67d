package polylatch.ffi

import com.sun.jna.Callback
import com.sun.jna.CallbackThreadInitializer
import com.sun.jna.Native
import kotlinx.coroutines.CancellableContinuation
import kotlinx.coroutines.suspendCancellableCoroutine
import polylatch.told
import java.lang.ref.Reference
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import kotlin.coroutines.resume

/** Gets the number of a call that goes on when it is polled, or of a slot that has lost a lease. */
internal fun interface Numbered : Callback {
    fun callback(number: Long)
}

/** What a slot is to do. */
internal enum class Operation(val code: Byte) { ACQUIRE(0), TRY(1), RELEASE(2) }

/** What is called most, mapped directly: a call of the generated half costs some tens of microseconds. */
internal object Direct {
    private const val PENDING: Byte = -1
    private const val YES: Byte = 1
    private const val FAILED: Byte = 2

    private val calls = AtomicLong()
    private val waiting = ConcurrentHashMap<Long, CancellableContinuation<Byte>>()

    private val listeners = ConcurrentHashMap<Long, List<(String) -> Unit>>()

    // Kept here: the native half calls them as long as the process lives.
    private val woken = Numbered { call -> waiting.remove(call)?.resume(PENDING) }
    private val lost = Numbered(::tellOfLoss)

    init {
        // As the generated half finds it.
        val library = System.getProperty("uniffi.component.polylatch_native.libraryOverride") ?: "polylatch_uniffi"
        Native.register(Direct::class.java, library)
        Native.setCallbackThreadInitializer(woken, stayingAttached())
        Native.setCallbackThreadInitializer(lost, stayingAttached())
        polylatch_uniffi_on_woken(woken)
        polylatch_uniffi_on_lost(lost)
    }

    /** Native threads that call stay attached as long as they live: attaching one again for every call is slow. */
    fun stayingAttached(): CallbackThreadInitializer = CallbackThreadInitializer(true, false, "polylatch-calls")

    /** Has the slot of this number do that; whether it did. A coroutine that is cancelled meanwhile ends the call. */
    suspend fun call(slot: Long, operation: Operation): Boolean {
        val call = calls.incrementAndGet()
        try {
            var outcome = polled(call) { polylatch_uniffi_begin(slot, operation.code, call) }
            while (outcome == PENDING) outcome = polled(call) { polylatch_uniffi_poll(call) }
            if (outcome == FAILED) fail(slot)
            if (operation == Operation.RELEASE) forget(slot)
            return outcome == YES
        } finally {
            waiting.remove(call)
            polylatch_uniffi_end(call)
        }
    }

    /** Calls the listener with the reason if the slot of this number loses a lease. */
    fun onLost(slot: Long, listener: (String) -> Unit) {
        listeners.merge(slot, listOf(listener)) { before, more -> before + more }
        if (polylatch_uniffi_follow(slot) != YES) {
            listeners.computeIfPresent(slot) { _, all -> (all - listener).ifEmpty { null } }
            fail(slot)
        }
    }

    private fun tellOfLoss(slot: Long) {
        val told = listeners.remove(slot) ?: return
        val reason = slotOf(slot.toULong()).use { it.lostReason() } ?: return
        for (listener in told) {
            try {
                listener(reason)
            } catch (error: Throwable) {
                val thread = Thread.currentThread()
                thread.uncaughtExceptionHandler.uncaughtException(thread, error)
            }
        }
    }

    /** Forgets who listens: there is no lease any more that could be lost. */
    fun forget(slot: Long) {
        listeners.remove(slot)
    }

    private fun fail(slot: Long) = slotOf(slot.toULong()).use { it.failure() }

    /** Polls the call, and suspends unless it is over: until it is woken. */
    private suspend inline fun polled(call: Long, crossinline poll: () -> Byte): Byte =
        suspendCancellableCoroutine { continuation ->
            // Before the call is polled: it may be woken at once. Then what this poll returns is what the next one returns as well.
            waiting[call] = continuation
            val outcome = poll()
            if (outcome != PENDING) waiting.remove(call)?.resume(outcome)
        }

    /** 1 if what the slot of this number holds is still held. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_is_held(slot: Long): Byte

    /** The fencing token of what the slot of this number holds. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_token(slot: Long): Long

    /** Makes a slot for the prepared lock of this number. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_slot(lock: Long): Long

    /** Ends what the slot has under way, releases what it holds, and forgets it. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_drop_slot(slot: Long)

    /** Forgets a prepared lock. */
    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    external fun polylatch_uniffi_drop_lock(lock: Long)

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_begin(slot: Long, operation: Byte, call: Long): Byte

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_poll(call: Long): Byte

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_end(call: Long)

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_on_woken(woken: Numbered)

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_on_lost(lost: Numbered)

    @JvmStatic
    @Suppress("ktlint:standard:function-naming", "FunctionName")
    private external fun polylatch_uniffi_follow(slot: Long): Byte
}

/** What the native half knows by a number, until it is dropped: when it is collected at the latest. */
internal abstract class Known(val number: Long, drop: Runnable) {
    private val cleanable = UniffiLib.CLEANER.register(this, drop)

    /** Asks about the number, which is not dropped meanwhile. */
    inline fun <T> ask(question: (Long) -> T): T = try {
        question(number)
    } finally {
        Reference.reachabilityFence(this)
    }

    fun drop(): Unit = cleanable.clean()
}

/** A lock whose options were checked. */
internal class Prepared(number: Long) : Known(number, Runnable { Direct.polylatch_uniffi_drop_lock(number) })

/**
 * The place of one acquisition and of what it holds. To drop it ends what is under way, and releases in the background what it
 * holds or still gets.
 */
internal class Place private constructor(number: Long) :
    Known(
        number,
        Runnable {
            Direct.forget(number)
            Direct.polylatch_uniffi_drop_slot(number)
        },
    ) {
    constructor(lock: Prepared) : this(lock.ask(Direct::polylatch_uniffi_slot))

    /** What is asked less often goes by the generated half. */
    val slot: Slot by lazy(LazyThreadSafetyMode.PUBLICATION) { told { slotOf(number.toULong()) } }
}
