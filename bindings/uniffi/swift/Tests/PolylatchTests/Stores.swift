import Foundation
import Polylatch
import XCTest

/// A URL of each store; no other locks are there.
func stores() throws -> [String] {
    let environment = ProcessInfo.processInfo.environment
    let redis = try XCTUnwrap(environment["POLYLATCH_TEST_REDIS"], "bindings/uniffi/test starts a Redis")
    let file = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID().uuidString).db").path
    return ["memory:\(UUID().uuidString)", "sqlite:\(file)", "\(redis)?prefix=\(UUID().uuidString)"]
}

/// Runs a test with every store.
func onEveryStore(_ test: (Client) async throws -> Void) async throws {
    for url in try stores() {
        try await on(url, test)
    }
}

func on(_ url: String, _ test: (Client) async throws -> Void) async throws {
    let client = try await Client.connect(url: url, program: "the test")
    do {
        try await test(client)
    } catch {
        try await client.close()
        XCTFail("\(url): \(error)")
        return
    }
    try await client.close()
}

/// The call fails with this code, and the text has these words.
@discardableResult
func fails(
    _ code: String, _ words: String..., file: StaticString = #filePath, line: UInt = #line,
    _ call: () async throws -> Void
) async throws -> PolylatchError {
    do {
        try await call()
    } catch let error as PolylatchError {
        XCTAssertEqual(error.code, code, "\(error)", file: file, line: line)
        XCTAssertFalse(error.hint.isEmpty, file: file, line: line)
        for word in words {
            XCTAssertTrue(error.description.contains(word), "\(word) is not in: \(error)", file: file, line: line)
        }
        return error
    }
    XCTFail("\(code) was expected", file: file, line: line)
    throw CancellationError()
}

/// Looks until the lock of this name is as wanted; a test that waits for ever is ended from outside.
func seen(_ client: Client, _ name: String, _ wanted: (LockView) -> Bool) async throws {
    while try await !client.inspect(name: name).locks.contains(where: wanted) {
        try await Task.sleep(for: .milliseconds(2))
    }
}

/// Waits until it is lost, and tells why.
func lostReason(_ held: Held) async throws -> String {
    let (reasons, tell) = AsyncStream.makeStream(of: String.self)
    try held.onLost { tell.yield($0) }
    for await reason in reasons { return reason }
    throw CancellationError()
}
