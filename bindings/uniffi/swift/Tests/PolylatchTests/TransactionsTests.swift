import Foundation
import Polylatch
import XCTest

/// A database of the program, by the library of SQLite that every machine has.
private final class Database {
    private typealias Handle = OpaquePointer
    private static let library = dlopen("libsqlite3.so.0", RTLD_NOW) ?? dlopen("libsqlite3.dylib", RTLD_NOW)

    private static func function<F>(_ name: String, _: F.Type = F.self) -> F {
        unsafeBitCast(dlsym(library, "sqlite3_\(name)"), to: F.self)
    }

    private let open: @convention(c) (UnsafePointer<CChar>, UnsafeMutablePointer<Handle?>) -> Int32 = function("open")
    private let exec:
        @convention(c) (Handle?, UnsafePointer<CChar>, OpaquePointer?, OpaquePointer?, OpaquePointer?) -> Int32 =
            function("exec")
    private let prepare:
        @convention(c) (Handle?, UnsafePointer<CChar>, Int32, UnsafeMutablePointer<Handle?>, OpaquePointer?) -> Int32 =
            function("prepare_v2")
    private let bindInt: @convention(c) (Handle?, Int32, Int64) -> Int32 = function("bind_int64")
    /// The last parameter, -1, says that the bytes are copied.
    private let bindText: @convention(c) (Handle?, Int32, UnsafePointer<CChar>, Int32, Int) -> Int32 = function("bind_text")
    private let bindBlob: @convention(c) (Handle?, Int32, UnsafeRawPointer?, Int32, Int) -> Int32 = function("bind_blob")
    private let step: @convention(c) (Handle?) -> Int32 = function("step")
    private let columns: @convention(c) (Handle?) -> Int32 = function("column_count")
    private let type: @convention(c) (Handle?, Int32) -> Int32 = function("column_type")
    private let number: @convention(c) (Handle?, Int32) -> Int64 = function("column_int64")
    private let blob: @convention(c) (Handle?, Int32) -> UnsafeRawPointer? = function("column_blob")
    private let length: @convention(c) (Handle?, Int32) -> Int32 = function("column_bytes")
    private let finalize: @convention(c) (Handle?) -> Int32 = function("finalize")
    private let close: @convention(c) (Handle?) -> Int32 = function("close")
    private var connection: Handle?

    init(_ runs: TransactionRuns) throws {
        XCTAssertEqual(open(":memory:", &connection), 0)
        for _ in 0..<2 { execute(runs.schemaSql) }
        execute("CREATE TABLE effects (work TEXT)")
    }

    deinit { _ = close(connection) }

    func execute(_ sql: String) {
        XCTAssertEqual(exec(connection, sql, nil, nil, nil), 0, sql)
    }

    func query(_ statement: SqlStatement) throws -> [[SqlValue]] {
        try rows(statement.sql, statement.values)
    }

    func rows(_ sql: String, _ values: [SqlValue]) throws -> [[SqlValue]] {
        var prepared: Handle?
        XCTAssertEqual(prepare(connection, sql, -1, &prepared, nil), 0, sql)
        defer { _ = finalize(prepared) }
        for (index, value) in values.enumerated() {
            let at = Int32(index + 1)
            switch value {
            case .null: break
            case .int(let number): _ = bindInt(prepared, at, number)
            case .text(let text): _ = bindText(prepared, at, text, -1, -1)
            // Of no bytes the pointer may be nil, which would be NULL.
            case .bytes(let bytes): _ = Array(bytes + [0]).withUnsafeBytes { bindBlob(prepared, at, $0.baseAddress, Int32(bytes.count), -1) }
            }
        }
        var rows: [[SqlValue]] = []
        while true {
            let result = step(prepared)
            if result == 101 { return rows }
            XCTAssertEqual(result, 100, sql)
            rows.append((0..<columns(prepared)).map { column(prepared, $0) })
        }
    }

    private func column(_ row: Handle?, _ at: Int32) -> SqlValue {
        let bytes = { Data(bytes: self.blob(row, at) ?? UnsafeRawPointer(bitPattern: 1)!, count: Int(self.length(row, at))) }
        switch type(row, at) {
        case 1: return .int(number(row, at))
        case 3: return .text(String(decoding: bytes(), as: UTF8.self))
        case 5: return .null
        default: return .bytes(bytes())
        }
    }

