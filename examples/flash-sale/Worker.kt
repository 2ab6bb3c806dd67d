/**
 * A worker of the flash sale: `flashsale.WorkerKt URL SHOP`. See README.md.
 *
 * A line in is a buyer, a line out the buyer's answer: `order 17`, `sold out`, or `busy` (ask again later).
 */
package flashsale

import polylatch.Claim
import polylatch.Client
import polylatch.InProgressException
import polylatch.NotRecordedException
import polylatch.RunOptions
import java.net.Socket
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

/** The order service of another team. It has no key that would refuse a second order of one buyer. */
private class Shop(place: String) {
    private val wire = Socket(place.substringBeforeLast(':'), place.substringAfterLast(':').toInt())
    private val lines = wire.getInputStream().bufferedReader()

    private fun ask(line: String): String {
        wire.getOutputStream().write("$line\n".toByteArray())
        return lines.readLine()
    }

    fun order(buyer: String, claim: Claim? = null): String {
        // What a run before this one may have ordered, if it died before it could say so.
        val before = ask("find $buyer")
        if (before != "none") return before
        // Another worker may have taken over from one that stood still.
        claim?.check()
        return ask("order $buyer")
    }
}

suspend fun main(args: Array<String>) {
    val shop = Shop(args[1])
    val options = RunOptions(payload = "one item".toByteArray(), lease = 4.seconds, wait = Duration.ZERO)
    Client.connect(args[0]).use { client ->
        for (buyer in generateSequence(::readLine)) {
            val answer = if ("--without-idempotency" in args) {
                shop.order(buyer)
            } else {
                try {
                    // One order for each buyer, however often the button is pressed. The workers in other languages read JSON.
                    val orders = client.idempotency("flash-sale/$buyer")
                    orders.runText("order", options) { claim -> "\"${shop.order(buyer, claim)}\"" }.value.trim('"')
                } catch (_: InProgressException) {
                    "busy"
                } catch (_: NotRecordedException) {
                    "busy"
                }
            }
            println(answer)
            System.out.flush()
        }
    }
}
