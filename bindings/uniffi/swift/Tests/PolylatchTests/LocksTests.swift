import Foundation
import Polylatch
import XCTest

final class LocksTests: XCTestCase {
    func testALockIsHeldSeenAndGivenBack() async throws {
        try await onEveryStore { client in
            let guarded = try await client.lock("orders/42 ü 🔒", lease: .seconds(30), label: "why").acquire()
            XCTAssertEqual(guarded.name, "orders/42 ü 🔒")
            XCTAssertTrue(guarded.isHeld)
            try guarded.check()
            XCTAssertTrue(guarded.remaining > .milliseconds(500) && guarded.remaining <= .seconds(30))
            XCTAssertGreaterThan(try guarded.validUntil(), .zero)
            XCTAssertEqual(try guarded.mode(), "mutex")
            XCTAssertTrue(["strict", "time-floored"].contains(try guarded.fenceQuality()))
            XCTAssertTrue(try guarded.sequencer().contains("orders"))

            let holder = try await client.inspect(name: guarded.name).locks[0].holders[0]
            XCTAssertEqual(holder.label, "why")
            XCTAssertEqual(holder.fencingToken, guarded.fencingToken)
            XCTAssertEqual(holder.client, try client.id())
            // Who that is, is written beside the way.
            var who: ClientView?
            while who == nil {
                who = try await client.inspect(name: guarded.name).clients.first { $0.id == holder.client }
            }
            XCTAssertEqual(who?.language, "swift")
            XCTAssertEqual(who?.program, "the test")
            XCTAssertEqual(who?.pid, Int64(ProcessInfo.processInfo.processIdentifier))

            try await guarded.release()
            try await guarded.release()
            XCTAssertFalse(guarded.isHeld)
            let next = try await client.lock(guarded.name).acquire()
            XCTAssertGreaterThan(next.fencingToken, guarded.fencingToken)
            try await client.close()
            try await client.close()
            try await fails("canceled") { _ = try await client.lock("after").acquire() }
        }
    }

    func testContentionIsAResultAndAWaitThatRunsOutNamesTheHolder() async throws {
        try await onEveryStore { client in
            let guarded = try await client.lock("busy", label: "the first").acquire()
            let second = try await client.lock("busy").tryAcquire()
            XCTAssertNil(second)
            let error = try await fails("wait_timeout", "busy") {
                _ = try await client.lock("busy", wait: .milliseconds(50)).acquire()
            }
            XCTAssertEqual(error.lock, "busy")
            try await guarded.release()
            let third = try await client.lock("busy").tryAcquire()
            try await XCTUnwrap(third).release()
        }
    }

    func testAKeptLockIsEnteredAgainAndReleasedForAnotherClient() async throws {
        for url in try stores() {
            try await on(url) { client in
                let lock = client.lock("kept", keepIdle: .seconds(60))
                guard ["memory", "redis"].contains(try client.capability().backend) else {
                    try await fails("unsupported", "keep a lease after its release") { _ = try await lock.acquire() }
                    return
                }
                var tokens: [Int64] = []
                for _ in 0..<5 {
                    let guarded = try await lock.acquire()
                    tokens.append(guarded.fencingToken)
                    try await guarded.release()
                }
                XCTAssertEqual(tokens, Set(tokens).sorted())
                // The store still has the first grant: only that one was a request.
                let holder = try await client.inspect(name: "kept").locks[0].holders[0]
                XCTAssertEqual(holder.fencingToken, tokens[0])
                try await on(url) { other in
                    let guarded = try await other.lock("kept", wait: .seconds(30)).acquire()
                    XCTAssertGreaterThan(guarded.fencingToken, tokens[4])
                    try await guarded.release()
                }
            }
        }
    }

    func testAWaiterIsLetInWhenTheLockIsGivenBack() async throws {
        try await onEveryStore { client in
            let first = try await client.lock("line").acquire()
            async let second = client.lock("line", wait: .seconds(30)).acquire()
            try await seen(client, "line") { !$0.waiters.isEmpty }
            try await first.release()
            let entered = try await second
            XCTAssertGreaterThan(entered.fencingToken, first.fencingToken)
            try await entered.release()
        }
    }

    func testReadersShareAReaderStepsUpPermitsRunOut() async throws {
        try await onEveryStore { client in
            let page = client.rwLock("page", wait: .seconds(10))
            let (one, other) = (try await page.read.acquire(), try await page.read.acquire())
            let writer = try await page.write.tryAcquire()
            XCTAssertNil(writer)
            let early = try await one.tryUpgrade()
            XCTAssertFalse(early)
            try await other.release()
            let before = one.fencingToken
            let alone = try await one.tryUpgrade()
            XCTAssertTrue(alone)
            XCTAssertGreaterThan(one.fencingToken, before)
            XCTAssertEqual(try one.mode(), "write")
            let deadline = try await one.extend(.seconds(60))
            XCTAssertEqual(try one.validUntil(), deadline)
            XCTAssertGreaterThan(one.remaining, .seconds(40))
            try await fails("invalid_argument", "lease") { try await one.extend(.milliseconds(1)) }
            try await one.downgrade()
            XCTAssertEqual(try one.mode(), "read")
            try await fails("invalid_argument", "read", "write") { try await one.downgrade() }
            try await one.release()

            let two = try await client.semaphore("pool", permits: 3, count: 2).acquire()
            let more = try await client.semaphore("pool", permits: 3, count: 2).tryAcquire()
            XCTAssertNil(more)
            let last = try await client.semaphore("pool", permits: 3).tryAcquire()
            try await two.release()
            try await XCTUnwrap(last).release()
        }
    }

    func testSeveralLocksAreHadTogetherOrNotAtAll() async throws {
        try await onEveryStore { client in
            let set = try await client.lockAll(["b", "a"], lease: .seconds(20)).acquire()
            XCTAssertEqual(set.names, ["a", "b"])
            XCTAssertEqual(Set(set.fencingTokens.keys), ["a", "b"])
            let half = try await client.lockAll(["b", "c"]).tryAcquire()
            XCTAssertNil(half)
            let rest = try await client.lock("c").tryAcquire()
            try await XCTUnwrap(rest).release()
            try set.check()
            XCTAssertGreaterThan(set.remaining, .zero)
            try await set.release()
            let seven = try await client.lockAll(["a", "b"]).withLease { _ in 7 }
            XCTAssertEqual(seven, 7)
        }
    }

    func testAnOptionThatIsFalseIsNotOneThatWasNotGiven() async throws {
        try await on("memory:flags") { client in
            let fixed = try await client.lock("fixed", lease: .milliseconds(300), renew: false).acquire()
            let reason = try await lostReason(fixed)
            XCTAssertEqual(reason, "expired")
            XCTAssertEqual(try fixed.renewals(), 0)
        }
    }

    func testAGuardThatIsForgottenIsReleased() async throws {
        try await onEveryStore { client in
            _ = try await client.lock("forgotten", lease: .seconds(3600)).acquire()
            let next = try await client.lock("forgotten", wait: .seconds(20)).acquire()
            try await next.release()
        }
    }

    func testAResourceRefusesHoldersFromBefore() async throws {
        let gate = try TokenGate(largest: 5)
        try gate.admit(7)
        XCTAssertEqual(gate.largest, 7)
        try await fails("stale_token") { try gate.admit(6) }
        try await fails("invalid_argument", "-1") { try gate.admit(-1) }
        XCTAssertNil(try TokenGate().largest)
    }
}
