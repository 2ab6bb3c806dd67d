/** Work that stops by itself when its lock is lost. */
package lostlease

import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import polylatch.Client
import polylatch.LeaseLostException
import kotlin.time.Duration.Companion.hours
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

suspend fun main() = Client.connect(System.getenv("POLYLATCH_URL") ?: "memory:").use { client ->
    coroutineScope {
        try {
            client.withLock("import", lease = 2.seconds) { guard ->
                // Meanwhile an operator ends the lease, naming the token that was looked at.
                val token = guard.fencingToken
                this@coroutineScope.launch {
                    delay(200.milliseconds)
                    client.breakLease("import", token, by = "ann@desk", reason = "the import runs in the wrong place")
                }
                delay(1.hours)
                error("this import takes an hour")
            }
        } catch (lost: LeaseLostException) {
            println("stopped the import: the lock is lost (${lost.reason})")
        }
    }
}
