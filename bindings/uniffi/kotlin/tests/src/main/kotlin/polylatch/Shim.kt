/** Lets the conformance runner drive the jar; the protocol stands in `tests/conformance/README.md`. */
package polylatch.shim

import com.google.gson.Gson
import com.google.gson.GsonBuilder
import com.google.gson.JsonObject
import com.google.gson.JsonParser
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import polylatch.Acquirable
import polylatch.Capability
import polylatch.Client
import polylatch.Guard
import polylatch.GuardSet
import polylatch.Held
import polylatch.LeaseLostException
import polylatch.LockEvent
import polylatch.PolylatchException
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.ConcurrentLinkedQueue
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds

private val gson: Gson = GsonBuilder().serializeNulls().create()
private val options = setOf("lease_ms", "wait_ms", "max_hold_ms", "beat_every_ms", "keep_idle_ms", "label", "owner", "fifo", "renew")

private class Shim {
    val clients = ConcurrentHashMap<String, Client>()
    val guards = ConcurrentHashMap<String, Held>()
    val events = ConcurrentHashMap<String, ConcurrentLinkedQueue<LockEvent>>()
    val named = ConcurrentLinkedQueue<Acquirable<Guard>>()
    val runs = Runs()

    suspend fun serve(request: JsonObject): Map<String, Any?> = when (val op = request.text("op")) {
        "connect" -> {
            val heard = ConcurrentLinkedQueue<LockEvent>()
            events[request.text("client")] = heard
            val client = Client.connect(request.text("url"), onEvent = { heard += it })
            clients[request.text("client")] = client
            mapOf("capability" to told(client.capability))
        }
        "name" -> done { named.add(wanted(request)) }
        "acquire" -> keep(request, wanted(request).acquire())
        "try" -> keep(request, wanted(request).tryAcquire())
        "lock_all" -> keep(request, set(request).acquire())
        "try_all" -> keep(request, set(request).tryAcquire())
        "release" -> done { held(request).release() }
        "check" -> done { held(request).check() }
        "beat" -> done { held(request).beat() }
        "extend" -> done { guard(request).extend(request["lease_ms"].asLong.milliseconds) }
        "lost" -> mapOf("reason" to lost(held(request)))
        "downgrade" -> guard(request).let { it.downgrade(); keep(request, it) }
        "upgrade" -> guard(request).let { keep(request, if (it.tryUpgrade()) it else null) }
        "see" -> see(request)
        "break" -> {
            val result = client(request).breakLease(
                request.text("lock"), request["token"].asLong, request.text("by"), request.text("reason"),
            )
            mapOf("outcome" to result.outcome)
        }
        "told" -> {
            val heard = events[request.text("client")].orEmpty().filter { it.lock == request.text("lock") }
            mapOf("events" to heard.map { "${it.level} ${it.event}" })
        }
        "stats" -> client(request).stats.run {
            mapOf(
                "acquired" to acquired, "refused" to refused, "timed_out" to timedOut, "held" to held,
                "waiting" to waiting, "losses" to losses.values.sum(),
            )
        }
        "run" -> runs.run(client(request), request)
        "working" -> done { runs.working(request) }
        "end_run" -> done { runs.end(request) }
        "close" -> done { client(request).close() }
        else -> error("there is no verb $op")
    }

    private inline fun done(call: () -> Unit): Map<String, Any?> {
        call()
        return emptyMap()
    }

    private fun client(request: JsonObject) =
        clients[request.text("client")] ?: error("there is no client ${request.text("client")}")

    private fun held(request: JsonObject) =
        guards[request.text("guard")] ?: error("there is no guard ${request.text("guard")}")

    private fun guard(request: JsonObject) = held(request) as Guard

    private fun wanted(request: JsonObject): Acquirable<Guard> {
        val (client, name, with) = Triple(client(request), request.text("lock"), With.of(request))
        val mode = request["mode"]?.asJsonObject
        return with.run {
            when (mode?.text("kind") ?: "mutex") {
                "mutex" -> client.lock(name, lease, wait, label, owner, maxHold, beatEvery, fifo, renew, keepIdle)
                "read" -> client.rwLock(name, lease, wait, label, owner, maxHold, beatEvery, fifo, renew).read()
                "write" -> client.rwLock(name, lease, wait, label, owner, maxHold, beatEvery, fifo, renew).write()
                else -> client.semaphore(
                    name, mode!!["capacity"].asInt, lease, wait, label, owner, maxHold, beatEvery, fifo, renew,
                ).permits(mode["count"].asInt)
            }
        }
    }

