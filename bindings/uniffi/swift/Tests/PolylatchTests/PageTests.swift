import Foundation
import Polylatch
import XCTest

private actor Written {
    private(set) var tokens: [Int64] = []

    func append(_ token: Int64) { tokens.append(token) }
}

/// The programs of the package's page as they stand there; the project's tests compare them.
final class PageTests: XCTestCase {
    func testAFirstLock() async throws {
        let url = try XCTUnwrap(try stores().last)
        let written = Written()
        let order = 42
        @Sendable func write(_ order: Int, token: Int64) async throws { await written.append(token) }

        let client = try await Client.connect(url: url)
        try await client.lock("orders/42", lease: .seconds(30), wait: .seconds(5)).withLease { guarded in
            try await write(order, token: guarded.fencingToken) // refused if a newer holder wrote
        }

        let tokens = await written.tokens
        XCTAssertEqual(tokens.count, 1)
        try await client.close()
    }

    func testEvents() async throws {
        let url = try XCTUnwrap(try stores().last)

        let client = try await Client.connect(url: url, onEvent: { event in
            if event.level == "warn" || event.level == "error" { print(event.line) }
        })
        print(try client.stats().held)      // numbers since the client was made; stats().wait is a histogram
        print(try client.prometheus())      // the same as text that Prometheus reads

        try await client.close()
    }
}
