import Foundation
import Polylatch
import XCTest

private struct NoCard: Error {}

private func never(_: Claim) async throws -> String {
    XCTFail("it was done again")
    return ""
}

final class IdempotencyTests: XCTestCase {
    func testARepetitionGetsTheFirstAnswer() async throws {
        try await onEveryStore { client in
            let keys = client.idempotency("orders/customer-7 \(UUID())")
            let options = RunOptions(payload: Data("one".utf8), retention: .forever)
            let first = try await keys.runText("k", options: options) { claim in
                try claim.check()
                XCTAssert(claim.fencingToken > 0 && claim.runs == 1 && claim.remaining > .zero)
                return "order 42 ü"
            }
            XCTAssertEqual(first.value, "order 42 ü")
            XCTAssertFalse(first.replayed)
            let again = try await keys.runText("k", options: options, work: never)
            XCTAssertEqual(again.value, "order 42 ü")
            XCTAssertTrue(again.replayed)
            let other = RunOptions(payload: Data("two".utf8))
            try await fails("payload_mismatch", "another payload") {
                _ = try await keys.runText("k", options: other, work: never)
            }
            try await fails("invalid_argument", "the key") { _ = try await keys.runText("", work: never) }
            let short = RunOptions(retention: .time(.milliseconds(1)))
            try await fails("invalid_argument", "retention") {
                _ = try await keys.runText("l", options: short, work: never)
            }
            let forgotten = [try await keys.forget("k"), try await keys.forget("k")]
            XCTAssertEqual(forgotten, ["forgotten", "absent"])
            let bytes = try await keys.run("l") { _ in Data([0, 255]) }
            XCTAssertEqual(bytes.value, Data([0, 255]))
            let token = try await keys.issue(ttl: .seconds(60))
            let consumed = [try await keys.consume(token), try await keys.consume(token)]
            XCTAssertEqual(consumed, ["first", "duplicate"])
        }
    }

    func testConcurrentRunsGetOneAnswerAndACancelledOneFreesItsKeyWithItsLease() async throws {
        try await onEveryStore { client in
            let keys = client.idempotency("concurrent \(UUID())")
            let (working, begun) = AsyncStream.makeStream(of: Void.self)
            let (gate, answers) = AsyncStream.makeStream(of: String.self)
            let first = Task {
                try await keys.runText("k") { _ in
                    begun.yield()
                    for await answer in gate { return answer }
                    return "cancelled"
                }
            }
            for await _ in working { break }
            try await fails("in_progress", "in progress on host") {
                _ = try await keys.runText("k", options: RunOptions(wait: .zero), work: never)
            }
            let second = Task { try await keys.runText("k", work: never) }
            let (calling, calls) = AsyncStream.makeStream(of: Void.self)
            let third = Task {
                calls.yield()
                return try await keys.runText("k", work: never)
            }
            for await _ in calling { break }
            // Nothing says that it waits now. If it does not yet, it is told the same.
            try await Task.sleep(for: .milliseconds(50))
            third.cancel()
            do {
                _ = try await third.value
                XCTFail("a cancelled wait ends")
            } catch is CancellationError {}
            answers.yield("done")
            let values = [try await first.value.value, try await second.value.value]
            XCTAssertEqual(values, ["done", "done"])
            let replayed = try await second.value.replayed
            XCTAssertTrue(replayed)

            let (stuck, isStuck) = AsyncStream.makeStream(of: Void.self)
            let cancelled = Task {
                try await keys.runText("l", options: RunOptions(lease: .milliseconds(500))) { _ in
                    isStuck.yield()
                    try await Task.sleep(for: .seconds(600))
                    return ""
                }
            }
            for await _ in stuck { break }
            cancelled.cancel()
            do {
                _ = try await cancelled.value
                XCTFail("cancelled work ends")
            } catch is CancellationError {}
            let next = try await keys.runText("l") { claim in "\(claim.runs)" }
            XCTAssertEqual(next.value, "2")
        }
    }

    /// The program of the package's page as it stands there.
    func testTheProgramOfThePage() async throws {
        let client = try await Client.connect(url: try XCTUnwrap(try stores().last))
        let (key, body) = ("\(UUID())", Data("{}".utf8))
        func respond(_ answer: String, _ replayed: Bool) {
            XCTAssertEqual(answer, #"{"order": 42}"#)
            XCTAssertFalse(replayed)
        }

        let orders = client.idempotency("orders/customer-7")     // the operation, and the caller by its credentials
        let outcome = try await orders.runText(key, options: RunOptions(payload: body)) { claim in  // its client made the key
            try claim.check()                                    // still ours? hand claim.fencingToken to what is changed
            return #"{"order": 42}"#
        }
        respond(outcome.value, outcome.replayed)

        try await client.close()
    }

    func testAFailureIsStoredOrFreesItsKey() async throws {
        try await onEveryStore { client in
            let keys = client.idempotency("failures \(UUID())")
            do {
                _ = try await keys.runText("k") { _ in throw NoCard() }
                XCTFail("what the work throws is thrown on")
            } catch is NoCard {}
            let stored = try await fails("failed") { _ = try await keys.runText("k", work: never) }
            XCTAssertTrue(String(decoding: try XCTUnwrap(stored.answer), as: UTF8.self).contains("NoCard"))

            let free = RunOptions(onFailure: .free)
            do {
                _ = try await keys.runText("l", options: free) { _ in throw NoCard() }
                XCTFail("what the work throws is thrown on")
            } catch is NoCard {}
            do {
                let declined = WorkFailed("declined", answer: Data("no".utf8), onFailure: .store)
                _ = try await keys.runText("l", options: free) { _ in throw declined }
                XCTFail("what the work throws is thrown on")
            } catch let error as WorkFailed {
                XCTAssertEqual("\(error)", "declined")
            }
            let declined = try await fails("failed") { _ = try await keys.runText("l", options: free, work: never) }
            XCTAssertEqual(declined.answer, Data("no".utf8))
            try await fails("result_too_large") {
                _ = try await keys.run("m") { _ in Data(count: (1 << 20) + 1) }
            }
        }
    }
}
