import Foundation
import Polylatch
import XCTest

/// Keeps what a client tells.
private final class Heard: @unchecked Sendable {
    private let lock = NSLock()
    private var kept: [LockEvent] = []

    var events: [LockEvent] { lock.withLock { kept } }

    func append(_ event: LockEvent) { lock.withLock { kept.append(event) } }

    /// Waits until it came; a test that waits for ever is ended from outside.
    func of(_ name: String) async throws -> LockEvent {
        while true {
            if let found = events.first(where: { $0.event == name }) { return found }
            try await Task.sleep(for: .milliseconds(2))
        }
    }
}

final class EventsTests: XCTestCase {
    func testAClosureIsToldOfTheLifeOfItsOwnClient() async throws {
        for url in try stores() {
            let heard = Heard()
            let other = try await Client.connect(url: url)
            let holder = try await other.lock("a").acquire()
            let client = try await Client.connect(
                url: url, options: ["level": .text("debug")], onEvent: { heard.append($0) }
            )
            let waiter = Task { try await client.lock("a").acquire() }
            let waiting = try await heard.of("waiting")
            XCTAssertEqual(waiting.lock, "a")
            try await holder.release()
            let guarded = try await waiter.value
            let broken = try await other.breakLease(
                "a", fencingToken: guarded.fencingToken, by: "ann", reason: "test"
            )
            XCTAssertEqual(broken.outcome, "broken")
            let lost = try await heard.of("lost")
            XCTAssertEqual(lost.lock, "a")
            XCTAssertEqual(lost.fencingToken, guarded.fencingToken)
            XCTAssertEqual(lost.reason, "broken")
            XCTAssertEqual(lost.level, "error")
            XCTAssertTrue(lost.line.contains("reason=broken"), lost.line)
            XCTAssertEqual(heard.events.map(\.event).prefix(2), ["waiting", "acquired"])
            let id = try client.id()
            XCTAssertTrue(heard.events.allSatisfy { $0.client == id })
            try await client.lock("b").acquire().release()
            try await client.close()
            // Closing waited for the last event.
            XCTAssertEqual(heard.events.last?.event, "released")
            try await other.close()
        }
    }

    func testNumbersTellASmallStory() async throws {
        try await onEveryStore { client in
            let held = try await client.lock("a").acquire()
            let refused = try await client.lock("a").tryAcquire()
            XCTAssertNil(refused)
            try await fails("wait_timeout") { _ = try await client.lock("a", wait: .milliseconds(50)).acquire() }
            XCTAssertEqual(try client.stats().held, 1)
            try await held.release()
            let short = try await client.lock("a", lease: .milliseconds(200), renew: false).acquire()
            let reason = try await lostReason(short)
            XCTAssertEqual(reason, "expired")
            let stats = try client.stats()
            let backend = try client.capability().backend
            XCTAssertEqual(stats.backend, backend)
            XCTAssertEqual([stats.acquired, stats.refused, stats.timedOut, stats.failed], [2, 1, 1, 0])
            XCTAssertEqual(stats.losses["expired"], 1)
            XCTAssertEqual(stats.errors["wait_timeout"], 1)
            XCTAssertEqual(stats.hold.count, 2)
            XCTAssertEqual(stats.hold.counts.count, stats.hold.bounds.count + 1)
            XCTAssertGreaterThan(stats.hold.sum, 0.19)
            let text = try client.prometheus(labels: ["service": "shop"])
            XCTAssertTrue(text.contains("service=\"shop\""), text)
            try await fails("invalid_argument", "le") { _ = try client.prometheus(labels: ["le": "x"]) }
        }
    }

    #if os(Linux)
    func testAStoreThatGoesAwayIsToldOnceAndThatItIsBack() async throws {
        let heard = Heard()
        let client = try await Client.connect(
            url: try stores()[2],
            options: ["timeout": .duration(.milliseconds(300)), "poll": .duration(.milliseconds(100))],
            onEvent: { heard.append($0) }
        )
        try pauseRedis(milliseconds: 1_500)
        try await client.lock("a").acquire().release()
        let away = try await heard.of("store_unreachable")
        XCTAssertEqual(away.level, "warn")
        let back = try await heard.of("store_reachable")
        XCTAssertEqual(back.level, "info")
        XCTAssertEqual(heard.events.filter { $0.event == "store_unreachable" }.count, 1)
        try await client.close()
    }
    #endif
}

#if os(Linux)
/// Pauses the tests' Redis for a while.
private func pauseRedis(milliseconds: Int) throws {
    let url = try XCTUnwrap(ProcessInfo.processInfo.environment["POLYLATCH_TEST_REDIS"])
    let path = String(url.dropFirst("redis+unix:".count))
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let connected = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    XCTAssertEqual(connected, 0)
    let order = "CLIENT PAUSE \(milliseconds) ALL\r\n"
    XCTAssertEqual(write(descriptor, order, order.utf8.count), order.utf8.count)
    var answer = [UInt8](repeating: 0, count: 5)
    XCTAssertEqual(read(descriptor, &answer, 5), 5)
    XCTAssertEqual(String(decoding: answer, as: UTF8.self), "+OK\r\n")
}
#endif
