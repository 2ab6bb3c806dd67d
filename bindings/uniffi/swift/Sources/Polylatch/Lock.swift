import PolylatchNative

/// A lock to acquire. Nothing is sent, and nothing is checked, before it is acquired.
public typealias Lock = Acquirable<Guard>

/// Several locks that are had all together or not at all.
public typealias LockAll = Acquirable<GuardSet>

/// A lock that many may read or one may write. Readers and writers share one queue.
public struct RwLock: Sendable {
    /// The lock beside other readers.
    public let read: Lock
    /// The lock alone.
    public let write: Lock
}

/// What can be acquired: ``Lock`` and ``LockAll``.
public struct Acquirable<H: Held>: Sendable {
    let client: Client
    let wanted: Wanted
    let made: @Sendable (Slot) -> H

    /// Acquires it, waiting as long as the options say.
    ///
    /// A task that is cancelled meanwhile gets `CancellationError` and leaves nothing behind: what the store may have
    /// granted is released in the background.
    ///
    /// Throws `wait_timeout` with who holds it; `invalid_argument` before anything is sent; `canceled` when the client
    /// is closed; `name_conflict`; `unsupported`; `backend_unavailable`; `backend_rejected`.
    public func acquire() async throws -> H {
        try await entered { slot in
            try await slot.acquire()
            return true
        }!
    }

    /// Acquires it if it is available at once; nil if another client holds it or is queued before.
    public func tryAcquire() async throws -> H? {
        try await entered { slot in try await slot.tryAcquire() }
    }

    /// Runs `body` while it is held, and releases it.
    ///
    /// When the lease is lost, the task of `body` is cancelled, and this throws `lease_lost`: also if the body has ended
    /// meanwhile. Code that does not suspend has to ask ``Held/check()``.
    public func withLease<T: Sendable>(_ body: @escaping @Sendable (H) async throws -> T) async throws -> T {
        let held = try await acquire()
        let work = Task { try await body(held) }
        let result: T
        do {
            try held.onLost { _ in work.cancel() }
            result = try await withTaskCancellationHandler {
                try await work.value
            } onCancel: {
                work.cancel()
            }
        } catch {
            let lost = Result { try held.check() }
            // What the body threw is not replaced by a failed release.
            try? await held.release()
            // If the caller was cancelled too, that is what it expects to hear.
            if !Task.isCancelled, case .failure(let loss) = lost { throw loss }
            throw error
        }
        try await held.release()
        return result
    }

    private func entered(_ enter: (Slot) async throws -> Bool) async throws -> H? {
        try Task.checkCancellation()
        let slot = try told { try client.native.slot(wanted: wanted) }
        do {
            // The generated code does not hear of a task's cancellation, so it is told here.
            let had = try await withTaskCancellationHandler {
                try await told { try await enter(slot) }
            } onCancel: {
                slot.cancel()
            }
            try Task.checkCancellation()
            return had ? made(slot) : nil
        } catch {
            slot.abandon()
            try Task.checkCancellation()
            throw error
        }
    }
}
