import Foundation
import PolylatchNative

/// A value of a statement, or a column of a row. Drivers may return numbers as their digits, and texts as bytes.
public enum SqlValue: Hashable, Sendable {
    case null
    case int(Int64)
    case text(String)
    case bytes(Data)

    init(_ cell: SqlCell) {
        if let number = cell.number {
            self = .int(number)
        } else if let text = cell.text {
            self = .text(text)
        } else if let bytes = cell.bytes {
            self = .bytes(bytes)
        } else {
            self = .null
        }
    }

    var cell: SqlCell {
        switch self {
        case .null: SqlCell(number: nil, text: nil, bytes: nil)
        case .int(let number): SqlCell(number: number, text: nil, bytes: nil)
        case .text(let text): SqlCell(number: nil, text: text, bytes: nil)
        case .bytes(let bytes): SqlCell(number: nil, text: nil, bytes: bytes)
        }
    }
}

/// A statement with the values of its parameters, in order.
public struct SqlStatement: Sendable {
    /// The text, with placeholders.
    public let sql: String
    /// One for each placeholder.
    public let values: [SqlValue]

    /// A statement of the caller's own.
    public init(sql: String, values: [SqlValue]) {
        self.sql = sql
        self.values = values
    }
}

/// Statements for the caller's connection, one after the other. What comes next depends on the rows of the one
/// before.
///
/// If anything is thrown, roll the transaction back and drop the exchange.
public struct SqlExchange<T> {
    let talk: NativeTalk
    let end: (NativeTalk) throws -> T

    /// What an exchange does next.
    public enum Next {
        /// Execute this, and hand the rows that it returned to ``SqlExchange/next(_:)``.
        case execute(SqlStatement)
        /// It is over.
        case done(T)
    }

    /// The next statement, or what came of all. `rows`: what the statement before returned, each as its columns in
    /// order; empty at first, and for a statement without rows.
    ///
    /// Throws the errors of the call that made the exchange; `stale_token` if another client has taken the work over;
    /// `backend_rejected` for rows in an unknown form; `invalid_argument` after the end.
    public func next(_ rows: [[SqlValue]]) throws -> Next {
        try told {
            guard let asked = try talk.nextStatement(rows: rows.map { row in row.map(\.cell) }) else {
                return .done(try end(talk))
            }
            return .execute(SqlStatement(sql: asked.sql, values: asked.values.map(SqlValue.init)))
        }
    }

    /// Carries it out with a driver that blocks: `query` executes a statement and returns its rows.
    public func run(_ query: (SqlStatement) throws -> [[SqlValue]]) throws -> T {
        var rows: [[SqlValue]] = []
        while true {
            switch try next(rows) {
            case .execute(let statement): rows = try query(statement)
            case .done(let value): return value
            }
        }
    }

    /// The same with an asynchronous driver.
    public func run(_ query: (SqlStatement) async throws -> [[SqlValue]]) async throws -> T {
        var rows: [[SqlValue]] = []
        while true {
            switch try next(rows) {
            case .execute(let statement): rows = try await query(statement)
            case .done(let value): return value
            }
        }
    }
}

/// What a claim found.
public enum Claimed<C> {
    /// The work is the caller's to do.
    case mine(C)
    /// It was done before, and this is its result.
    case replayed(Data)
}

extension Claimed: Sendable where C: Sendable {}

/// How long an answer is kept.
public enum Retention: Hashable, Sendable {
    /// 1 s to 10 years.
    case time(Duration)
    case forever

    var seconds: Double {
        switch self {
        case .time(let time): Polylatch.seconds(time)
        case .forever: .infinity
        }
    }
}

/// How to run the work of a key. What is missing is the library's to say.
public struct TransactionRunOptions: Sendable {
    /// What the request consists of. The same key with another one is refused.
    public var payload: Data?
    /// What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes.
    public var fingerprint: String?
    /// How long the answer is kept: 24 h by default.
    public var retention: Retention?

    /// Options that are not given are the library's defaults.
    public init(payload: Data? = nil, fingerprint: String? = nil, retention: Retention? = nil) {
        self.payload = payload
        self.fingerprint = fingerprint
        self.retention = retention
    }

    func native(lease: Duration?, noWait: Bool) -> SqlRunWith {
        SqlRunWith(
            payload: payload, fingerprint: fingerprint, retention: retention?.seconds, lease: lease.map(seconds),
            noWait: noWait)
    }
}

/// The claim on a key under which the work of a transaction runs.
public struct TransactionClaim: Sendable {
    let native: NativeRunClaim

    /// Larger than that of every claim on the same key before.
    public var fencingToken: Int64 { native.fencingToken() }

    /// How many runs of this key began, this one counted.
    public var runs: Int64 { native.runs() }

