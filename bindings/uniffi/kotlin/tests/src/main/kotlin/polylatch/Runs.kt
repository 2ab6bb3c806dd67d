package polylatch.shim

import com.google.gson.JsonObject
import com.google.gson.JsonParser
import com.google.gson.JsonPrimitive
import kotlinx.coroutines.CompletableDeferred
import polylatch.Client
import polylatch.OnFailure
import polylatch.RunOptions
import polylatch.WorkFailedException
import java.util.concurrent.ConcurrentHashMap
import kotlin.time.Duration.Companion.milliseconds

private val options = setOf("lease_ms", "wait_ms", "on_failure")

/** How far work has come that waits. */
private class Gate {
    val begun = CompletableDeferred<Unit>()
    val mayEnd = CompletableDeferred<Unit>()
}

/** Idempotent work that returns, fails or waits as the runner says. */
internal class Runs {
    private val gates = ConcurrentHashMap<String, Gate>()

    private fun gate(request: JsonObject) = gates.computeIfAbsent(request.text("waits")) { Gate() }

    suspend fun run(client: Client, request: JsonObject): Map<String, Any?> {
        // As JSON, which is what other languages read.
        val value = JsonPrimitive(request.text("value")).toString()
        val outcome = client.idempotency(request.text("scope")).runText(request.text("key"), with(request)) {
            if (request.given("waits") != null) {
                gate(request).begun.complete(Unit)
                gate(request).mayEnd.await()
            }
            if (request.given("fails")?.asBoolean == true) {
                throw WorkFailedException("the work fails", value.encodeToByteArray())
            }
            value
        }
        return mapOf("value" to JsonParser.parseString(outcome.value).asString, "replayed" to outcome.replayed)
    }

    suspend fun working(request: JsonObject) = gate(request).begun.await()

    fun end(request: JsonObject) = gate(request).mayEnd.complete(Unit)
}

private fun with(request: JsonObject): RunOptions {
    val given = request.given("options")?.asJsonObject ?: JsonObject()
    given.keySet().firstOrNull { it !in options }?.let { error("there is no option $it") }
    return RunOptions(
        payload = request.given("payload")?.asString?.encodeToByteArray(),
        lease = given["lease_ms"]?.asLong?.milliseconds,
        wait = given["wait_ms"]?.asLong?.milliseconds,
        onFailure = given["on_failure"]?.asString?.let { OnFailure.valueOf(it.uppercase()) },
    )
}

/** What the request has of this; a null is nothing. */
private fun JsonObject.given(key: String) = get(key)?.takeUnless { it.isJsonNull }
