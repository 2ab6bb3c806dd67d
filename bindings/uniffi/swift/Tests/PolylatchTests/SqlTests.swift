import Foundation
import Polylatch
import XCTest

/// One line of `tests/conformance/sql.json`.
private struct Case: Decodable {
    struct Bound: Decodable {
        let sql: String
        let values: [String]
    }

    struct Expect: Decodable {
        let error, message, sql, probe_sql: String?
        let parameters, probe_parameters: [String]?
        let rows_tell: Bool?
        let prepare, take, fence: Bound?
    }

    let make, dialect: String
    let table, column, name, schema: String?
    let set, keys: [String]?
    let changes, conditions: [[String]]?
    let expect: Expect

    var written: Dialect { Dialect(rawValue: dialect) }

    func write() throws -> GuardedWrite {
        let (table, keys) = (try XCTUnwrap(table), try XCTUnwrap(keys))
        if make == "conditional_update" {
            let terms = { (pairs: [[String]]?) in try XCTUnwrap(pairs).map { Term($0[0], $0[1]) } }
            return try ConditionalUpdate.update(
                written, table: table, changes: terms(changes), conditions: terms(conditions), keys: keys)
        }
        let (column, set) = (try XCTUnwrap(column), try XCTUnwrap(set))
        switch make {
        case "fenced_update":
            return try FencedUpdate.update(written, table: table, fence: column, set: set, keys: keys)
        case "fenced_upsert":
            return try FencedUpdate.upsert(written, table: table, fence: column, set: set, keys: keys)
        default:
            XCTAssertEqual(make, "versioned_update")
            return try VersionedUpdate.update(written, table: table, version: column, set: set, keys: keys)
        }
    }

    func lock() throws -> TransactionLock {
        try TransactionLock(written, name: try XCTUnwrap(name), schema: schema)
    }
}

final class SqlTests: XCTestCase {
    func testTheTextsAreThoseOfEveryLanguage() async throws {
        let path = try XCTUnwrap(ProcessInfo.processInfo.environment["POLYLATCH_SQL_JSON"])
        let cases = try JSONDecoder().decode([Case].self, from: Data(contentsOf: URL(fileURLWithPath: path)))
        XCTAssertGreaterThan(cases.count, 50)
        for one in cases {
            let (expect, isLock) = (one.expect, one.make == "transaction_lock")
            if let code = expect.error {
                let error = try await fails(code) { if isLock { _ = try one.lock() } else { _ = try one.write() } }
                XCTAssertTrue(error.description.contains(try XCTUnwrap(expect.message)), "\(error)")
            } else if isLock {
                let lock = try one.lock()
                let parts: [(BoundStatement?, Case.Bound?)] = [
                    (lock.prepare, expect.prepare), (lock.take, expect.take), (lock.fence, expect.fence),
                ]
                for (made, wanted) in parts {
                    XCTAssertEqual(made?.sql, wanted?.sql)
                    XCTAssertEqual(made?.values, wanted?.values)
                }
            } else {
                let made = try one.write()
                XCTAssertEqual(made.sql, expect.sql)
                XCTAssertEqual(made.parameters, expect.parameters)
                XCTAssertEqual(made.probeSql, expect.probe_sql)
                XCTAssertEqual(made.probeParameters, expect.probe_parameters)
                XCTAssertEqual(made.rowsTell, expect.rows_tell)
            }
        }
    }

    func testARowSaysWhyNothingChanged() async throws {
        let newer = ProbedRow(number: 34)
        try await fails("stale_token", "33", "34") { _ = try FencedUpdate.whyUnchanged(token: 33, row: newer) }
        try await fails("stale_token", "33", "34") { try FencedUpdate.check(token: 33, row: newer) }
        try FencedUpdate.check(token: 34, row: newer)
        try FencedUpdate.check(token: 33, row: nil)
        XCTAssertEqual(try FencedUpdate.whyUnchanged(token: 33, row: ProbedRow(number: nil)), "changed_meanwhile")
        XCTAssertEqual(try FencedUpdate.whyUnchanged(token: 33, row: nil), "missing")
        XCTAssertEqual(VersionedUpdate.whyUnchanged(row: newer), "changed")
        XCTAssertEqual(VersionedUpdate.whyUnchanged(row: nil), "missing")
    }
}
