import Polylatch
import XCTest

private struct OnPurpose: Error {}

/// Sleeps until its task is cancelled.
private func never() async throws {
    try await Task.sleep(for: .seconds(3600))
}

final class LossTests: XCTestCase {
    func testALossCancelsTheBody() async throws {
        try await onEveryStore { client in
            let (tokens, tell) = AsyncStream.makeStream(of: Int64.self)
            let work = Task {
                try await client.lock("import", lease: .seconds(30)).withLease { guarded in
                    tell.yield(guarded.fencingToken)
                    try await never()
                }
            }
            var token: Int64 = 0
            for await told in tokens {
                token = told
                break
            }
            let slip = try await client.breakLease("import", fencingToken: token + 1, by: "ann", reason: "a slip")
            XCTAssertEqual(slip.outcome, "changed_hands")
            let broken = try await client.breakLease("import", fencingToken: token, by: "ann", reason: "wrong import")
            XCTAssertEqual(broken.outcome, "broken")
            let error = try await fails("lease_lost") { try await work.value }
            XCTAssertEqual(error.reason, "broken")
            let again = try await client.breakLease("import", fencingToken: token, by: "ann", reason: "again")
            XCTAssertEqual(again.outcome, "free")
        }
    }

    func testABodyThatEndsWithoutHavingNoticedIsToldAtItsEnd() async throws {
        try await on("memory:unnoticed") { client in
            let error = try await fails("lease_lost") {
                try await client.lock("short", lease: .milliseconds(200), renew: false).withLease { guarded in
                    while guarded.isHeld {}
                }
            }
            XCTAssertEqual(error.reason, "expired")
        }
    }

    func testWhatTheBodyThrowsIsWhatTheCallerGetsAndTheLockIsFree() async throws {
        try await on("memory:throws") { client in
            do {
                try await client.lock("broken").withLease { _ in throw OnPurpose() }
                XCTFail("it throws")
            } catch is OnPurpose {}
            try await client.lock("broken", wait: .seconds(10)).acquire().release()
            // A cancellation from outside stays one.
            let work = Task { try await client.lock("broken").withLease { _ in try await never() } }
            try await seen(client, "broken") { !$0.holders.isEmpty }
            work.cancel()
            do {
                try await work.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
            try await client.lock("broken", wait: .seconds(10)).acquire().release()
        }
    }

    func testAListenerIsToldOnceAndNotOfARelease() async throws {
        try await onEveryStore { client in
            let released = try await client.lock("released").acquire()
            try released.onLost { _ in XCTFail("it was released") }
            try await released.release()

            let limited = try await client.lock("limited", maxHold: .milliseconds(300)).acquire()
            let reason = try await lostReason(limited)
            XCTAssertEqual(reason, "hold_limit")
            let error = try await fails("lease_lost") { try limited.check() }
            XCTAssertEqual(error.reason, "hold_limit")
            XCTAssertFalse(limited.isHeld)
        }
    }

    func testWorkThatStopsBeatingLosesItsLock() async throws {
        try await on("memory:beats") { client in
            let guarded = try await client.lock("job", beatEvery: .seconds(1)).acquire()
            for _ in 0..<5 {
                try await Task.sleep(for: .milliseconds(250))
                try guarded.beat()
                try guarded.check()
            }
            let reason = try await lostReason(guarded)
            XCTAssertEqual(reason, "no_progress")
        }
    }
}
