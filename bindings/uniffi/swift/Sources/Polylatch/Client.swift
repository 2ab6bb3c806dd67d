import PolylatchNative

/// What a break did: whether the lease was ended, and which client holds the lock now.
public typealias BreakResult = PolylatchNative.BreakResult
/// What a store, as configured, can do.
public typealias Capability = PolylatchNative.Capability
/// A client as the store knows it: program, host, process, and when it was last heard.
public typealias ClientView = PolylatchNative.ClientView
/// A distribution of times: how many, their sum in seconds, and counts below bounds.
public typealias Histogram = PolylatchNative.Histogram
/// A holder as the store knows it: client, fencing token, label, and when its lease ends.
public typealias HolderView = PolylatchNative.HolderView
/// An event of a client: its name, its level, a line for display, and fields that depend on the event.
public typealias LockEvent = PolylatchNative.LockEvent
/// A lock in a snapshot: its kind, its holders, and its waiters in the order of the queue.
public typealias LockView = PolylatchNative.LockView
/// What a store knew at one instant: locks, clients and the latest breaks.
public typealias Snapshot = PolylatchNative.Snapshot
/// The numbers of a client since it was made.
public typealias Stats = PolylatchNative.Stats
/// A waiter as the store knows it: client, position, label, and its latest heartbeat.
public typealias WaiterView = PolylatchNative.WaiterView

/// The value of an option of a client: a literal, or a duration.
public enum OptionValue: Sendable, Equatable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral
{
    case text(String)
    case number(Double)
    case flag(Bool)
    case duration(Duration)

    /// A text, such as `"hint"`.
    public init(stringLiteral value: String) { self = .text(value) }
    /// A number.
    public init(integerLiteral value: Int64) { self = .number(Double(value)) }
    /// A number.
    public init(floatLiteral value: Double) { self = .number(value) }
    /// A flag.
    public init(booleanLiteral value: Bool) { self = .flag(value) }

    var word: OptionWord {
        switch self {
        case .text(let text): .text(text: text)
        case .number(let number): .number(number: number)
        case .flag(let yes): .flag(yes: yes)
        case .duration(let length): .seconds(seconds: seconds(length))
        }
    }
}

/// One client of one store of locks; one per process is enough. Everything may be called from any task and thread.
///
/// Leases are renewed by a native thread, whatever the program does meanwhile.
public final class Client: Sendable {
    let native: NativeClient
    private let listening: Listening?

    private init(_ native: NativeClient, _ listening: Listening?) {
        self.native = native
        self.listening = listening
    }

    /// Connects to the store at `url`, such as `redis://localhost` or `sqlite:locks.db`; without one, to what
    /// `POLYLATCH_URL` says, or else to an embedded file.
    ///
    /// `program` is the name that people see beside held locks. `options` are those of the URL. The store is asked
    /// once, so a wrong password is an error here.
    ///
    /// `onEvent` is called with the events of this client, beginning with the warnings of connecting; see
    /// ``LockEvent``. The option `level` says from which level on: `error`, `warn`, `info` (the default) or `debug`,
    /// which adds what comes with every lock. An event below the level costs nothing. `onEvent` is called in a task of its own, in the order of the events, and holds up no lock. It is not
    /// called any more once ``close()`` has returned.
    ///
    /// Throws `invalid_config`, `backend_unavailable`, `backend_rejected`, `name_conflict`.
    public static func connect(
        url: String? = nil, program: String? = nil, options: [String: OptionValue] = [:],
        onEvent: (@Sendable (LockEvent) -> Void)? = nil
    ) async throws -> Client {
        let native = NativeClient()
        let events = onEvent == nil ? nil : native.events()
        let entries = options.map { OptionEntry(key: $0.key, word: $0.value.word) }
        let with = ConnectWith(url: url, program: program, language: "swift", options: entries)
        try await told { try await native.connect(with: with) }
        var listening: Listening?
        if let events, let onEvent { listening = Listening(events, onEvent) }
        return Client(native, listening)
    }

    /// The id of this client in the store.
    public func id() throws -> String { try told { try native.id() } }

    /// The store's URL without its secrets.
    public func url() throws -> String { try told { try native.url() } }

    /// What this client has done since it was made, in numbers. Costs no request.
    public func stats() throws -> Stats { try told { try native.stats() } }

    /// The same as text that Prometheus reads, with these labels on every line; the label `backend` is there already.
    ///
    /// Throws `invalid_argument` for a label that Prometheus does not accept.
    public func prometheus(labels: [String: String] = [:]) throws -> String {
        try told { try native.prometheus(labels: labels) }
    }

    /// What this store, as configured, can do.
    public func capability() throws -> Capability { try told { try native.capability() } }

    /// Names a lock, with how it is to be acquired. Nothing is sent before it is.
    ///
    /// - Parameters:
    ///   - lease: how long the lease lasts unless renewed, 100 ms to a day. Shorter: a dead holder is noticed sooner.
    ///     Longer: a slow network or a pause does not lose the lock.
    ///   - wait: how long to wait for a lock that another client holds; without it, as long as it takes.
    ///   - label: a description shown to operators; no secrets.
    ///   - owner: an acquisition with the same id in this client while it is held enters at once.
    ///   - maxHold: never hold it for longer.
    ///   - beatEvery: renew only while ``Held/beat()`` is called at least this often.
    ///   - fifo: false may take a free lock although other clients are queued.
    ///   - renew: false lets the lease end after its full length.
    ///   - keepIdle: after a release the client keeps the lease for the next caller, for at most this long, 100 ms to a
    ///     day, and acquiring it again costs no request; another client that asks for the lock has it released. A process
    ///     that stops while it keeps a lease blocks the lock until the lease ends. On memory and Redis stores.
    public func lock(
        _ name: String, lease: Duration? = nil, wait: Duration? = nil, label: String? = nil, owner: String? = nil,
        maxHold: Duration? = nil, beatEvery: Duration? = nil, fifo: Bool? = nil, renew: Bool? = nil,
        keepIdle: Duration? = nil
    ) -> Lock {
        one(name, .mutex, wanted(lease, wait, label, owner, maxHold, beatEvery, fifo, renew, keepIdle))
    }

