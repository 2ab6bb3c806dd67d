package polylatch.tests

import com.google.gson.JsonArray
import com.google.gson.JsonElement
import com.google.gson.JsonObject
import com.google.gson.JsonParser
import org.junit.jupiter.api.Test
import polylatch.BoundStatement
import polylatch.ConditionalUpdate
import polylatch.Dialect
import polylatch.FencedUpdate
import polylatch.GuardedWrite
import polylatch.ProbedRow
import polylatch.Term
import polylatch.TransactionLock
import polylatch.VersionedUpdate
import java.io.File
import kotlin.test.assertEquals
import kotlin.test.assertTrue

class SqlTest {
    private val cases: List<JsonObject> =
        JsonParser.parseString(File(System.getenv("POLYLATCH_ERRORS_JSON")).resolveSibling("sql.json").readText())
            .asJsonArray.map { it.asJsonObject }

    private fun JsonObject.text(key: String): String = this[key].asString
    private fun JsonObject.texts(key: String): List<String> = this[key].asJsonArray.map { it.asString }
    private fun JsonObject.terms(key: String): List<Term> =
        this[key].asJsonArray.map { (it as JsonArray).let { pair -> Term(pair[0].asString, pair[1].asString) } }

    private fun made(case: JsonObject): GuardedWrite = when (val make = case.text("make")) {
        "conditional_update" -> ConditionalUpdate.update(
            case.text("dialect"), case.text("table"), case.terms("changes"), case.terms("conditions"), case.texts("keys"),
        )
        else -> {
            val update: (String, String, String, List<String>, List<String>) -> GuardedWrite = when (make) {
                "fenced_update" -> FencedUpdate.Companion::update
                "fenced_upsert" -> FencedUpdate.Companion::upsert
                "versioned_update" -> VersionedUpdate.Companion::update
                else -> error(make)
            }
            update(case.text("dialect"), case.text("table"), case.text("column"), case.texts("set"), case.texts("keys"))
        }
    }

    private fun lock(case: JsonObject) =
        TransactionLock(case.text("dialect"), case.text("name"), case["schema"].takeUnless { it.isJsonNull }?.asString)

    private fun same(expected: JsonElement, statement: BoundStatement?) {
        if (expected.isJsonNull) return assertEquals(null, statement)
        val bound = expected.asJsonObject
        assertEquals(bound.text("sql") to bound.texts("values"), statement?.sql to statement?.values)
    }

    @Test
    fun `the texts are those of every language`() {
        assertTrue(cases.size > 50)
        cases.forEach { case ->
            val expected = case["expect"].asJsonObject
            val isLock = case.text("make") == "transaction_lock"
            when {
                "error" in expected.keySet() -> {
                    val error = fails(expected.text("error")) { if (isLock) lock(case) else made(case) }
                    assertEquals(expected.text("message"), error.message)
                }
                isLock -> {
                    val lock = lock(case)
                    same(expected["prepare"], lock.prepare)
                    same(expected["take"], lock.take)
                    same(expected["fence"], lock.fence)
                }
                else -> {
                    val made = made(case)
                    assertEquals(expected.text("sql") to expected.texts("parameters"), made.sql to made.parameters)
                    assertEquals(
                        expected.text("probe_sql") to expected.texts("probe_parameters"),
                        made.probeSql to made.probeParameters,
                    )
                    if (made is FencedUpdate) assertEquals(expected["rows_tell"].asBoolean, made.rowsTell)
                }
            }
        }
    }

    @Test
    fun `a row says why nothing changed`() {
        fails("stale_token", "33", "34") { FencedUpdate.whyUnchanged(33, ProbedRow(34)) }
        fails("stale_token", "33", "34") { FencedUpdate.check(33, ProbedRow(34)) }
        FencedUpdate.check(34, ProbedRow(34))
        FencedUpdate.check(34, null)
        assertEquals("changed_meanwhile", FencedUpdate.whyUnchanged(34, ProbedRow(null)))
        assertEquals("missing", FencedUpdate.whyUnchanged(34, null))
        assertEquals("changed", VersionedUpdate.whyUnchanged(ProbedRow(3)))
        assertEquals("missing", VersionedUpdate.whyUnchanged(null))
        fails("invalid_argument", "-1") { FencedUpdate.check(-1, null) }
        fails("invalid_argument", "BEGIN IMMEDIATE") { TransactionLock(Dialect.SQLITE, "a") }
    }
}
