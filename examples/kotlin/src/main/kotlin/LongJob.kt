/** A job that takes longer than its lease: renewed in the background, stopped when it hangs. */
package longjob

import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.delay
import polylatch.Client
import polylatch.LeaseLostException
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

suspend fun main() {
    Client.connect(System.getenv("POLYLATCH_URL") ?: "memory:").use { client ->
        val report = client.lock(
            "reports/nightly",
            label = "nightly report",
            lease = 1200.milliseconds,
            beatEvery = 1.seconds,
            maxHold = 60.seconds,
        )
        try {
            report.withLease { guard ->
                for (page in 1..8) {
                    delay(200.milliseconds)
                    guard.beat()
                    guard.check()
                    println("page $page done, lease good for another ${guard.remaining.inWholeMilliseconds} ms")
                }
                println("renewed ${guard.renewals} times; now the work hangs: no more beats")
                awaitCancellation()
            }
        } catch (lost: LeaseLostException) {
            println("the lock is given up: ${lost.reason}")
            check(lost.reason == "no_progress")
        }
    }
}
