package polylatch

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeoutOrNull
import polylatch.ffi.NativeEvents
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.seconds

/** How long [Client.close] waits for the listener. */
private val LAST_CALLS = 5.seconds

/** Calls a listener with the events of one client, on a thread of its own. */
internal class Listening(private val events: NativeEvents, private val listener: (LockEvent) -> Unit) {
    private val done = CompletableDeferred<Unit>()

    @Volatile
    private var stopped = false
    private var thread: Thread? = null

    /** Once the client is connected. */
    fun begin() {
        thread = thread(isDaemon = true, name = "polylatch-events") {
            try {
                while (true) runBlocking { events.nextEvents() }?.forEach(::tell) ?: break
            } finally {
                done.complete(Unit)
                events.destroy()
            }
        }
    }

    /** Returns when all events were handed over; at once in the listener itself, which still receives the rest. */
    suspend fun finish() {
        if (Thread.currentThread() === thread) return
        withTimeoutOrNull(LAST_CALLS) { done.await() } ?: run { stopped = true }
    }

    private fun tell(event: LockEvent) {
        if (stopped) return
        try {
            listener(event)
        } catch (error: Throwable) {
            val thread = Thread.currentThread()
            thread.uncaughtExceptionHandler.uncaughtException(thread, error)
        }
    }
}
