/** Idempotent requests of servlets, and of what runs on them, such as Spring MVC. */
package polylatch.servlet

import jakarta.servlet.Filter
import jakarta.servlet.FilterChain
import jakarta.servlet.ServletRequest
import jakarta.servlet.ServletResponse
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.runInterruptible
import polylatch.Client
import polylatch.InProgressException
import polylatch.InvalidArgumentException
import polylatch.OnFailure
import polylatch.PayloadMismatchException
import polylatch.PolylatchException
import polylatch.ResultTooLargeException
import polylatch.RunOptions
import polylatch.WorkFailedException
import java.time.Duration
import kotlin.time.toKotlinDuration

/** Says who sent a request. */
public fun interface Caller {
    /**
     * Returns the caller's identity, which was checked before; the text is a part of the scope of the key. With null the
     * request is anonymous, and is handled as if it had no key.
     */
    public fun of(request: HttpServletRequest): String?
}

/**
 * Handles each request with the header `Idempotency-Key` once. Every repetition gets the stored response, marked with the
 * header `Idempotency-Replayed: true`. The client makes the key, such as a UUID, and sends it with every repetition of one
 * request. The header is that of the IETF draft draft-ietf-httpapi-idempotency-key-header.
 *
 * - 400: the key breaks a rule, or is missing where it is required.
 * - 409: the request with this key is being handled, or its response was too large to be stored.
 * - 413: the body is larger than [maxBody] bytes.
 * - 422: the key was used for another request: method, URL or body differ.
 *
 * Two callers never get each other's responses; put the filter behind that of authentication. Of a response, the status, the
 * body and the headers are stored, except `Set-Cookie`, `Date` and those of one connection; at most 1 MiB in all. It is sent
 * when it is stored, so it is not streamed, and a request with a key cannot be answered asynchronously: `startAsync` throws
 * `IllegalStateException`. What `sendError` answers is sent again as an error, so that the container makes its page again.
 *
 * A response of 500 or more, and an exception, free the key, and the next repetition is handled again. That is right only if
 * what failed had no effect: with [storeServerErrors] they are stored, too.
 *
 * Every method with an option returns another filter.
 */