    /// Records the result: the last exchange before the commit.
    ///
    /// Throws `invalid_argument` for a result of more than 1 MiB, and its exchange `stale_token` if the claim is not
    /// the present one. Roll back after each of them: nothing is done then.
    public func complete(_ result: Data) throws -> SqlExchange<Void> {
        try exchange { try native.complete(result: result) }
    }

    /// Records a failure: every repetition throws `failed` with this answer. What the transaction changed is
    /// committed with it.
    public func fail(answer: Data) throws -> SqlExchange<Void> {
        try exchange { try native.fail(answer: answer) }
    }
}

/// The claim on a key under which work in several transactions runs, as it was when the last exchange about it was
/// committed. After a rollback go on with the one before.
public struct StepsClaim: Sendable {
    let native: NativeRunClaim

    /// Larger than that of every claim on the same key before.
    public var fencingToken: Int64 { native.fencingToken() }

    /// How many clients worked on this key, this one counted.
    public var runs: Int64 { native.runs() }

    /// Names and values of the finished steps, in their order.
    public var finished: [(name: String, value: Data)] { native.finished().map { ($0.name, $0.value) } }

    /// The value of a finished step; nil if it is not finished.
    public func value(of step: String) -> Data? {
        finished.first { $0.name == step }?.value
    }

    /// Records that a step is finished, and renews the lease: the last exchange before the step's commit. `name`: 1
    /// to 100 bytes.
    ///
    /// Throws `invalid_argument` for a step that is finished already and for values of more than 1 MiB in all, and
    /// its exchange `stale_token` if another client has taken the work over: roll back, the step was not done by this
    /// one.
    public func step(_ name: String, value: Data = Data()) throws -> SqlExchange<StepsClaim> {
        try following { try native.step(name: name, value: value) }
    }

    /// Renews the lease; commit it.
    public func renew() throws -> SqlExchange<StepsClaim> {
        try following { try native.renew() }
    }

    /// Ends the claim without an answer, so that another client goes on at once; commit it.
    public func release() throws -> SqlExchange<Void> {
        try exchange { try native.release() }
    }

    /// Records the result of all: the last exchange before the last commit. Throws as
    /// ``TransactionClaim/complete(_:)``.
    public func complete(_ result: Data) throws -> SqlExchange<Void> {
        try exchange { try native.complete(result: result) }
    }

    /// Records a failure that every repetition gets. What finished steps have done remains.
    public func fail(answer: Data) throws -> SqlExchange<Void> {
        try exchange { try native.fail(answer: answer) }
    }

    private func following(_ make: () throws -> NativeTalk) throws -> SqlExchange<StepsClaim> {
        SqlExchange(talk: try told(make)) { StepsClaim(native: try $0.claimed()) }
    }
}

/// Work in several transactions; see ``TransactionRuns/steps(scope:key:options:lease:)``.
public struct TransactionSteps: Sendable {
    let native: NativeRun

    /// Claims the work with its finished steps, or finds its answer. Commit it at once. If the answer to a commit is
    /// lost, claim again with the same value: it says whether the step was committed.
    ///
    /// Its exchange throws `in_progress` while another client works on it, `payload_mismatch`, `failed`,
    /// `result_too_large`.
    public func claim() -> SqlExchange<Claimed<StepsClaim>> {
        claiming(native, StepsClaim.init)
    }
}

/// The answer to a run: `value`, and whether an earlier run did the work.
public struct Outcome<T> {
    /// What the work returned.
    public let value: T
    /// Whether an earlier run returned it.
    public let replayed: Bool
}

extension Outcome: Sendable where T: Sendable {}

/// Idempotent work whose record is committed by the caller's own transaction: both, or neither.
///
/// ```swift
/// let runs = try TransactionRuns(.sqlite)
/// try database.inTransaction(.immediate) {
///     let outcome = try runs.run(scope: "orders/customer-7", key: key, query: query) { claim in try order() }
/// }
/// ```
///
/// Nothing is sent. `query` executes a statement on the connection that has the transaction, and returns its rows.
/// The caller begins (SQLite: `BEGIN IMMEDIATE`), commits and rolls back, which is what to do after every error;
/// without a transaction nothing of this holds.
///
/// On PostgreSQL, MySQL and MariaDB the record is the one that the store in that database keeps for idempotent work
/// in other languages. On SQLite it is in a table of its own, which ``schemaSql`` makes.
public struct TransactionRuns: Sendable {
    let native: NativeRuns

    /// `schema` is that of the store on PostgreSQL. Throws `invalid_argument` for another dialect, `invalid_config`
    /// for an impossible schema.
    public init(_ dialect: Dialect, schema: String? = nil) throws {
        native = try told { try NativeRuns(dialect: dialect.rawValue, schema: schema) }
    }

    /// The script that makes the tables. Run again, it changes nothing.
    public var schemaSql: String { native.schemaSql() }

