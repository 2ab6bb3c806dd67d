// What a call costs from Swift: `Measure URL…`.

import Polylatch

func nanos(_ took: Duration, each times: Int64) -> Int64 {
    (took.components.seconds * 1_000_000_000 + took.components.attoseconds / 1_000_000_000) / times
}

for url in CommandLine.arguments.dropFirst() {
    let client = try await Client.connect(url: url)
    let lock = client.lock("measured")
    let clock = ContinuousClock()
    for _ in 0..<300 { try await lock.acquire().release() }
    let both = try await clock.measure {
        for _ in 0..<3_000 { try await lock.acquire().release() }
    }
    let guarded = try await lock.acquire()
    let check = try clock.measure {
        for _ in 0..<50_000 { try guarded.check() }
    }
    try await guarded.release()
    try await client.close()
    let store = url.prefix { $0 != ":" && $0 != "+" }
    print("swift \(store) check_ns=\(nanos(check, each: 50_000)) acquire_release_ns=\(nanos(both, each: 3_000))")
}
