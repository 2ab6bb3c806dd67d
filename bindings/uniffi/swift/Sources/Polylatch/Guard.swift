import PolylatchNative

/// What is held: proof of a lease, and the means to release it.
///
/// It is renewed in the background until it is released or lost. A loss is reported by this process's own clock, with or
/// without an answer from the store. One that is forgotten is released.
// Unchecked, because a class that others inherit from cannot be checked: it has nothing but a slot, which is `Sendable`.
public class Held: @unchecked Sendable {
    let slot: Slot

    init(_ slot: Slot) {
        self.slot = slot
    }

    deinit {
        slot.abandon()
    }

    /// Whether it is still held, by the clock, now. Costs no request.
    public var isHeld: Bool { slot.isHeld() }

    /// For how long it may be relied on from now; zero once it is over.
    public var remaining: Duration { .seconds(slot.remaining()) }

    /// Throws `lease_lost` unless it is still held, by the clock, now. Costs no request.
    public func check() throws {
        try told { try slot.check() }
    }

    /// Says that the protected work moves on; matters only with `beatEvery`.
    public func beat() throws {
        try told { try slot.beat() }
    }

    /// Calls `listener` with the reason when it is lost, on a thread of its own; never after a release.
    public func onLost(_ listener: @escaping @Sendable (String) -> Void) throws {
        try told { try slot.onLost(listener: Listener(listener)) }
    }

    /// Releases it and waits until the store has confirmed it, also in a cancelled task. Repeatable.
    ///
    /// Throws `lease_lost` if it was over before; `backend_unavailable` if the store did not answer in time, and then
    /// the background goes on trying until the lease has ended.
    public func release() async throws {
        try await told { try await slot.release() }
    }
}

/// A held lock.
public final class Guard: Held, @unchecked Sendable {
    /// The lock's name.
    public var name: String { slot.names()[0] }

    /// The number to hand to the protected resource: larger than any given out before for this name.
    public var fencingToken: Int64 { slot.fencingTokens()[0] }

    /// How far the order of fencing tokens can be relied on: `strict`, `time-floored` or `none`.
    public func fenceQuality() throws -> String { try told { try slot.fenceQuality() } }

    /// Name, holder and fencing token as one printable value.
    public func sequencer() throws -> String { try told { try slot.sequencer() } }

    /// Until when it may be relied on, on the clock that goes on while the machine sleeps.
    public func validUntil() throws -> Duration { .seconds(try told { try slot.validUntil() }) }

    /// In which way it is held: `mutex`, `read`, `write` or `permits`.
    public func mode() throws -> String { try told { try slot.mode() } }

    /// How often it was renewed.
    public func renewals() throws -> Int64 { try told { try slot.renewals() } }

    /// Gives the lease another length; later renewals use it too. The store is asked at once. Returns until when it
    /// may be relied on, as `validUntil`.
    ///
    /// A shorter length takes nothing back: a deadline that lies further away stays. `maxHold` and `beatEvery` limit
    /// the lease as before. Without renewal, extend again before it ends.
    ///
    /// Throws `lease_lost`; `invalid_argument` for a length out of range and after a release; `unsupported` where a
    /// lease keeps its length (Consul); `backend_unavailable` if the store did not confirm it in time, and then the
    /// guard keeps its deadline and its length.
    @discardableResult
    public func extend(_ lease: Duration) async throws -> Duration {
        .seconds(try await told { try await slot.extend(lease: seconds(lease)) })
    }

    /// Atomically downgrades a write lock to a read lock.
    public func downgrade() async throws {
        try await told { try await slot.downgrade() }
    }

    /// Upgrades a read lock to a write lock if there is no other reader, under a newer fencing token.
    /// Returns whether it did; if not, it still reads. There is no form that waits: two readers would wait
    /// for each other for ever.
    public func tryUpgrade() async throws -> Bool {
        try await told { try await slot.tryUpgrade() }
    }
}

/// Several held locks.
public final class GuardSet: Held, @unchecked Sendable {
    /// The names of the locks, in the order in which they were had.
    public var names: [String] { slot.names() }

    /// The fencing token of each lock, by name.
    public var fencingTokens: [String: Int64] {
        Dictionary(zip(slot.names(), slot.fencingTokens())) { first, _ in first }
    }
}

/// The gate that a protected resource puts fencing tokens through: it refuses holders from before.
public final class TokenGate: Sendable {
    private let native: NativeGate

    /// `largest` is the largest token that came before, if it was kept.
    public init(largest: Int64? = nil) throws {
        native = try told { try NativeGate(largest: largest) }
    }

    /// The largest token that came.
    public var largest: Int64? { native.largest() }

    /// Throws `stale_token` if a larger token came before.
    public func admit(_ token: Int64) throws {
        try told { try native.admit(number: token) }
    }
}

final class Listener: LossListener {
    private let listener: @Sendable (String) -> Void

    init(_ listener: @escaping @Sendable (String) -> Void) {
        self.listener = listener
    }

    func lost(reason: String) throws {
        listener(reason)
    }
}