    private fun set(request: JsonObject): Acquirable<GuardSet> = With.of(request).run {
        val names = request["locks"].asJsonArray.map { it.asString }
        client(request).lockAll(names, lease, wait, label, owner, maxHold, beatEvery, fifo, renew)
    }

    private fun keep(request: JsonObject, held: Held?): Map<String, Any?> {
        if (held == null) return mapOf("held" to false)
        guards[request.text("guard")] = held
        return when (held) {
            is Guard -> mapOf("held" to true, "token" to held.fencingToken, "locks" to listOf(held.name))
            is GuardSet -> mapOf("held" to true, "locks" to held.fencingTokens.keys)
            else -> error("it is neither a guard nor a set")
        }
    }

    private suspend fun lost(held: Held): String {
        val reason = CompletableDeferred<String>()
        held.onLost(reason::complete)
        return reason.await()
    }

    private suspend fun see(request: JsonObject): Map<String, Any?> {
        val snapshot = client(request).inspect(name = request.text("lock"))
        val view = snapshot.locks.firstOrNull()
        val clients = snapshot.clients.associateBy { it.id }
        fun who(id: String?) = mapOf("pid" to clients[id]?.pid, "language" to clients[id]?.language)
        val holders = view?.holders.orEmpty().map {
            mapOf(
                "label" to it.label, "mode" to it.mode, "permits" to it.permits, "token" to it.fencingToken,
                "renewals" to it.renewals,
            ) + who(it.client)
        }
        val waiters = view?.waiters.orEmpty().map {
            mapOf("label" to it.label, "mode" to it.mode, "permits" to it.permits) + who(it.client)
        }
        return mapOf("holders" to holders, "waiters" to waiters)
    }
}

private class With(
    val lease: Duration?,
    val wait: Duration?,
    val label: String?,
    val owner: String?,
    val maxHold: Duration?,
    val beatEvery: Duration?,
    val fifo: Boolean?,
    val renew: Boolean?,
    val keepIdle: Duration?,
) {
    companion object {
        fun of(request: JsonObject): With {
            val given = request["options"]?.asJsonObject ?: JsonObject()
            given.keySet().firstOrNull { it !in options }?.let { error("there is no option $it") }
            fun length(key: String) = given[key]?.asLong?.milliseconds
            return With(
                length("lease_ms"), length("wait_ms"), given["label"]?.asString, given["owner"]?.asString,
                length("max_hold_ms"), length("beat_every_ms"), given["fifo"]?.asBoolean, given["renew"]?.asBoolean,
                length("keep_idle_ms"),
            )
        }
    }
}

internal fun JsonObject.text(key: String): String = get(key).asString

private fun told(can: Capability) = mapOf(
    "backend" to can.backend, "fifo" to can.fifo, "push" to can.push, "expiry" to can.expiry,
    "sharing" to can.sharing, "atomic_sets" to can.atomicSets, "fencing" to can.fencing,
    "min_lease" to can.minLeaseMs, "max_lease" to can.maxLeaseMs,
)

private fun told(error: PolylatchException) = mapOf(
    "code" to error.code, "retry" to error.retry, "effect" to error.effect,
    "reason" to (error as? LeaseLostException)?.reason, "message" to error.message,
)

private fun say(answer: Map<String, Any?>) = synchronized(gson) {
    println(gson.toJson(answer))
    System.out.flush()
}

fun main() {
    val shim = Shim()
    say(
        mapOf(
            "hello" to "polylatch", "protocol" to 1, "language" to "kotlin",
            "version" to polylatch.ffi.nativeVersion(), "can" to listOf("cancel", "idempotency"),
        ),
    )
    runBlocking {
        val running = ConcurrentHashMap<Long, Job>()
        val work = launch(Dispatchers.Default) { awaitCancellation() }
        for (line in generateSequence(::readLine)) {
            val request = JsonParser.parseString(line).asJsonObject
            val id = request["id"].asLong
            if (request.text("op") == "cancel") {
                running[request["target"].asLong]?.cancel()
                say(mapOf("id" to id, "ok" to emptyMap<String, Any>()))
                continue
            }
            running[id] = launch(work + Dispatchers.Default) {
                val answer = try {
                    mapOf("ok" to shim.serve(request))
                } catch (error: CancellationException) {
                    mapOf("canceled" to true)
                } catch (error: PolylatchException) {
                    mapOf("error" to told(error))
                } catch (error: Throwable) {
                    mapOf("fault" to error.toString())
                }
                running.remove(id)
                say(mapOf("id" to id) + answer)
            }
        }
        work.cancel()
    }
}
