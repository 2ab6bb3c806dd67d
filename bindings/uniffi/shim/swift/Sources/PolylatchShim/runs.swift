// Idempotent work that returns, fails or waits as the runner says.

import Foundation
import Polylatch

/// How far work has come that waits.
final class Gate: Sendable {
    private let begins: AsyncStream<Void>
    private let begun: AsyncStream<Void>.Continuation
    private let ends: AsyncStream<Void>
    private let mayEnd: AsyncStream<Void>.Continuation

    init() {
        (begins, begun) = AsyncStream.makeStream()
        (ends, mayEnd) = AsyncStream.makeStream()
    }

    func begin() { begun.yield() }
    func end() { mayEnd.yield() }

    func untilBegun() async throws { try await first(begins) }
    func untilItMayEnd() async throws { try await first(ends) }

    private func first(_ stream: AsyncStream<Void>) async throws {
        for await _ in stream { return }
        throw CancellationError()
    }
}

func runOnce(_ shim: Shim, _ request: Request) async throws -> Json {
    let waits = request.json["waits"] as? String
    let gate: Gate? = if let waits { await shim.gate(waits) } else { nil }
    let fails = (request.json["fails"] as? NSNumber)?.boolValue ?? false
    // As JSON, which is what other languages read.
    let value = try JSONSerialization.data(
        withJSONObject: try request.text("value"), options: [.fragmentsAllowed, .withoutEscapingSlashes])
    let keys = try await shim.client(request).idempotency(request.text("scope"))
    let outcome = try await keys.run(request.text("key"), options: runOptions(request)) { _ in
        if let gate {
            gate.begin()
            try await gate.untilItMayEnd()
        }
        if fails { throw WorkFailed("the work fails", answer: value) }
        return value
    }
    guard let text = try JSONSerialization.jsonObject(with: outcome.value, options: .fragmentsAllowed) as? String else {
        throw Mistake(text: "the answer is no text")
    }
    return ["value": text, "replayed": outcome.replayed]
}

private func runOptions(_ request: Request) throws -> RunOptions {
    let with = try With(request, known: ["lease_ms", "wait_ms", "on_failure"])
    let onFailure = try with.text("on_failure").map { word in
        guard let known = OnFailure(rawValue: word) else { throw Mistake(text: "on_failure is not \(word)") }
        return known
    }
    let payload = (request.json["payload"] as? String).map { Data($0.utf8) }
    return RunOptions(
        payload: payload, lease: with.length("lease_ms"), wait: with.length("wait_ms"),
        onFailure: onFailure)
}

/// What `WorkFailed` is to the runner: what it hears of failed work in every language.
func described(_ failed: WorkFailed) -> Json {
    ["code": "failed", "retry": "never", "effect": "none", "reason": NSNull(), "message": failed.description]
}
