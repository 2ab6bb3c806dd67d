// Distributed locks whose holder always knows, conservatively, whether it still holds them.
//
// Written against the generated code and not compiled by this project's tests: see README.md.

import Foundation
import PolylatchNative

/// What went wrong. `code` is stable and the same in every language.
public struct PolylatchError: Error, CustomStringConvertible {
    public let code: String
    public let retry: String
    public let effect: String
    /// Why a lease was lost, such as `expired`; only with `lease_lost`.
    public let reason: String?
    public let hint: String
    public let description: String

    init(_ fault: Fault) {
        code = fault.code
        retry = fault.again
        effect = fault.effect
        reason = fault.lostReason
        hint = fault.hint
        description = fault.text
    }
}

private func told<T>(_ call: () async throws -> T) async throws -> T {
    do {
        return try await call()
    } catch NativeError.Failed(let fault) {
        throw PolylatchError(fault)
    }
}

private func told<T>(_ call: () throws -> T) throws -> T {
    do {
        return try call()
    } catch NativeError.Failed(let fault) {
        throw PolylatchError(fault)
    }
}

private func seconds(_ length: Duration?) -> Double? {
    length.map { Double($0.components.seconds) + Double($0.components.attoseconds) / 1e18 }
}

/// One client of one store; one per process is enough.
public final class Client: Sendable {
    let native: NativeClient

    private init(_ native: NativeClient) {
        self.native = native
    }

    /// Connects; without a URL, to what `POLYLATCH_URL` says, or else to an embedded file.
    public static func connect(url: String? = nil, program: String? = nil) async throws -> Client {
        let native = NativeClient()
        let with = ConnectWith(url: url, program: program, language: "swift", options: [])
        try await told { try await native.connect(with: with) }
        return Client(native)
    }

    /// Names a lock. Nothing is sent before it is acquired.
    public func lock(
        _ name: String, lease: Duration? = nil, wait: Duration? = nil, label: String? = nil, owner: String? = nil,
        maxHold: Duration? = nil, beatEvery: Duration? = nil, fifo: Bool? = nil, renew: Bool? = nil
    ) -> Lock {
        let options = WantedOptions(
            lease: seconds(lease), wait: seconds(wait), label: label, owner: owner, maxHold: seconds(maxHold),
            beatEvery: seconds(beatEvery), fifo: fifo, renew: renew
        )
        return Lock(client: self, wanted: Wanted(
            names: [name], together: false, way: .mutex, count: 0, capacity: 0, options: options
        ))
    }

    /// Reads who holds and who waits.
    public func inspect(name: String? = nil, prefix: String? = nil, limit: Int64? = nil) async throws -> Snapshot {
        try await told { try await native.inspectLocks(look: Look(name: name, prefix: prefix, limit: limit)) }
    }

    /// Ends waiting, releases what is held, and waits (at most 5 s) until the store knows. Repeatable.
    public func close() async throws {
        try await told { try await native.shutDown() }
    }
}

/// A lock to acquire.
public struct Lock: Sendable {
    let client: Client
    let wanted: Wanted

    /// Acquires it, waiting as long as the options say. A cancelled task leaves nothing behind.
    public func acquire() async throws -> Guard {
        let slot = try told { try client.native.slot(wanted: wanted) }
        do {
            // The generated code does not hear of a task's cancellation, so it is told here.
            try await withTaskCancellationHandler {
                try await told { try await slot.acquire() }
            } onCancel: {
                slot.cancel()
            }
            try Task.checkCancellation()
            return Guard(slot)
        } catch {
            slot.abandon()
            try Task.checkCancellation()
            throw error
        }
    }

    /// Acquires it if it can be had at once; nil if somebody else holds it or stands before.
    public func tryAcquire() async throws -> Guard? {
        let slot = try told { try client.native.slot(wanted: wanted) }
        do {
            return try await told { try await slot.tryAcquire() } ? Guard(slot) : nil
        } catch {
            slot.abandon()
            throw error
        }
    }

    /// Runs `body` while it is held, and gives it back. When the lease is lost, the task of `body` is cancelled,
    /// and this throws `lease_lost`.
    public func withLease<T: Sendable>(_ body: @escaping @Sendable (Guard) async throws -> T) async throws -> T {
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
            work.cancel()
            let lost = Result { try held.check() }
            try? await held.release()
            if case .failure(let loss as PolylatchError) = lost, loss.code == "lease_lost" { throw loss }
            throw error
        }
        try await held.release()
        return result
    }
}

/// A held lock: proof of a lease, and the way to give it back. One that is forgotten is released.
public final class Guard: Sendable {
    private let slot: Slot

    init(_ slot: Slot) {
        self.slot = slot
    }

    public var name: String { slot.names().first ?? "" }

    /// The number to hand to the protected resource: larger than any given out before for this name.
    public var fencingToken: Int64 { slot.fencingTokens().first ?? 0 }

    public var isHeld: Bool { slot.isHeld() }

    /// For how long it may be relied on from now.
    public var remaining: Duration { .seconds(slot.remaining()) }

    /// Throws `lease_lost` unless it is still held, by the clock, now.
    public func check() throws {
        try told { try slot.check() }
    }

    /// Calls `listener` with the reason when it is lost; never after a release.
    public func onLost(_ listener: @escaping @Sendable (String) -> Void) throws {
        try told { try slot.onLost(listener: Listener(listener)) }
    }

    /// Gives it back and waits until the store knows. Repeatable.
    public func release() async throws {
        try await told { try await slot.release() }
    }
}

private final class Listener: LossListener {
    private let listener: @Sendable (String) -> Void

    init(_ listener: @escaping @Sendable (String) -> Void) {
        self.listener = listener
    }

    func lost(reason: String) throws {
        listener(reason)
    }
}
