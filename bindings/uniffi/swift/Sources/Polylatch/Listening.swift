import Foundation
import PolylatchNative

/// Calls a closure with the events of one client, in a task of its own.
final class Listening: Sendable {
    /// How long ``Client/close()`` waits for the closure.
    private static let lastCalls = Duration.seconds(5)

    private let task: Task<Void, Never>
    private let stopped: Flag

    /// Once the client is connected.
    init(_ events: NativeEvents, _ onEvent: @escaping @Sendable (LockEvent) -> Void) {
        let stopped = Flag()
        self.stopped = stopped
        task = Task.detached {
            while let batch = try? await events.nextEvents() {
                for event in batch where !stopped.isSet { onEvent(event) }
            }
        }
    }

    /// Returns when all events were handed over, also in a cancelled task.
    func finish() async {
        let (task, stopped, isOver) = (task, stopped, Flag())
        await withCheckedContinuation { continuation in
            let limit = Task.detached {
                guard (try? await Task.sleep(for: Self.lastCalls)) != nil, isOver.set() else { return }
                _ = stopped.set()
                continuation.resume()
            }
            Task.detached {
                await task.value
                limit.cancel()
                if isOver.set() { continuation.resume() }
            }
        }
    }
}

/// A flag that is set once.
private final class Flag: @unchecked Sendable {
    private let lock = NSLock()
    private var value = false

    var isSet: Bool { lock.withLock { value } }

    /// Whether it was not set before.
    func set() -> Bool {
        lock.withLock {
            defer { value = true }
            return !value
        }
    }
}
