package polylatch

import polylatch.ffi.Fault
import polylatch.ffi.NativeException
import polylatch.ffi.InternalException as NativePanic
import java.nio.charset.CharacterCodingException
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

/** Where an error happened. Unknown parts are null. */
public data class ErrorContext(
    /** The store, such as `redis`. */
    val backend: String?,
    /** What was asked of it, such as `acquire`. */
    val operation: String?,
    /** The name of the lock. */
    val lock: String?,
    /** Which try failed. */
    val attempt: Int?,
    /** How long the call took until it failed. */
    val elapsed: Duration?,
)

/**
 * The parent of every error of this library.
 *
 * [code] is stable and the same in every language; [retry] is `never`, `caller_decides`, `after_backoff` or
 * `acquire_anew`; [effect] is `maybe` if the request may have been carried out, else `none`; [hint] says
 * what to do about errors of this code.
 */
public open class PolylatchException internal constructor(fault: Fault) : RuntimeException(fault.text) {
    /** The stable code, such as `wait_timeout`. */
    public val code: String = fault.code
    /** Whether another try may help. */
    public val retry: String = fault.again
    /** Whether the request may have changed the store. */
    public val effect: String = fault.effect
    /** What to do about errors of this code. */
    public val hint: String = fault.hint
    /** Where it happened. */
    public val context: ErrorContext = ErrorContext(
        fault.backend,
        fault.operation,
        fault.lock,
        fault.attempt?.toInt(),
        fault.elapsed?.seconds,
    )
}

/** A caller's mistake in a URL or an option of the client; nothing was sent. */
public class InvalidConfigException internal constructor(fault: Fault) : PolylatchException(fault)

/** A caller's mistake in an argument; nothing was sent. */
public class InvalidArgumentException internal constructor(fault: Fault) : PolylatchException(fault)

/** The store cannot do this. */
public class UnsupportedException internal constructor(fault: Fault) : PolylatchException(fault)

/** Another client held the lock for as long as the call waited. */
public class WaitTimeoutException internal constructor(fault: Fault) : PolylatchException(fault)

/** The wait was ended on purpose, such as by closing the client. A cancelled coroutine gets Kotlin's own exception. */
public class CanceledException internal constructor(fault: Fault) : PolylatchException(fault)

/** The lease ended without a release; [reason] says why, such as `expired`. */
public class LeaseLostException internal constructor(fault: Fault) : PolylatchException(fault) {
    /** Why, such as `expired` or `broken`. */
    public val reason: String? = fault.lostReason
}

/** A newer holder has written. */
public class StaleTokenException internal constructor(fault: Fault) : PolylatchException(fault)

/** The name holds something that is not such a lock. */
public class NameConflictException internal constructor(fault: Fault) : PolylatchException(fault)

/** Too many stores failed for a majority. */
public class QuorumUnreachableException internal constructor(fault: Fault) : PolylatchException(fault)

/** The store did not answer. */
public class BackendUnavailableException internal constructor(fault: Fault) : PolylatchException(fault)

/** The store refused: authentication, permission or setup. */
public class BackendRejectedException internal constructor(fault: Fault) : PolylatchException(fault)

/** Another run of the same key is under way, and the caller does not wait for it, or no longer. */
public class InProgressException internal constructor(fault: Fault) : PolylatchException(fault)

/** The key belongs to another payload. Nothing was done. */
public class PayloadMismatchException internal constructor(fault: Fault) : PolylatchException(fault)

/** The work is done, and its result is larger than 1 MiB, so it is not stored. It is not repeated. */
public class ResultTooLargeException internal constructor(fault: Fault) : PolylatchException(fault)

/** The work is done, and what came of it is not stored: another run may do it again, or has. */
public class NotRecordedException internal constructor(fault: Fault) : PolylatchException(fault)

/**
 * The work of a key has failed. Work may throw it to choose what repetitions get ([answer]) and what becomes of the key
 * ([onFailure]). A repetition of a stored failure throws it with that answer, and is [replayed].
 */
public class WorkFailedException private constructor(
    fault: Fault,
    /** What repetitions get. */
    public val answer: ByteArray,
    /** What becomes of the key, if the work has chosen. */
    public val onFailure: OnFailure?,
    /** Whether an earlier run failed; this one did not do the work. */
    public val replayed: Boolean,
) : PolylatchException(fault) {
    /** For work that fails with an answer: what repetitions get, and what becomes of the key. */
    @JvmOverloads
    public constructor(
        message: String,
        answer: ByteArray = message.encodeToByteArray(),
        onFailure: OnFailure? = null,
    ) : this(ownFault("failed", message, "maybe"), answer, onFailure, false)

    internal constructor(fault: Fault, answer: ByteArray) : this(fault, answer, null, true)
}

/** A bug in this library. */
public class InternalException internal constructor(fault: Fault) : PolylatchException(fault)

/** The exception of a code; one that is unknown here becomes the base. */
internal fun exceptionOf(fault: Fault): PolylatchException = when (fault.code) {
    "invalid_config" -> InvalidConfigException(fault)
    "invalid_argument" -> InvalidArgumentException(fault)
    "unsupported" -> UnsupportedException(fault)
    "wait_timeout" -> WaitTimeoutException(fault)
    "canceled" -> CanceledException(fault)
    "lease_lost" -> LeaseLostException(fault)
    "stale_token" -> StaleTokenException(fault)
    "name_conflict" -> NameConflictException(fault)
    "quorum_unreachable" -> QuorumUnreachableException(fault)
    "backend_unavailable" -> BackendUnavailableException(fault)
    "backend_rejected" -> BackendRejectedException(fault)
    "in_progress" -> InProgressException(fault)
    "payload_mismatch" -> PayloadMismatchException(fault)
    "failed" -> WorkFailedException(fault, ByteArray(0))
    "result_too_large" -> ResultTooLargeException(fault)
    "not_recorded" -> NotRecordedException(fault)
    "internal" -> InternalException(fault)
    else -> PolylatchException(fault)
}

/** Makes this library's exceptions of what the native half says. */
internal inline fun <T> told(call: () -> T): T = try {
    call()
} catch (error: NativeException.Failed) {
    throw exceptionOf(error.fault)
} catch (error: NativePanic) {
    throw exceptionOf(ownFault("internal", "Polylatch failed: ${error.message}; please report it", "maybe"))
} catch (error: CharacterCodingException) {
    throw exceptionOf(ownFault("invalid_argument", "a text is not Unicode: it has half of a surrogate pair", "none"))
}

internal fun ownFault(code: String, text: String, effect: String): Fault = Fault(
    code, "never", effect, null, text, text, null, null, null, null, null,
)
