import Foundation
import PolylatchNative

/// What went wrong.
///
/// `code` is stable and the same in every language, such as `wait_timeout` or `lease_lost`; `retry` is `never`,
/// `caller_decides`, `after_backoff` or `acquire_anew`; `effect` is `maybe` if the request may have been carried out,
/// else `none`; `hint` says what to do about errors of this code.
public struct PolylatchError: Error, Equatable, CustomStringConvertible {
    /// The stable code, such as `wait_timeout`.
    public let code: String
    /// Whether another try may help.
    public let retry: String
    /// Whether the request may have changed the store.
    public let effect: String
    /// What to do about errors of this code.
    public let hint: String
    /// The sentence to read.
    public let description: String
    /// Why a lease was lost, such as `expired`; only with `lease_lost`.
    public let reason: String?
    /// Where it happened; what is not known is nil.
    public let backend: String?
    /// What was asked of the store, such as `acquire`.
    public let operation: String?
    /// The name of the lock.
    public let lock: String?
    /// Which try failed.
    public let attempt: Int64?
    /// How long the call took until it failed.
    public let elapsed: Duration?
    /// What an earlier run that failed has stored; only with `failed`.
    public let answer: Data?

    init(_ fault: Fault, answer: Data? = nil) {
        code = fault.code
        retry = fault.again
        effect = fault.effect
        hint = fault.hint
        description = fault.text
        reason = fault.lostReason
        backend = fault.backend
        operation = fault.operation
        lock = fault.lock
        attempt = fault.attempt
        elapsed = fault.elapsed.map { .seconds($0) }
        self.answer = answer
    }
}

/// Makes this library's errors of what the native half says.
func told<T>(_ call: () async throws -> T) async throws -> T {
    do {
        return try await call()
    } catch NativeError.Failed(let fault) {
        throw PolylatchError(fault)
    }
}

func told<T>(_ call: () throws -> T) throws -> T {
    do {
        return try call()
    } catch NativeError.Failed(let fault) {
        throw PolylatchError(fault)
    }
}
