/** What a call costs, and whether memory stays: `Measure CYCLES URL…`. */
package polylatch.measure

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.runBlocking
import polylatch.Client
import java.io.File
import kotlin.system.exitProcess
import kotlin.time.Duration
import kotlin.time.TimeSource

/**
 * Of each cycle, in one of the calmest parts. What leaks, leaks in every part; what the JVM compiles, and what it returns to the system,
 * shows in some of them.
 */
private const val MOST_GROWTH_BYTES = 64L

/** In how many parts the growth is measured, one by one. */
private const val PARTS = 10

/** Before it are the parts in which memory was returned. */
private const val CALM_PART = 2

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
    val growths = List(PARTS) {
        val before = resident()
        repeat(cycles / PARTS) { cycle() }
        resident() - before
    }
    println("kotlin memory cycles=$cycles growth_kib=${growths.map { it / 1024 }}")
    client.close()
    if (growths.sorted()[CALM_PART] > MOST_GROWTH_BYTES * cycles / PARTS) {
        System.err.println("memory grew by more than $MOST_GROWTH_BYTES bytes a cycle")
        exitProcess(1)
    }
}
