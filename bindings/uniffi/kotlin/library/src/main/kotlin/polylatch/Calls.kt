package polylatch

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.withContext
import kotlin.coroutines.ContinuationInterceptor

/**
 * A call that suspends. Without a dispatcher, as in `suspend fun main`, or with the unconfined one, a coroutine
 * goes on where it is woken: that would be the native thread that wakes all others.
 */
internal suspend fun <T> dispatched(call: suspend () -> T): T {
    val dispatcher = currentCoroutineContext()[ContinuationInterceptor]
    return if (dispatcher == null || dispatcher === Dispatchers.Unconfined) {
        withContext(Dispatchers.Default) { told { call() } }
    } else {
        told { call() }
    }
}

/** A call that is carried out to its end, also in a coroutine that was cancelled. */
internal suspend fun <T> finishing(call: suspend () -> T): T = withContext(NonCancellable) { dispatched(call) }