    /// Does the work of a key in the caller's transaction, unless it was done: then its stored answer is returned.
    /// The result has at most 1 MiB. It waits for another transaction with the same key; `noWait`: see
    /// ``begin(scope:key:options:noWait:)``.
    ///
    /// `scope`: the operation and the caller it is done for, 1 to 256 bytes. `key`: what is unique to one request, 1
    /// to 255 bytes, made by its client, such as a UUID. What `work` throws is thrown on: roll back, and nothing was
    /// done.
    ///
    /// Throws `in_progress`, `payload_mismatch`, `failed`, `result_too_large`, those of
    /// ``TransactionClaim/complete(_:)``, and what `query` throws.
    public func run(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), noWait: Bool = false,
        query: (SqlStatement) throws -> [[SqlValue]], work: (TransactionClaim) throws -> Data
    ) throws -> Outcome<Data> {
        switch try begin(scope: scope, key: key, options: options, noWait: noWait).run(query) {
        case .replayed(let answer): return Outcome(value: answer, replayed: true)
        case .mine(let claim):
            let result = try work(claim)
            try claim.complete(result).run(query)
            return Outcome(value: result, replayed: false)
        }
    }

    /// The same with an asynchronous driver.
    public func run(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), noWait: Bool = false,
        query: (SqlStatement) async throws -> [[SqlValue]], work: (TransactionClaim) async throws -> Data
    ) async throws -> Outcome<Data> {
        switch try await begin(scope: scope, key: key, options: options, noWait: noWait).run(query) {
        case .replayed(let answer): return Outcome(value: answer, replayed: true)
        case .mine(let claim):
            let result = try await work(claim)
            try await claim.complete(result).run(query)
            return Outcome(value: result, replayed: false)
        }
    }

    /// As `run`, for a text: other languages read it as JSON if it is.
    public func runText(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), noWait: Bool = false,
        query: (SqlStatement) throws -> [[SqlValue]], work: (TransactionClaim) throws -> String
    ) throws -> Outcome<String> {
        let outcome = try run(scope: scope, key: key, options: options, noWait: noWait, query: query) {
            Data(try work($0).utf8)
        }
        return Outcome(value: String(decoding: outcome.value, as: UTF8.self), replayed: outcome.replayed)
    }

    /// The same with an asynchronous driver.
    public func runText(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), noWait: Bool = false,
        query: (SqlStatement) async throws -> [[SqlValue]], work: (TransactionClaim) async throws -> String
    ) async throws -> Outcome<String> {
        let outcome = try await run(scope: scope, key: key, options: options, noWait: noWait, query: query) {
            Data(try await work($0).utf8)
        }
        return Outcome(value: String(decoding: outcome.value, as: UTF8.self), replayed: outcome.replayed)
    }

    /// Claims a key, or finds its answer: the first half of `run`, for work that is no closure. The first exchange of
    /// the transaction.
    ///
    /// `noWait`: a repetition does not wait for another transaction with the same key. On PostgreSQL its exchange
    /// throws `in_progress`; on MariaDB at once, on MySQL after `innodb_lock_wait_timeout` the driver throws an error
    /// whose code ``saysInProgress(_:)`` knows.
    public func begin(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), noWait: Bool = false
    ) throws -> SqlExchange<Claimed<TransactionClaim>> {
        let run = try told { try native.whole(scope: scope, key: key, with: options.native(lease: nil, noWait: noWait)) }
        return claiming(run, TransactionClaim.init)
    }

    /// Names work in several transactions: a repetition goes on after the last step that was committed.
    ///
    /// `lease`: 100 ms to a day, 15 s by default. Each step renews it; if the client dies, another one goes on when
    /// it ends.
    public func steps(
        scope: String, key: String, options: TransactionRunOptions = TransactionRunOptions(), lease: Duration? = nil
    ) throws -> TransactionSteps {
        let with = options.native(lease: lease, noWait: false)
        return TransactionSteps(native: try told { try native.steps(scope: scope, key: key, with: with) })
    }

    /// Whether an error of the database, by its code, says that another transaction has the key: 1205 of MySQL and
    /// MariaDB.
    public func saysInProgress(_ code: String) -> Bool {
        native.saysInProgress(code: code)
    }

    /// Deletes records whose retention is over, at most so many (1 to 100 000), and returns how many. Commit it.
    public func purge(most: Int64 = 1000) throws -> SqlExchange<Int64> {
        SqlExchange(talk: try told { try native.purge(most: most) }) { $0.ending().deleted }
    }
}

private func exchange(_ make: () throws -> NativeTalk) throws -> SqlExchange<Void> {
    SqlExchange(talk: try told(make)) { _ in }
}

private func claiming<C>(_ run: NativeRun, _ made: @escaping (NativeRunClaim) -> C) -> SqlExchange<Claimed<C>> {
    SqlExchange(talk: run.claim()) { talk in
        let end = talk.ending()
        if let fault = end.failure { throw PolylatchError(fault, answer: end.answer) }
        return end.mine ? .mine(made(try talk.claimed())) : .replayed(end.answer ?? Data())
    }
}
