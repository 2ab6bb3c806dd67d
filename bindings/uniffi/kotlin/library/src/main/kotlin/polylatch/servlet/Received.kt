package polylatch.servlet

import jakarta.servlet.AsyncContext
import jakarta.servlet.ReadListener
import jakarta.servlet.ServletException
import jakarta.servlet.ServletInputStream
import jakarta.servlet.ServletRequest
import jakarta.servlet.ServletResponse
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletRequestWrapper
import jakarta.servlet.http.Part
import java.io.BufferedReader
import java.io.ByteArrayInputStream
import java.io.ByteArrayOutputStream
import java.io.InputStreamReader

/** A request whose body was read: what of it is compared, and the bytes that the application still reads. */
internal class Received private constructor(val compared: ByteArray, val unread: ByteArray) {
    companion object {
        /** Null if the body has more than [most] bytes. */
        fun of(request: HttpServletRequest, most: Int): Received? {
            if (request.contentLengthLong > most) return null
            val compared = Parts()
            listOf("servlet", request.method, request.requestURI, request.queryString.orEmpty()).forEach(compared::add)
            // Once its body is read, the container finds no fields in it any more: it is asked for them first. They come in the
            // order of the client, which may differ in a repetition.
            if (isForm(request)) {
                request.parameterMap.toSortedMap().forEach { (name, values) -> (listOf(name) + values).forEach(compared::add) }
                // The boundary of a repetition is another one.
                val files = files(request)
                if (files.sumOf { it.size } > most) return null
                files.forEach { part ->
                    listOf(part.name, part.submittedFileName.orEmpty(), part.contentType.orEmpty()).forEach(compared::add)
                    compared.add(part.inputStream.use { it.readAllBytes() })
                }
            }
            val unread = request.inputStream.readNBytes(most)
            if (request.inputStream.read() != -1) return null
            compared.add(unread)
            return Received(compared.bytes(), unread)
        }

        private fun isForm(request: HttpServletRequest): Boolean {
            val type = request.contentType?.substringBefore(';')?.trim()?.lowercase()
            return type == "application/x-www-form-urlencoded" || type == "multipart/form-data"
        }

        private fun files(request: HttpServletRequest): Collection<Part> = try {
            if (request.contentType.trim().startsWith("multipart", ignoreCase = true)) request.parts else emptyList()
        } catch (none: IllegalStateException) {
            // No servlet that reads parts: it gets the body as it is.
            emptyList()
        } catch (none: ServletException) {
            emptyList()
        }
    }

    /** Texts and bytes, each with its length, so that no two lists of them are the same bytes. */
    private class Parts {
        private val whole = ByteArrayOutputStream()

        fun add(text: String): Unit = add(text.encodeToByteArray())

        fun add(bytes: ByteArray) {
            whole.writeBytes("${bytes.size}:".encodeToByteArray())
            whole.writeBytes(bytes)
        }

        fun bytes(): ByteArray = whole.toByteArray()
    }
}

/** The request as the application gets it. */
internal class ReceivedRequest(request: HttpServletRequest, body: ByteArray) : HttpServletRequestWrapper(request) {
    private val stream = Bytes(body)
    private val lines by lazy { BufferedReader(InputStreamReader(stream, characterEncoding ?: "ISO-8859-1")) }

    override fun getInputStream(): ServletInputStream = stream

    override fun getReader(): BufferedReader = lines

    override fun isAsyncSupported(): Boolean = false

    override fun startAsync(): AsyncContext = throw refused()

    override fun startAsync(request: ServletRequest?, response: ServletResponse?): AsyncContext = throw refused()

    private fun refused() = IllegalStateException(
        "a request with an idempotency key cannot be answered asynchronously: its response is stored when the filter returns; " +
            "answer it in the thread of the request, or leave its URL out of the filter's mapping",
    )

    private class Bytes(body: ByteArray) : ServletInputStream() {
        private val left = ByteArrayInputStream(body)

        override fun read(): Int = left.read()

        override fun read(into: ByteArray, from: Int, length: Int): Int = left.read(into, from, length)

        override fun available(): Int = left.available()

        override fun isFinished(): Boolean = left.available() == 0

        override fun isReady(): Boolean = true

        override fun setReadListener(listener: ReadListener?): Unit =
            throw IllegalStateException("the body of a request with an idempotency key is read already; read it without a listener")
    }
}
