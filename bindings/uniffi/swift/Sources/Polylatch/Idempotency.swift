import Foundation
import PolylatchNative

/// What becomes of a key whose work has failed.
public enum OnFailure: String, Sendable {
    /// Every repetition gets the failure: work that failed may have had an effect.
    case store
    /// The next run does the work again. Right only if failed work has no effect.
    case free
}

/// How to run the work of a key. What is missing is the client's, or the library's, to say.
public struct RunOptions: Sendable {
    /// What the request consists of. The same key with another one is refused.
    public var payload: Data?
    /// What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes.
    public var fingerprint: String?
    /// How long the answer is kept after the work: 24 h by default.
    public var retention: Retention?
    /// Length of the claim's lease: 100 ms to a day. A process that dies blocks its key for so long.
    public var lease: Duration?
    /// How long to wait for another run of the key: without it as long as it takes; zero does not wait.
    public var wait: Duration?
    /// What becomes of the key if the work throws; ``WorkFailed`` may say otherwise. `store` by default.
    public var onFailure: OnFailure?

    /// Options that are not given are the client's, or the library's, defaults.
    public init(
        payload: Data? = nil, fingerprint: String? = nil, retention: Retention? = nil, lease: Duration? = nil,
        wait: Duration? = nil, onFailure: OnFailure? = nil
    ) {
        self.payload = payload
        self.fingerprint = fingerprint
        self.retention = retention
        self.lease = lease
        self.wait = wait
        self.onFailure = onFailure
    }

    var native: RunWith {
        RunWith(
            payload: payload, fingerprint: fingerprint, retention: retention?.seconds, lease: lease.map(seconds),
            wait: wait.map(seconds), onFailure: onFailure?.rawValue)
    }
}

/// Thrown by work to choose what repetitions get, and what becomes of the key. A repetition of a stored failure throws a
/// ``PolylatchError`` with the code `failed` and this answer.
public struct WorkFailed: Error, CustomStringConvertible {
    /// What went wrong, for display.
    public let description: String
    /// What repetitions get.
    public let answer: Data
    /// What becomes of the key; without it, as the options say.
    public let onFailure: OnFailure?

    /// Without an answer, repetitions get the message.
    public init(_ message: String, answer: Data? = nil, onFailure: OnFailure? = nil) {
        description = message
        self.answer = answer ?? Data(message.utf8)
        self.onFailure = onFailure
    }
}

/// The claim on a key under which idempotent work runs. It is renewed until the work has ended.
public struct Claim: Sendable {
    let slot: RunSlot

    /// Larger than that of every claim on the same key before. Hand it to what the work changes.
    public var fencingToken: Int64 { slot.fencingToken() }

    /// How many runs of this key began since it was free; more than 1 if one before died, so that its work may be done
    /// in part.
    public var runs: Int64 { slot.runs() }

    /// For how long it may be relied on from now; zero once it is over.
    public var remaining: Duration { .seconds(slot.remaining()) }

    /// Throws `lease_lost` if it was lost: another client may do the work. Costs no request.
    public func check() throws {
        try told { try slot.check() }
    }

    /// Calls `listener` with the reason when it is lost, on a thread of its own; never after the work has ended.
    public func onLost(_ listener: @escaping @Sendable (String) -> Void) throws {
        try told { try slot.onLost(listener: Listener(listener)) }
    }
}

/// The keys and one-time tokens of one scope; see ``Client/idempotency(_:)``.
public struct Idempotency: Sendable {
    let client: Client
    /// The operation, and the caller it is done for.
    public let scope: String

    /// Does the work of a key, unless it was done: then its stored answer is returned. The result has at most 1 MiB.
    ///
    /// `key`: what is unique to one request, 1 to 255 bytes, made by its client, such as a UUID. What `work` throws is
    /// thrown on, once it is stored or its key is freed; if the store did not take that, the key is free when the lease
    /// ends. A task that is cancelled while it waits gets
    /// `CancellationError`; work that throws that stores nothing, and the key is free when the lease ends.
    ///
    /// Throws `in_progress`, `payload_mismatch`, `failed` with the stored answer, `result_too_large`, `not_recorded`,
    /// and errors of the store before the work.
    public func run(
        _ key: String, options: RunOptions = RunOptions(), work: (Claim) async throws -> Data
    ) async throws -> Outcome<Data> {
        try Task.checkCancellation()
        let slot = try told { try client.native.runSlot(scope: scope, key: key, with: options.native) }
        // Nothing once it is finished.
        defer { slot.abandon() }
        let entry = try await entered(slot)
        if !entry.mine {
            if let fault = entry.failure { throw PolylatchError(fault, answer: entry.answer) }
            return Outcome(value: entry.answer ?? Data(), replayed: true)
        }
        let result: Data
        do {
            result = try await work(Claim(slot: slot))
        } catch let cancelled as CancellationError {
            throw cancelled
        } catch {
            let failed = error as? WorkFailed
            let answer = failed?.answer ?? Data("\(String(reflecting: type(of: error))): \(error)".utf8)
            // What the work threw is not replaced by a failure that could not be stored.
            try? await slot.fail(answer: answer, fate: failed?.onFailure?.rawValue)
            throw error
        }
        try await told { try await slot.complete(result: result) }
        return Outcome(value: result, replayed: false)
    }

    /// As `run`, for a text: other languages read it as JSON if it is.
    public func runText(
        _ key: String, options: RunOptions = RunOptions(), work: (Claim) async throws -> String
    ) async throws -> Outcome<String> {
        let outcome = try await run(key, options: options) { Data(try await work($0).utf8) }
        return Outcome(value: String(decoding: outcome.value, as: UTF8.self), replayed: outcome.replayed)
    }

    /// Deletes what is stored for a key, unless a client works on it: `forgotten`, `absent` or `running`.
    public func forget(_ key: String) async throws -> String {
        try await told { try await client.native.forgetKey(scope: scope, key: key) }
    }

    /// Issues a token that can be consumed once within `ttl`, 1 s to 10 years.
    public func issue(ttl: Duration) async throws -> String {
        try await told { try await client.native.issueToken(scope: scope, ttl: seconds(ttl)) }
    }

    /// Consumes a token: `first`, `duplicate` or `unknown`. However many calls do so at once, one is the first.
    public func consume(_ token: String) async throws -> String {
        try await told { try await client.native.consumeToken(scope: scope, token: token) }
    }

    private func entered(_ slot: RunSlot) async throws -> RunEntry {
        do {
            // The generated code does not hear of a task's cancellation.
            return try await withTaskCancellationHandler {
                try await told { try await slot.startRun() }
            } onCancel: {
                slot.cancel()
            }
        } catch {
            try Task.checkCancellation()
            throw error
        }
    }
}