public class IdempotencyFilter private constructor(
    private val client: Client,
    private val caller: Caller,
    private val with: With,
) : Filter {
    /** A filter for requests with the methods POST and PATCH. */
    public constructor(client: Client, caller: Caller) : this(client, caller, With())

    /** The same for Java. */
    public constructor(client: polylatch.blocking.Client, caller: Caller) : this(client.client, caller)

    private data class With(
        val methods: Set<String> = setOf("POST", "PATCH"),
        val header: String = "Idempotency-Key",
        val isRequired: Boolean = false,
        val run: RunOptions = RunOptions(wait = kotlin.time.Duration.ZERO, onFailure = OnFailure.FREE),
        val maxBody: Int = 1 shl 20,
        val storeServerErrors: Boolean = false,
    )

    private fun like(with: With) = IdempotencyFilter(client, caller, with)

    /** Which requests may have a key. */
    public fun methods(vararg methods: String): IdempotencyFilter = like(with.copy(methods = methods.map { it.uppercase() }.toSet()))

    /** The name of the header with the key. */
    public fun header(name: String): IdempotencyFilter = like(with.copy(header = name))

    /** Whether such a request without a key is refused. */
    public fun required(required: Boolean): IdempotencyFilter = like(with.copy(isRequired = required))

    /** How long a response is kept: 1 s to 10 years, 24 h by default. */
    public fun retention(retention: Duration): IdempotencyFilter = like(with.copy(run = with.run.retention(retention)))

    /** Length of the claim's lease: 100 ms to a day. A process that dies blocks its key for so long. */
    public fun lease(lease: Duration): IdempotencyFilter = like(with.copy(run = with.run.lease(lease)))

    /** How long a repetition waits for the response of the first request before it gets 409; not at all by default. */
    public fun waitAtMost(wait: Duration): IdempotencyFilter = like(with.copy(run = with.run.waitAtMost(wait)))

    /** The largest body of a request with a key, in bytes; 1 MiB by default. */
    public fun maxBody(bytes: Int): IdempotencyFilter {
        require(bytes >= 0) { "maxBody is $bytes; it must be zero or more bytes" }
        return like(with.copy(maxBody = bytes))
    }

    /** Whether responses of 500 or more are stored, and exceptions as a response of 500. */
    public fun storeServerErrors(store: Boolean): IdempotencyFilter = like(with.copy(storeServerErrors = store))

    override fun doFilter(request: ServletRequest, response: ServletResponse, chain: FilterChain) {
        if (request !is HttpServletRequest || response !is HttpServletResponse || request.getAttribute(HANDLED) != null) {
            return chain.doFilter(request, response)
        }
        val key = key(request)
        if (request.method !in with.methods || key == null && !with.isRequired) return chain.doFilter(request, response)
        if (key == null) return refuse(response, 400, "this request needs the header ${with.header}, a key made by its client")
        val who = caller.of(request) ?: return chain.doFilter(request, response)
        val received = Received.of(request, with.maxBody)
            ?: return refuse(response, 413, "the body of a request with a key has at most ${with.maxBody} bytes")
        // A forward or an error page passes the filter again.
        request.setAttribute(HANDLED, true)
        Handling(request, response, received, chain).answer(key, who)
    }

    private fun key(request: HttpServletRequest): String? {
        val text = request.getHeader(with.header)?.trim() ?: return null
        // A string of structured fields (RFC 9651), or as most clients send it.
        return if (text.length > 1 && text.startsWith('"') && text.endsWith('"')) text.substring(1, text.length - 1) else text
    }

    private inner class Handling(
        request: HttpServletRequest,
        private val response: HttpServletResponse,
        private val received: Received,
        private val chain: FilterChain,
    ) {
        private val given = ReceivedRequest(request, received.unread)
        private val kept = KeptResponse(response)
        private var hasBegun = false
        private var thrown: Exception? = null
        private var isAnswered = false

        fun answer(key: String, who: String) {
            val keys = client.idempotency("http/$who")
            val outcome = try {
                runBlocking { keys.run(key, with.run.payload(received.compared)) { runInterruptible { work() } } }
            } catch (error: Exception) {
                return failed(error)
            }
            thrown?.let { throw it }
            if (outcome.replayed) StoredResponse.read(outcome.value).replay(response) else kept.send()
        }

        /** Has the request handled. Its response is kept back until it is stored: a client that got one gets the same one again. */
        private fun work(): ByteArray {
            hasBegun = true
            try {
                chain.doFilter(given, kept)
            } catch (error: InterruptedException) {
                // What was done is not known.
                throw error
            } catch (error: Exception) {
                thrown = error
                if (!with.storeServerErrors) throw WorkFailedException("$error", onFailure = OnFailure.FREE)
                return StoredResponse.error(SERVER_ERROR).bytes()
            }
            isAnswered = true
            if (kept.status >= SERVER_ERROR && !with.storeServerErrors) {
                throw WorkFailedException("status ${kept.status}", onFailure = OnFailure.FREE)
            }
            return StoredResponse.of(kept).bytes()
        }

        private fun failed(error: Exception) {
            // What the application threw.
            thrown?.let { throw it }
            if (isAnswered) {
                // The work is done, so its response is sent whether it is stored or not.
                if (error !is WorkFailedException) LOG.log(System.Logger.Level.WARNING, "$NOT_STORED: ${error.message}")
                return kept.send()
            }
            val status = if (hasBegun) null else statusOf(error)
            if (status == null) throw error
            if (error is InProgressException) response.setHeader("Retry-After", "1")
            refuse(response, status, error.message.orEmpty())
        }
    }

    private companion object {
        const val SERVER_ERROR = 500
        const val HANDLED = "polylatch.idempotency"
        const val NOT_STORED = "the response to a request with a key is not stored"
        val LOG: System.Logger = System.getLogger("polylatch")

        fun statusOf(error: Exception): Int? = when (error as? PolylatchException) {
            is InvalidArgumentException -> 400
            is InProgressException, is ResultTooLargeException -> 409
            is PayloadMismatchException -> 422
            else -> null
        }

        /** Answers with problem details (RFC 9457). */
        fun refuse(response: HttpServletResponse, status: Int, detail: String) {
            val body = """{"type":"about:blank","status":$status,"detail":${quoted(detail)}}""".encodeToByteArray()
            response.status = status
            response.contentType = "application/problem+json"
            response.setContentLength(body.size)
            response.outputStream.write(body)
        }

        private fun quoted(text: String): String = text.asIterable().joinToString("", "\"", "\"") { char ->
            when {
                char == '"' || char == '\\' -> "\\$char"
                char < ' ' -> "\\u%04x".format(char.code)
                else -> char.toString()
            }
        }
    }
}
