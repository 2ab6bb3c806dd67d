package polylatch.servlet

import jakarta.servlet.ServletOutputStream
import jakarta.servlet.WriteListener
import jakarta.servlet.http.HttpServletResponse
import jakarta.servlet.http.HttpServletResponseWrapper
import java.io.ByteArrayOutputStream
import java.io.OutputStreamWriter
import java.io.PrintWriter

/** A response that is kept back: its body and its end are here, its status and headers in the container's, which sends nothing. */
internal class KeptResponse(private val real: HttpServletResponse) : HttpServletResponseWrapper(real) {
    private val whole = ByteArrayOutputStream()
    private val stream = Stream()
    private var lines: PrintWriter? = null
    private var isOver = false

    /** The text of `sendError`, if that was called. */
    var error: String? = null
        private set

    fun body(): ByteArray {
        lines?.flush()
        return whole.toByteArray()
    }

    /** Sends it. */
    fun send() {
        val body = body()
        error?.let { return real.fail(status, it) }
        real.write(body)
    }

    override fun getOutputStream(): ServletOutputStream = stream

    override fun getWriter(): PrintWriter = lines ?: run {
        // From here on it is said with the type of the content, as a container does it.
        val encoding = characterEncoding ?: "ISO-8859-1"
        super.setCharacterEncoding(encoding)
        PrintWriter(OutputStreamWriter(stream, encoding)).also { lines = it }
    }

    override fun setCharacterEncoding(encoding: String?) {
        if (lines == null) super.setCharacterEncoding(encoding)
    }

    override fun setContentType(type: String?) {
        val encoding = if (lines == null) null else characterEncoding
        super.setContentType(type)
        encoding?.let { super.setCharacterEncoding(it) }
    }

    // The length is that of what was written.
    override fun setContentLength(length: Int) {}

    override fun setContentLengthLong(length: Long) {}

    override fun flushBuffer() {}

    override fun isCommitted(): Boolean = isOver

    override fun resetBuffer() {
        check(!isOver) { "the response is sent" }
        lines?.flush()
        whole.reset()
    }

    override fun reset() {
        resetBuffer()
        lines = null
        super.reset()
    }

    override fun sendError(status: Int): Unit = sendError(status, null)

    override fun sendError(status: Int, message: String?) {
        resetBuffer()
        super.setStatus(status)
        error = message.orEmpty()
        isOver = true
    }

    override fun sendRedirect(location: String): Unit = sendRedirect(location, HttpServletResponse.SC_FOUND, true)

    override fun sendRedirect(location: String, clearBuffer: Boolean): Unit = sendRedirect(location, HttpServletResponse.SC_FOUND, clearBuffer)

    override fun sendRedirect(location: String, status: Int): Unit = sendRedirect(location, status, true)

    override fun sendRedirect(location: String, status: Int, clearBuffer: Boolean) {
        if (clearBuffer) resetBuffer() else check(!isOver) { "the response is sent" }
        super.setStatus(status)
        super.setHeader("Location", location)
        isOver = true
    }

    private inner class Stream : ServletOutputStream() {
        override fun write(byte: Int) {
            if (!isOver) whole.write(byte)
        }

        override fun write(bytes: ByteArray, from: Int, length: Int) {
            if (!isOver) whole.write(bytes, from, length)
        }

        override fun isReady(): Boolean = true

        override fun setWriteListener(listener: WriteListener?): Unit =
            throw IllegalStateException("the response to a request with an idempotency key is kept back; write it without a listener")
    }
}

/** A response as it is stored: lines of text, an empty one, and the body. */
internal class StoredResponse private constructor(
    private val status: Int,
    /** The text of an error whose page the container makes. */
    private val error: String?,
    private val headers: List<Pair<String, String>>,
    private val body: ByteArray,
) {
    fun bytes(): ByteArray {
        val first = if (error == null) "$status" else "$status ${error.replace(LINE_ENDS, " ")}"
        val lines = listOf(first) + headers.map { (name, value) -> "$name: ${value.replace(LINE_ENDS, " ")}" }
        return lines.joinToString("") { "$it\n" }.encodeToByteArray() + '\n'.code.toByte() + body
    }

    fun replay(response: HttpServletResponse) {
        response.status = status
        headers.forEach { (name, value) ->
            if (name == CONTENT_TYPE) response.contentType = value else response.addHeader(name, value)
        }
        response.setHeader("Idempotency-Replayed", "true")
        if (error == null) response.write(body) else response.fail(status, error)
    }

    companion object {
        private const val CONTENT_TYPE = "content-type"
        private val LINE_ENDS = Regex("[\r\n]+")

        /** Of one connection (RFC 9110, 7.6.1), of one moment, or of one browser; and what is stored beside the headers. */
        private val NOT_STORED = setOf(
            "connection", "date", "keep-alive", "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
            "content-length", CONTENT_TYPE,
        )

        fun of(kept: KeptResponse): StoredResponse {
            val headers = kept.headerNames.distinctBy { it.lowercase() }.filter { it.lowercase() !in NOT_STORED }
                .flatMap { name -> kept.getHeaders(name).map { name to it } }
            // Not every container has it among the headers.
            val type = kept.contentType?.let { listOf(CONTENT_TYPE to it) }.orEmpty()
            return StoredResponse(kept.status, kept.error, type + headers, kept.body())
        }

        fun error(status: Int): StoredResponse = StoredResponse(status, "", emptyList(), ByteArray(0))

        fun read(stored: ByteArray): StoredResponse {
            val end = (1 until stored.size).first { stored[it] == LINE && stored[it - 1] == LINE }
            val lines = stored.decodeToString(0, end - 1).split('\n')
            val status = lines.first().substringBefore(' ').toInt()
            val error = lines.first().substringAfter(' ', "").takeIf { ' ' in lines.first() }
            val headers = lines.drop(1).map { it.substringBefore(": ") to it.substringAfter(": ") }
            return StoredResponse(status, error, headers, stored.copyOfRange(end + 1, stored.size))
        }

        private const val LINE = '\n'.code.toByte()
    }
}

private fun HttpServletResponse.write(body: ByteArray) {
    // Some statuses have none, and no length either.
    if (body.isEmpty()) return
    setContentLength(body.size)
    outputStream.write(body)
}

private fun HttpServletResponse.fail(status: Int, message: String) =
    if (message.isEmpty()) sendError(status) else sendError(status, message)
