// Lets the conformance runner drive the Swift package; the protocol stands in `tests/conformance/README.md`.

import Foundation
import Polylatch

typealias Json = [String: Any]

/// What the runner asked for in error.
struct Mistake: Error {
    let text: String
}

/// Answers of several tasks, one line at a time.
func say(_ answer: Json) throws {
    var line = try JSONSerialization.data(withJSONObject: answer, options: [.withoutEscapingSlashes])
    line.append(UInt8(ascii: "\n"))
    FileHandle.standardOutput.write(line)
}

/// A value or JSON's null.
func orNull(_ value: Any?) -> Any { value ?? NSNull() }

// Unchecked, because Foundation's JSON is not `Sendable`: nobody changes a request after it was read.
struct Request: @unchecked Sendable {
    let json: Json

    func text(_ key: String) throws -> String {
        guard let text = json[key] as? String else { throw Mistake(text: "\(key) is no text") }
        return text
    }

    func whole(_ key: String) throws -> Int64 {
        guard let number = json[key] as? NSNumber else { throw Mistake(text: "\(key) is no number") }
        return number.int64Value
    }
}

struct With {
    static let known: Set<String> = [
        "lease_ms", "wait_ms", "max_hold_ms", "beat_every_ms", "keep_idle_ms", "label", "owner", "fifo", "renew",
    ]
    private let given: Json

    init(_ request: Request, known: Set<String> = With.known) throws {
        given = request.json["options"] as? Json ?? [:]
        if let other = given.keys.first(where: { !known.contains($0) }) {
            throw Mistake(text: "there is no option \(other)")
        }
    }

    func length(_ key: String) -> Duration? { (given[key] as? NSNumber).map { .milliseconds($0.int64Value) } }
    func text(_ key: String) -> String? { given[key] as? String }
    func flag(_ key: String) -> Bool? { (given[key] as? NSNumber)?.boolValue }
}

/// What the callback of one client heard.
final class Heard: @unchecked Sendable {
    private let lock = NSLock()
    private var kept: [LockEvent] = []

    func append(_ event: LockEvent) { lock.withLock { kept.append(event) } }

    func of(_ name: String) -> [String] {
        lock.withLock { kept.filter { $0.lock == name }.map { "\($0.level) \($0.event)" } }
    }
}

actor Shim {
    private var heard: [String: Heard] = [:]
    private var clients: [String: Client] = [:]
    private var named: [Lock] = []
    private var guards: [String: Held] = [:]
    private var gates: [String: Gate] = [:]
    private var running: [Int64: Task<Void, Never>] = [:]

    func client(_ request: Request) throws -> Client {
        guard let client = clients[try request.text("client")] else { throw Mistake(text: "there is no such client") }
        return client
    }

    func held(_ request: Request) throws -> Held {
        guard let held = guards[try request.text("guard")] else { throw Mistake(text: "there is no such guard") }
        return held
    }

    func keep(_ lock: Lock) { named.append(lock) }
    func keep(_ name: String, _ client: Client, _ events: Heard) {
        clients[name] = client
        heard[name] = events
    }

    func events(_ request: Request) throws -> Heard {
        guard let heard = heard[try request.text("client")] else { throw Mistake(text: "there is no such client") }
        return heard
    }

    func keep(_ name: String, _ held: Held) { guards[name] = held }

    func gate(_ name: String) -> Gate {
        let gate = gates[name] ?? Gate()
        gates[name] = gate
        return gate
    }

    func begin(_ id: Int64, _ request: Request) {
        running[id] = Task.detached {
            let answer: Json
            do {
                answer = ["ok": try await serve(self, request)]
            } catch is CancellationError {
                answer = ["canceled": true]
            } catch let error as PolylatchError {
                answer = ["error": described(error)]
            } catch let error as WorkFailed {
                answer = ["error": described(error)]
            } catch {
                answer = ["fault": "\(error)"]
            }
            await self.end(id, answer)
        }
    }

    func cancel(_ id: Int64) { running[id]?.cancel() }

    private func end(_ id: Int64, _ answer: sending Json) {
        running[id] = nil
        try? say(answer.merging(["id": id]) { first, _ in first })
    }
}

func described(_ error: PolylatchError) -> Json {
    [
        "code": error.code, "retry": error.retry, "effect": error.effect, "reason": orNull(error.reason),
        "message": error.description,
    ]
}

func described(_ can: Capability) -> Json {
    [
        "backend": can.backend, "fifo": can.fifo, "push": can.push, "expiry": can.expiry, "sharing": can.sharing,
        "atomic_sets": can.atomicSets, "fencing": can.fencing, "min_lease": can.minLeaseMs,
        "max_lease": can.maxLeaseMs,
    ]
}

