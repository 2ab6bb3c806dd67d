package polylatch.tests

import com.google.gson.JsonObject
import com.google.gson.JsonParser
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import polylatch.Client
import polylatch.PolylatchException
import java.io.File
import java.nio.file.Files
import java.util.UUID
import kotlin.test.assertFailsWith
import kotlin.time.Duration.Companion.seconds

/** A URL of each store; nobody else's locks are there. */
fun stores(): List<String> {
    val file = Files.createTempDirectory("polylatch").resolve("locks.db").toFile()
    file.deleteOnExit()
    val redis = checkNotNull(System.getenv("POLYLATCH_TEST_REDIS")) { "bindings/uniffi/test starts a Redis" }
    return listOf("memory:${UUID.randomUUID()}", "sqlite:$file", "$redis?prefix=${UUID.randomUUID()}")
}

/** Runs a test with every store, and never for ever. */
fun onEveryStore(test: suspend CoroutineScope.(url: String) -> Unit) = stores().forEach { url ->
    runBlocking(Dispatchers.Default) { withTimeout(60.seconds) { test(url) } }
}

fun on(url: String, test: suspend CoroutineScope.(Client) -> Unit) = runBlocking(Dispatchers.Default) {
    withTimeout(60.seconds) { Client.connect(url).use { client -> test(client) } }
}

val errors: Map<String, JsonObject> by lazy {
    val file = File(checkNotNull(System.getenv("POLYLATCH_ERRORS_JSON")))
    val table = JsonParser.parseString(file.readText()).asJsonObject
    listOf("errors", "idempotency_errors").flatMap { table[it].asJsonArray }
        .map { it.asJsonObject }.associateBy { it["code"].asString }
}

/** The call fails with this code, as the table of all errors says, and the text has these words. */
inline fun fails(code: String, vararg words: String, call: () -> Unit): PolylatchException {
    val error = assertFailsWith<PolylatchException> { call() }
    val row = errors.getValue(error.code)
    check(error.code == code) { "$code expected, not $error" }
    check(error.retry == row["retry"].asString) { "$error: ${error.retry}" }
    check(row["effects"].asJsonArray.any { it.asString == error.effect }) { "$error: ${error.effect}" }
    check(error.javaClass.simpleName == "${row["kind"].asString}Exception") { "$error" }
    check(error.hint.isNotEmpty())
    words.forEach { check(it in error.message!!) { "$it is not in: ${error.message}" } }
    return error
}
