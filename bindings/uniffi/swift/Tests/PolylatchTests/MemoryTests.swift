#if os(Linux)
import Foundation
import Polylatch
import XCTest

private let mostGrowthKib = 16 * 1024

private func residentKib() throws -> Int {
    let words = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")
    return try XCTUnwrap(Int(words[1])) * 4
}

final class MemoryTests: XCTestCase {
    func testMemoryIsSteady() async throws {
        let cycles = Int(ProcessInfo.processInfo.environment["POLYLATCH_CYCLES"] ?? "") ?? 100_000
        try await on("memory:cycles") { client in
            func cycle() async throws {
                try await client.lock("cycle").withLease { guarded in try guarded.check() }
            }
            for _ in 0..<cycles / 4 { try await cycle() }
            let before = try residentKib()
            for _ in 0..<cycles { try await cycle() }
            let growth = try residentKib() - before
            print("swift memory cycles=\(cycles) growth_kib=\(growth)")
            XCTAssertLessThan(growth, mostGrowthKib)
        }
    }
}
#endif