    /// Names a lock that many may read or one may write; the options, but for `keepIdle`, are those of ``lock(_:lease:wait:label:owner:maxHold:beatEvery:fifo:renew:keepIdle:)``.
    public func rwLock(
        _ name: String, lease: Duration? = nil, wait: Duration? = nil, label: String? = nil, owner: String? = nil,
        maxHold: Duration? = nil, beatEvery: Duration? = nil, fifo: Bool? = nil, renew: Bool? = nil
    ) -> RwLock {
        let options = wanted(lease, wait, label, owner, maxHold, beatEvery, fifo, renew)
        return RwLock(read: one(name, .read, options), write: one(name, .write, options))
    }

    /// Names a lock with this many `permits`, 1 to 1000, of which `count` are wanted, all or none; the other options are
    /// those of ``lock(_:lease:wait:label:owner:maxHold:beatEvery:fifo:renew:keepIdle:)``.
    public func semaphore(
        _ name: String, permits: Int64, count: Int64 = 1, lease: Duration? = nil, wait: Duration? = nil,
        label: String? = nil, owner: String? = nil, maxHold: Duration? = nil, beatEvery: Duration? = nil,
        fifo: Bool? = nil, renew: Bool? = nil
    ) -> Lock {
        let options = wanted(lease, wait, label, owner, maxHold, beatEvery, fifo, renew)
        return one(name, .permits, options, count: count, capacity: permits)
    }

    /// Names several locks that are had all together or not at all. `wait` is for all of them together; the other
    /// options are those of ``lock(_:lease:wait:label:owner:maxHold:beatEvery:fifo:renew:keepIdle:)``, for each.
    public func lockAll(
        _ names: [String], lease: Duration? = nil, wait: Duration? = nil, label: String? = nil, owner: String? = nil,
        maxHold: Duration? = nil, beatEvery: Duration? = nil, fifo: Bool? = nil, renew: Bool? = nil
    ) -> LockAll {
        let options = wanted(lease, wait, label, owner, maxHold, beatEvery, fifo, renew)
        let wanted = Wanted(
            names: names, together: true, way: .mutex, count: 0, capacity: 0, options: options
        )
        return LockAll(client: self, wanted: wanted, made: { GuardSet($0) })
    }

    /// Names a scope of idempotent work and one-time tokens: it is done once, and every repetition gets its answer.
    ///
    /// `scope` names the operation and the caller it is done for, such as `orders/customer-7`. Take the caller's identity
    /// from its credentials, never from its request: two callers that share a scope get each other's answers for the
    /// same key.
    public func idempotency(_ scope: String) -> Idempotency {
        Idempotency(client: self, scope: scope)
    }

    /// Reads who holds and who waits. Changes nothing in the store.
    ///
    /// `name`: only this lock, also if it is free. `prefix`: only locks whose name starts so. `limit`: at most so
    /// many. What a store cannot say is nil.
    public func inspect(name: String? = nil, prefix: String? = nil, limit: Int64? = nil) async throws -> Snapshot {
        try await told { try await native.inspectLocks(look: Look(name: name, prefix: prefix, limit: limit)) }
    }

    /// Breaks a lease, if it still has this `fencingToken`; the outcome is `broken`, `free` or
    /// `changed_hands`. `by` and `reason` are recorded in the store, for operators.
    public func breakLease(
        _ name: String, fencingToken: Int64, by: String, reason: String
    ) async throws -> BreakResult {
        try await told {
            try await native.breakLease(name: name, fencingToken: fencingToken, by: by, reason: reason)
        }
    }

    /// Ends waiting, releases what is held, and waits (at most 5 s) until the store knows, then (at most 5 s) until
    /// `onEvent` has had all events; also in a cancelled task. Repeatable. Later acquisitions throw `canceled`.
    public func close() async throws {
        try await told { try await native.shutDown() }
        await listening?.finish()
    }

    private func one(
        _ name: String, _ way: WantedWay, _ options: WantedOptions, count: Int64 = 0, capacity: Int64 = 0
    ) -> Lock {
        let wanted = Wanted(
            names: [name], together: false, way: way, count: count, capacity: capacity, options: options
        )
        return Lock(client: self, wanted: wanted, made: { Guard($0) })
    }
}

private func wanted(
    _ lease: Duration?, _ wait: Duration?, _ label: String?, _ owner: String?, _ maxHold: Duration?,
    _ beatEvery: Duration?, _ fifo: Bool?, _ renew: Bool?, _ keepIdle: Duration? = nil
) -> WantedOptions {
    WantedOptions(
        lease: lease.map(seconds), wait: wait.map(seconds), label: label, owner: owner,
        maxHold: maxHold.map(seconds), beatEvery: beatEvery.map(seconds), fifo: fifo, renew: renew,
        keepIdle: keepIdle.map(seconds)
    )
}

func seconds(_ length: Duration) -> Double {
    Double(length.components.seconds) + Double(length.components.attoseconds) / 1e18
}

/// The version of the native library.
public func nativeVersion() -> String { PolylatchNative.nativeVersion() }
