/** What a call costs, and whether memory stays: `Measure CYCLES URL…`. */
package polylatch.measure

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import polylatch.Client
import java.io.File
import kotlin.system.exitProcess
import kotlin.time.Duration
import kotlin.time.TimeSource

private const val MOST_GROWTH_BYTES = 24L * 1024 * 1024

private fun resident(): Long {
    repeat(3) { System.gc() }
    // Objects that were found unused are given back by a thread of their own.
    Thread.sleep(200)
    val pages = File("/proc/self/statm").readText().split(" ")[1].toLong()
    return pages * 4096
}

private inline fun each(times: Int, call: () -> Unit): Duration {
    val started = TimeSource.Monotonic.markNow()
    repeat(times) { call() }
    return started.elapsedNow() / times
}

private suspend fun cost(url: String) {
    val client = Client.connect(url)
    val lock = client.lock("measured")
    val cycle = suspend { lock.acquire().release() }
    repeat(2_000) { cycle() }
    val both = each(3_000) { cycle() }
    val guard = lock.acquire()
    repeat(20_000) { guard.check() }
    val check = each(50_000) { guard.check() }
    guard.release()
    println("kotlin ${url.substringBefore(':')} check_ns=${check.inWholeNanoseconds} acquire_release_ns=${both.inWholeNanoseconds}")
    client.close()
}

fun main(arguments: Array<String>): Unit = runBlocking(Dispatchers.Default) {
    val cycles = arguments[0].toInt()
    arguments.drop(1).forEach { cost(it) }

    val client = Client.connect("memory:cycles")
    suspend fun cycle() = client.withLock("cycle") { guard -> guard.check() }
    repeat(cycles / 4) { cycle() }
    val before = resident()
    repeat(cycles) { cycle() }
    val growth = resident() - before
    println("kotlin memory cycles=$cycles growth_kib=${growth / 1024}")
    client.close()
    if (growth > MOST_GROWTH_BYTES) exitProcess(1)
}
