import Polylatch
import XCTest

final class CancelTests: XCTestCase {
    func testACancelledWaitLeavesTheLine() async throws {
        try await onEveryStore { client in
            let guarded = try await client.lock("line").acquire()
            let waiter = Task { try await client.lock("line").acquire() }
            try await seen(client, "line") { !$0.waiters.isEmpty }
            waiter.cancel()
            do {
                _ = try await waiter.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
            try await seen(client, "line") { $0.waiters.isEmpty }
            XCTAssertTrue(guarded.isHeld)
            try await guarded.release()
        }
    }

    func testCancellationsAtAnyMomentLeaveNoLockBehind() async throws {
        try await onEveryStore { client in
            for round in 0..<300 {
                let holder = Task {
                    try await client.lock("race", lease: .seconds(3600)).withLease { _ in
                        try await Task.sleep(for: .seconds(3600))
                    }
                }
                // Any moment of the first one and a half milliseconds, spread evenly.
                try await Task.sleep(for: .microseconds(round * 37 % 1500))
                holder.cancel()
                _ = await holder.result
            }
            // Far less than the lease: it is free because everything was undone.
            try await client.lock("race", wait: .seconds(20)).acquire().release()
            try await seen(client, "race") { $0.holders.isEmpty && $0.waiters.isEmpty }
        }
    }

    func testATaskThatWasCancelledBeforeSendsNothing() async throws {
        try await on("memory:before") { client in
            let work = Task {
                while !Task.isCancelled { await Task.yield() }
                return try await client.lock("late").acquire()
            }
            work.cancel()
            do {
                _ = try await work.value
                XCTFail("it was cancelled")
            } catch is CancellationError {}
            let snapshot = try await client.inspect()
            XCTAssertTrue(snapshot.locks.isEmpty)
        }
    }
}
