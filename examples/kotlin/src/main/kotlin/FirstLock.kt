/** A lock is taken, used and released. */
package firstlock

import polylatch.Client
import kotlin.time.Duration.Companion.seconds

suspend fun main() {
    Client.connect(System.getenv("POLYLATCH_URL") ?: "memory:").use { client ->
        client.withLock("orders/42", lease = 30.seconds, wait = 5.seconds) { guard ->
            // Hand the token to whatever is protected: it refuses writes of holders from before.
            println("held for another ${guard.remaining.inWholeSeconds} s, write with token ${guard.fencingToken}")
            check(client.lock("orders/42").tryAcquire() == null) { "another client got in" }
        }
        println("released")
    }
}