    /// As a framework has it: commits, or rolls back.
    func transaction<T>(_ work: () throws -> T) throws -> T {
        execute("BEGIN IMMEDIATE")
        do {
            let done = try work()
            execute("COMMIT")
            return done
        } catch {
            execute("ROLLBACK")
            throw error
        }
    }

    func effect(_ work: String) {
        execute("INSERT INTO effects VALUES ('\(work)')")
    }

    func effects(_ work: String) throws -> Int64 {
        let rows = try query(SqlStatement(sql: "SELECT count(*) FROM effects WHERE work = '\(work)'", values: []))
        guard case .int(let count) = rows[0][0] else { return -1 }
        return count
    }
}

private struct NoCard: Error {}

final class TransactionsTests: XCTestCase {
    private let never: (TransactionClaim) throws -> String = { _ in
        XCTFail("it was done again")
        return ""
    }

    private func made() throws -> (TransactionRuns, Database) {
        let runs = try TransactionRuns(.sqlite)
        return (runs, try Database(runs))
    }

    /// As it stands on the page of the package, which the project's tests compare.
    func testTheProgramOfThePage() throws {
        let database = try Database(TransactionRuns(.sqlite))
        let key = UUID().uuidString
        func insertOrder(_ database: Database) throws { database.effect("order") }
        var answers: [String] = []
        func respond(_ value: String, _ replayed: Bool) { answers.append("\(value) \(replayed)") }
        for _ in 0..<2 {
            let runs = try TransactionRuns(.sqlite)         // .postgres, .mysql (MariaDB too); schemaSql makes the tables
            let query = { (statement: SqlStatement) -> [[SqlValue]] in
                try database.rows(statement.sql, statement.values) // each row as its columns: .int, .text, .bytes, .null
            }
            try database.transaction {                      // SQLite: BEGIN IMMEDIATE; commits, or rolls back after an error
                let outcome = try runs.runText(scope: "orders/customer-7", key: key, query: query) { claim in
                    try insertOrder(database)
                    return #"{"order": 42}"#
                }
                respond(outcome.value, outcome.replayed)
            }
        }
        XCTAssertEqual(answers, [#"{"order": 42} false"#, #"{"order": 42} true"#])
        XCTAssertEqual(try database.effects("order"), 1)
    }

    func testARepetitionGetsTheAnswerOfTheFirstTransaction() async throws {
        let (runs, database) = try made()
        let options = TransactionRunOptions(payload: Data("3 apples".utf8), retention: .forever)
        for replayed in [false, true] {
            let outcome = try database.transaction {
                try runs.runText(scope: "orders/7", key: "k", options: options, query: database.query) { claim in
                    XCTAssertTrue(claim.fencingToken > 0 && claim.runs == 1)
                    database.effect("k")
                    return "order 42 ü"
                }
            }
            XCTAssertEqual(outcome.value, "order 42 ü")
            XCTAssertEqual(outcome.replayed, replayed)
        }
        XCTAssertEqual(try database.effects("k"), 1)
        let other = TransactionRunOptions(payload: Data("4 pears".utf8))
        try await fails("payload_mismatch", "another payload") {
            _ = try database.transaction {
                try runs.runText(scope: "orders/7", key: "k", options: other, query: database.query, work: never)
            }
        }
        for (bytes, key) in [(Data([0, 255, 39, 92]), "bytes"), (Data(), "empty")] {
            for replayed in [false, true] {
                let outcome = try database.transaction {
                    try runs.run(scope: "orders/7", key: key, query: database.query) { _ in bytes }
                }
                XCTAssertEqual(outcome.value, bytes)
                XCTAssertEqual(outcome.replayed, replayed)
            }
        }
    }

    func testWhatIsThrownLeavesNothingAndAFailureMayBeStored() async throws {
        let (runs, database) = try made()
        XCTAssertThrowsError(
            try database.transaction {
                try runs.runText(scope: "orders/7", key: "k", query: database.query) { _ in
                    database.effect("k")
                    throw NoCard()
                }
            })
        XCTAssertEqual(try database.effects("k"), 0)
        try database.transaction {
            guard case .mine(let claim) = try runs.begin(scope: "orders/7", key: "k").run(database.query) else {
                return XCTFail("it is free")
            }
            try claim.fail(answer: Data("refused".utf8)).run(database.query)
        }
        let error = try await fails("failed") {
            _ = try database.transaction {
                try runs.runText(scope: "orders/7", key: "k", query: database.query, work: never)
            }
        }
        XCTAssertEqual(error.answer, Data("refused".utf8))
        try await fails("invalid_argument", "1048577 bytes") {
            _ = try database.transaction {
                try runs.run(scope: "orders/7", key: "l", query: database.query) { _ in Data(count: (1 << 20) + 1) }
            }
        }
    }

    /// Its statements come from an asynchronous driver.
    func testAnAsynchronousDriverDoesTheSame() async throws {
        let (runs, database) = try made()
        let query: (SqlStatement) async throws -> [[SqlValue]] = { statement in
            await Task.yield()
            return try database.query(statement)
        }
        for replayed in [false, true] {
            database.execute("BEGIN IMMEDIATE")
            let outcome = try await runs.runText(scope: "orders/7", key: "k", query: query) { _ in
                await Task.yield()
                return "done"
            }
            database.execute("COMMIT")
            XCTAssertEqual(outcome.value, "done")
            XCTAssertEqual(outcome.replayed, replayed)
        }
    }

    func testStepsGoOnAfterTheLastCommit() async throws {
        let (runs, database) = try made()
        let steps = { try runs.steps(scope: "orders/7", key: "k", lease: .seconds(600)) }
        let claim: () throws -> StepsClaim = {
            switch try database.transaction({ try steps().claim().run(database.query) }) {
            case .mine(let claim): return claim
            case .replayed: throw NoCard()
            }
        }
        let first = try claim()
        let charged = try database.transaction {
            database.effect("charge")
            return try first.step("charge", value: Data("receipt 7".utf8)).run(database.query)
        }
        try await fails("in_progress", "lease") { _ = try claim() }
        try await fails("invalid_argument", "charge") { _ = try charged.step("charge") }
        let renewed = try database.transaction { try charged.renew().run(database.query) }
        try database.transaction { try renewed.release().run(database.query) }
        let other = try claim()
        XCTAssertEqual(other.finished.map(\.name), ["charge"])
        XCTAssertEqual(other.value(of: "charge"), Data("receipt 7".utf8))
        XCTAssertNil(other.value(of: "send"))
        XCTAssertEqual(other.runs, 2)
        // The first one is not the present one any more.
        try await fails("stale_token") {
            _ = try database.transaction {
                database.effect("send")
                return try renewed.step("send").run(database.query)
            }
        }
        let sent = try database.transaction {
            database.effect("send")
            return try other.step("send").run(database.query)
        }
        try database.transaction { try sent.complete(Data("done".utf8)).run(database.query) }
        guard case .replayed(let answer) = try database.transaction({ try steps().claim().run(database.query) }) else {
            return XCTFail("it is done")
        }
        XCTAssertEqual(answer, Data("done".utf8))
        XCTAssertEqual(try ["charge", "send"].map(database.effects), [1, 1])
        database.execute("UPDATE polylatch_idempotency SET keep_until_ms = 1")
        XCTAssertEqual(try runs.purge().run(database.query), 1)
    }

    func testBadArgumentsAreRefusedBeforeAnythingIsSent() async throws {
        let (runs, database) = try made()
        try await fails("invalid_argument", "oracle") { _ = try TransactionRuns(Dialect(rawValue: "oracle :1")) }
        try await fails("invalid_argument", "schema") { _ = try TransactionRuns(.mysql, schema: "x") }
        try await fails("invalid_config") { _ = try TransactionRuns(.postgres, schema: "a;b") }
        let both = TransactionRunOptions(payload: Data(), fingerprint: "f")
        try await fails("invalid_argument", "fingerprint") { _ = try runs.begin(scope: "s", key: "k", options: both) }
        let short = TransactionRunOptions(retention: .time(.milliseconds(1)))
        try await fails("invalid_argument", "retention") { _ = try runs.begin(scope: "s", key: "k", options: short) }
        try await fails("invalid_argument", "the key") { _ = try runs.begin(scope: "s", key: "") }
        try await fails("invalid_argument", "lease") { _ = try runs.steps(scope: "s", key: "k", lease: .zero) }
        try await fails("invalid_argument", "100000") { _ = try runs.purge(most: 0) }
        try await fails("backend_rejected") {
            _ = try runs.begin(scope: "s", key: "k").run { _ in [[.null]] }
        }
        let purging = try runs.purge()
        _ = try purging.run(database.query)
        try await fails("invalid_argument", "is over") { _ = try purging.run(database.query) }
        XCTAssertTrue(try TransactionRuns(.mysql).saysInProgress("1205"))
        XCTAssertFalse(runs.saysInProgress("1205"))
    }
}
