import Polylatch
import XCTest

final class BadInputTests: XCTestCase {
    func testAnArgumentThatCannotBeIsRefusedByItsName() async throws {
        try await on("memory:bad") { client in
            let locks: [(String, Lock)] = [
                ("name", client.lock("")),
                ("name", client.lock("a\u{0}b")),
                ("name", client.lock(String(repeating: "x", count: 2000))),
                ("lease is -1", client.lock("a", lease: .seconds(-1))),
                ("lease", client.lock("a", lease: .zero)),
                ("lease", client.lock("a", lease: .seconds(2 * 86_400))),
                ("wait is -0.001", client.lock("a", wait: .milliseconds(-1))),
                ("wait", client.lock("a", wait: .seconds(4000 * 86_400))),
                ("max_hold", client.lock("a", maxHold: .milliseconds(1))),
                ("beat_every", client.lock("a", beatEvery: .milliseconds(1))),
                ("keep_idle", client.lock("a", keepIdle: .milliseconds(1))),
                ("label", client.lock("a", label: String(repeating: "x", count: 300))),
                ("owner", client.lock("a", owner: "")),
                ("0 permits", client.semaphore("a", permits: 0)),
                ("-3", client.semaphore("a", permits: -3)),
                ("4 permits", client.semaphore("a", permits: 3, count: 4)),
                ("-1", client.semaphore("a", permits: 3, count: -1)),
            ]
            for (words, lock) in locks {
                let error = try await fails("invalid_argument", words) { _ = try await lock.acquire() }
                XCTAssertEqual(error.effect, "none")
            }
            try await fails("invalid_argument", "no locks") { _ = try await client.lockAll([]).acquire() }
            try await fails("invalid_argument", "128") {
                _ = try await client.lockAll((0..<200).map(String.init)).acquire()
            }
            try await fails("invalid_argument", "limit", "-1") { _ = try await client.inspect(limit: -1) }
            try await fails("invalid_argument", "token", "-1") {
                _ = try await client.breakLease("a", fencingToken: -1, by: "ann", reason: "why")
            }
            let snapshot = try await client.inspect()
            XCTAssertTrue(snapshot.locks.isEmpty)
        }
    }

    func testAnOptionThatIsUnknownOrWrongIsRefusedBeforeAnythingIsSent() async throws {
        func connecting(_ url: String, _ options: [String: OptionValue] = [:]) async throws {
            try await Client.connect(url: url, options: options).close()
        }
        try await fails("invalid_config", "nope") { try await connecting("memory:", ["nope": 1]) }
        try await fails("invalid_config", "gopher") { try await connecting("gopher://x") }
        try await fails("invalid_config", "lease") { try await connecting("memory:", ["lease": .duration(.seconds(-1))]) }
        try await fails("invalid_config", "lease") { try await connecting("memory:", ["lease": .number(.nan)]) }
        try await fails("invalid_config", "lease") { try await connecting("memory:", ["lease": true]) }
        try await connecting("memory:", ["lease": .duration(.seconds(5)), "push": "hint"])
        let secret = try await fails("backend_unavailable") {
            try await connecting("redis://user:hunter2@127.0.0.1:1", ["timeout": .duration(.milliseconds(300))])
        }
        XCTAssertFalse("\(secret) \(secret.backend ?? "") \(secret.hint)".contains("hunter2"))
    }
}
