package polylatch

import polylatch.ffi.Direct
import polylatch.ffi.NativeGate
import polylatch.ffi.Operation
import polylatch.ffi.Place
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

/**
 * What is held: proof of a lease, and the means to release it.
 *
 * It is renewed in the background until it is released or lost. A loss is reported by this process's own clock,
 * with or without an answer from the store. One that is forgotten is released when it is collected.
 */
public abstract class Held internal constructor(internal val place: Place) {
    /** Whether it is still held, by the clock, now. Costs no request. */
    public val isHeld: Boolean get() = place.ask(Direct::polylatch_uniffi_is_held) == 1.toByte()

    /** For how long it may be relied on from now; zero once it is over. */
    public val remaining: Duration get() = place.slot.remaining().seconds

    /** Throws [LeaseLostException] unless it is still held, by the clock, now. Costs no request. */
    public fun check() {
        if (!isHeld) told { place.slot.check() }
    }

    /** Says that the protected work moves on; matters only with `beatEvery`. */
    public fun beat(): Unit = told { place.slot.beat() }

    /**
     * Calls [listener] with the reason when it is lost, on a thread of its own; never after a release. What
     * the listener refers to is kept until then.
     */
    public fun onLost(listener: (reason: String) -> Unit): Unit = told { place.ask { Direct.onLost(it, listener) } }

    /**
     * Releases it and waits until the store has confirmed it, also in a cancelled coroutine. Repeatable.
     *
     * Throws [LeaseLostException] if it was over before; [BackendUnavailableException] if the store did not
     * answer in time, and then the background goes on trying until the lease has ended.
     */
    public suspend fun release() {
        finishing { Direct.call(place.number, Operation.RELEASE) }
    }
}

/** A held lock. */
public class Guard internal constructor(
    place: Place,
    /** The lock's name. */
    public val name: String,
) : Held(place) {

    /** The number to hand to the protected resource: larger than any given out before for this name. */
    public val fencingToken: Long get() = place.ask(Direct::polylatch_uniffi_token)

    /** How far the order of fencing tokens can be relied on: `strict`, `time-floored` or `none`. */
    public val fenceQuality: String get() = told { place.slot.fenceQuality() }

    /** Name, holder and fencing token as one printable value. */
    public val sequencer: String get() = told { place.slot.sequencer() }

    /** Until when it may be relied on, on the clock that goes on while the machine sleeps. */
    public val validUntil: Duration get() = told { place.slot.validUntil() }.seconds

    /** In which way it is held: `mutex`, `read`, `write` or `permits`. */
    public val mode: String get() = told { place.slot.mode() }

    /** How often it was renewed. */
    public val renewals: Long get() = told { place.slot.renewals() }

    /**
     * Gives the lease another length; later renewals use it too. The store is asked at once. Returns until when
     * it may be relied on, as [validUntil].
     *
     * A shorter length takes nothing back: a deadline that lies further away stays. `maxHold` and `beatEvery`
     * limit the lease as before. Without renewal, extend again before it ends.
     *
     * Throws [LeaseLostException]; [InvalidArgumentException] for a length out of range and after a release;
     * [UnsupportedException] where a lease keeps its length (Consul); [BackendUnavailableException] if the store
     * did not confirm it in time, and then the guard keeps its deadline and its length.
     */
    public suspend fun extend(lease: Duration): Duration = finishing { place.slot.extend(lease.secs()) }.seconds

    /** Atomically downgrades a write lock to a read lock. */
    public suspend fun downgrade(): Unit = finishing { place.slot.downgrade() }

    /**
     * Upgrades a read lock to a write lock if there is no other reader, under a newer fencing token.
     * Returns whether it did; if not, it still reads. There is no form that waits: two readers would wait
     * for each other for ever.
     */
    public suspend fun tryUpgrade(): Boolean = finishing { place.slot.tryUpgrade() }

    override fun toString(): String = "Guard($name, token $fencingToken, ${if (isHeld) "held" else "not held"})"
}

/** Several held locks. */
public class GuardSet internal constructor(place: Place) : Held(place) {
    /** The fencing token of each lock, by name. */
    public val fencingTokens: Map<String, Long> = place.slot.names().zip(place.slot.fencingTokens()).toMap()

    override fun toString(): String = "GuardSet($fencingTokens, ${if (isHeld) "held" else "not held"})"
}

/**
 * The gate that a protected resource puts fencing tokens through: it refuses holders from before. [largest]
 * is the largest token that came before, if it was kept.
 */
public class TokenGate(largest: Long? = null) {
    private val native = told { NativeGate(largest) }

    /** The largest token that came. */
    public val largest: Long? get() = native.largest()

    /** Throws [StaleTokenException] if a larger token came before. */
    public fun admit(token: Long): Unit = told { native.admit(token) }
}