func serve(_ shim: Shim, _ request: Request) async throws -> Json {
    let op = try request.text("op")
    switch op {
    case "connect":
        let heard = Heard()
        let client = try await Client.connect(url: request.text("url"), onEvent: { heard.append($0) })
        await shim.keep(try request.text("client"), client, heard)
        return ["capability": described(try client.capability())]
    case "name":
        try await shim.keep(wanted(shim.client(request), request))
    case "acquire":
        return try await kept(shim, request, wanted(shim.client(request), request).acquire())
    case "try":
        return try await kept(shim, request, wanted(shim.client(request), request).tryAcquire())
    case "lock_all":
        return try await kept(shim, request, wantedSet(shim.client(request), request).acquire())
    case "try_all":
        return try await kept(shim, request, wantedSet(shim.client(request), request).tryAcquire())
    case "release":
        try await shim.held(request).release()
    case "check":
        try await shim.held(request).check()
    case "beat":
        try await shim.held(request).beat()
    case "extend":
        try await single(shim, request).extend(.milliseconds(request.whole("lease_ms")))
    case "lost":
        return ["reason": try await lost(shim.held(request))]
    case "downgrade":
        let one = try await single(shim, request)
        try await one.downgrade()
        return try await kept(shim, request, one)
    case "upgrade":
        let one = try await single(shim, request)
        return try await kept(shim, request, one.tryUpgrade() ? one : nil)
    case "see":
        return try await see(shim.client(request), request)
    case "break":
        let result = try await shim.client(request).breakLease(
            request.text("lock"), fencingToken: request.whole("token"), by: request.text("by"),
            reason: request.text("reason")
        )
        return ["outcome": result.outcome]
    case "told":
        return ["events": try await shim.events(request).of(request.text("lock"))]
    case "stats":
        let stats = try await shim.client(request).stats()
        return [
            "acquired": stats.acquired, "refused": stats.refused, "timed_out": stats.timedOut, "held": stats.held,
            "waiting": stats.waiting, "losses": stats.losses.values.reduce(0, +),
        ]
    case "run":
        return try await runOnce(shim, request)
    case "working":
        try await shim.gate(request.text("waits")).untilBegun()
    case "end_run":
        try await shim.gate(request.text("waits")).end()
    case "close":
        try await shim.client(request).close()
    default:
        throw Mistake(text: "there is no verb \(op)")
    }
    return [:]
}

func single(_ shim: Shim, _ request: Request) async throws -> Guard {
    guard let one = try await shim.held(request) as? Guard else { throw Mistake(text: "it is a set") }
    return one
}

func wanted(_ client: Client, _ request: Request) throws -> Lock {
    let (name, with) = (try request.text("lock"), try With(request))
    let (lease, wait, label, owner) = (
        with.length("lease_ms"), with.length("wait_ms"), with.text("label"), with.text("owner")
    )
    let (maxHold, beatEvery) = (with.length("max_hold_ms"), with.length("beat_every_ms"))
    let (fifo, renew) = (with.flag("fifo"), with.flag("renew"))
    let mode = Request(json: request.json["mode"] as? Json ?? ["kind": "mutex"])
    switch try mode.text("kind") {
    case "mutex":
        return client.lock(
            name, lease: lease, wait: wait, label: label, owner: owner, maxHold: maxHold, beatEvery: beatEvery,
            fifo: fifo, renew: renew, keepIdle: with.length("keep_idle_ms")
        )
    case "permits":
        return client.semaphore(
            name, permits: try mode.whole("capacity"), count: try mode.whole("count"), lease: lease, wait: wait,
            label: label, owner: owner, maxHold: maxHold, beatEvery: beatEvery, fifo: fifo, renew: renew
        )
    case let kind:
        let lock = client.rwLock(
            name, lease: lease, wait: wait, label: label, owner: owner, maxHold: maxHold, beatEvery: beatEvery,
            fifo: fifo, renew: renew
        )
        return kind == "read" ? lock.read : lock.write
    }
}

func wantedSet(_ client: Client, _ request: Request) throws -> LockAll {
    guard let names = request.json["locks"] as? [String] else { throw Mistake(text: "locks are no names") }
    let with = try With(request)
    return client.lockAll(
        names, lease: with.length("lease_ms"), wait: with.length("wait_ms"), label: with.text("label"),
        owner: with.text("owner"), maxHold: with.length("max_hold_ms"), beatEvery: with.length("beat_every_ms"),
        fifo: with.flag("fifo"), renew: with.flag("renew")
    )
}

func kept(_ shim: Shim, _ request: Request, _ held: Held?) async throws -> Json {
    guard let held else { return ["held": false] }
    await shim.keep(try request.text("guard"), held)
    if let set = held as? GuardSet { return ["held": true, "locks": set.names] }
    guard let one = held as? Guard else { throw Mistake(text: "it is neither a guard nor a set") }
    return ["held": true, "token": one.fencingToken, "locks": [one.name]]
}

func lost(_ held: Held) async throws -> String {
    let (reasons, tell) = AsyncStream.makeStream(of: String.self)
    try held.onLost { tell.yield($0) }
    for await reason in reasons { return reason }
    throw CancellationError()
}

func see(_ client: Client, _ request: Request) async throws -> Json {
    let snapshot = try await client.inspect(name: request.text("lock"))
    func who(_ id: String?) -> Json {
        let client = snapshot.clients.first { $0.id == id }
        return ["pid": orNull(client?.pid), "language": orNull(client?.language)]
    }
    let holders = (snapshot.locks.first?.holders ?? []).map { one in
        who(one.client).merging([
            "label": one.label, "mode": one.mode, "permits": one.permits, "token": orNull(one.fencingToken),
            "renewals": orNull(one.renewals),
        ]) { first, _ in first }
    }
    let waiters = (snapshot.locks.first?.waiters ?? []).map { one in
        who(one.client).merging(["label": one.label, "mode": one.mode, "permits": one.permits]) { first, _ in first }
    }
    return ["holders": holders, "waiters": waiters]
}

let shim = Shim()
try say([
    "hello": "polylatch", "protocol": 1, "language": "swift", "version": nativeVersion(),
    "can": ["cancel", "idempotency"],
])
while let line = readLine() {
    guard let json = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? Json else {
        throw Mistake(text: "a request is no object")
    }
    let request = Request(json: json)
    let id = try request.whole("id")
    if try request.text("op") == "cancel" {
        await shim.cancel(try request.whole("target"))
        try say(["id": id, "ok": Json()])
    } else {
        await shim.begin(id, request)
    }
}
