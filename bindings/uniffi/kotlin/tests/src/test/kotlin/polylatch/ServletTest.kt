package polylatch.tests

import com.google.gson.JsonParser
import jakarta.servlet.MultipartConfigElement
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.apache.catalina.startup.Tomcat
import org.apache.tomcat.util.descriptor.web.FilterDef
import org.apache.tomcat.util.descriptor.web.FilterMap
import org.junit.jupiter.api.Test
import polylatch.blocking.Client
import polylatch.servlet.IdempotencyFilter
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.nio.file.Files
import java.time.Duration.ofMinutes
import java.time.Duration.ofSeconds
import java.util.UUID
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger
import java.util.logging.Level
import java.util.logging.Logger
import kotlin.test.assertContains
import kotlin.test.assertEquals
import kotlin.test.assertNull

private typealias Answer = (order: Int, request: HttpServletRequest, response: HttpServletResponse) -> Unit

private val plain: Answer = { order, request, response ->
    val body = request.inputStream.readAllBytes().decodeToString()
    response.status = 201
    response.contentType = "text/plain"
    response.setHeader("X-Order", "$order")
    response.addHeader("Set-Cookie", "a=b")
    listOf("<a>", "<b>").forEach { response.addHeader("Link", it) }
    response.outputStream.write("$body $order".encodeToByteArray())
    response.flushBuffer()
}

/** A shop in Tomcat that makes an order for each request that gets so far. */
private class Shop(client: Client, private val answer: Answer, with: (IdempotencyFilter) -> IdempotencyFilter) : AutoCloseable {
    private val orders = AtomicInteger()
    private val user = "${UUID.randomUUID()}"
    private val http = HttpClient.newHttpClient()
    private val tomcat = Tomcat()
    val made: Int get() = orders.get()

    init {
        // What a servlet throws is expected here.
        log.level = Level.OFF
        val folder = Files.createTempDirectory("polylatch-tomcat").toFile().apply { deleteOnExit() }
        tomcat.setBaseDir(folder.path)
        tomcat.setPort(0)
        tomcat.connector.setProperty("address", "127.0.0.1")
        val context = tomcat.addContext("", folder.path)
        val shop = object : HttpServlet() {
            override fun service(request: HttpServletRequest, response: HttpServletResponse) =
                answer(orders.incrementAndGet(), request, response)
        }
        val servlet = Tomcat.addServlet(context, "shop", shop)
        servlet.multipartConfigElement = MultipartConfigElement("")
        servlet.isAsyncSupported = true
        context.addServletMappingDecoded("/*", "shop")
        val idempotency = FilterDef().apply {
            filterName = "idempotency"
            filter = with(IdempotencyFilter(client) { it.getHeader("User") })
            asyncSupported = "true"
        }
        context.addFilterDef(idempotency)
        context.addFilterMap(FilterMap().apply { filterName = "idempotency"; addURLPattern("/*") })
        tomcat.start()
    }

    fun later(
        key: String?,
        body: String = "order",
        user: String? = this.user,
        path: String = "/orders",
        method: String = "POST",
        type: String = "text/plain",
    ): CompletableFuture<HttpResponse<String>> {
        val request = HttpRequest.newBuilder(URI("http://127.0.0.1:${tomcat.connector.localPort}$path")).timeout(ofSeconds(60))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).header("Content-Type", type)
        key?.let { request.header("Idempotency-Key", it) }
        user?.let { request.header("User", it) }
        return http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString())
    }

    fun post(
        key: String?,
        body: String = "order",
        user: String? = this.user,
        path: String = "/orders",
        method: String = "POST",
        type: String = "text/plain",
    ): HttpResponse<String> = later(key, body, user, path, method, type).get()

    override fun close() {
        tomcat.stop()
        tomcat.destroy()
    }

    private companion object {
        // Kept: what no program refers to is forgotten with its level.
        val log: Logger = Logger.getLogger("org.apache")
    }
}

private operator fun HttpResponse<*>.get(header: String): String? = headers().firstValue(header).orElse(null)
private val HttpResponse<*>.replayed: String? get() = this["Idempotency-Replayed"]

/** Behind a real container, over real HTTP. */
class ServletTest {
    private fun withShop(
        answer: Answer = plain,
        with: (IdempotencyFilter) -> IdempotencyFilter = { it },
        test: (Shop) -> Unit,
    ) = stores().forEach { url ->
        Client.connect(url).use { client -> Shop(client, answer, with).use(test) }
    }

    @Test
    fun `a repeated request gets the stored response, and other callers do not`() = withShop { shop ->
        val first = shop.post("k")
        assertEquals(listOf<Any?>(201, "order 1", "1", "a=b", null), listOf(first.statusCode(), first.body(), first["X-Order"], first["Set-Cookie"], first.replayed))
        val again = shop.post("\"k\"")
        assertEquals(listOf<Any?>(201, "order 1", "1", null, "true"), listOf(again.statusCode(), again.body(), again["X-Order"], again["Set-Cookie"], again.replayed))
        listOf("Link", "Content-Type").forEach { assertEquals(first.headers().allValues(it), again.headers().allValues(it)) }
        assertEquals(listOf("<a>", "<b>"), again.headers().allValues("Link"))
        assertEquals("order 2", shop.post("k", user = "another user").body())
        assertEquals("order 3", shop.post("l").body())
        assertEquals("order 4", shop.post(null).body())
        assertEquals("order 5", shop.post("k", user = null).body())
        assertEquals("6", shop.post("k", method = "PUT")["X-Order"])
        assertEquals(6, shop.made)
    }

    @Test
    fun `bad keys and other requests are refused`() = withShop(with = { it.required(true).maxBody(10) }) { shop ->
        assertEquals(400, shop.post(null).statusCode())
        assertEquals(400, shop.post("x".repeat(256)).statusCode())
        assertEquals(413, shop.post("k", "x".repeat(11)).statusCode())
        assertEquals(201, shop.post("k").statusCode())
        val others = listOf(
            shop.post("k", "other"), shop.post("k", path = "/refunds"), shop.post("k", path = "/orders?a=1"), shop.post("k", method = "PATCH"),
        )
        others.forEach { refused ->
            assertEquals(422 to "application/problem+json", refused.statusCode() to refused["Content-Type"])
            assertContains(JsonParser.parseString(refused.body()).asJsonObject["detail"].asString, "another payload")
        }
        assertEquals(1, shop.made)
    }

    @Test
    fun `a request in progress is 409`() {
        var entered = CountDownLatch(0)
        var gate = CountDownLatch(0)
        val slow: Answer = { order, request, response ->
            entered.countDown()
            gate.await()
            plain(order, request, response)
        }
        withShop(slow) { shop ->
            entered = CountDownLatch(1)
            gate = CountDownLatch(1)
            val first = shop.later("k")
            entered.await()
            val busy = shop.post("k")
            assertEquals(409 to "1", busy.statusCode() to busy["Retry-After"])
            gate.countDown()
            assertEquals("order 1", first.get().body())
            assertEquals("order 1" to "true", shop.post("k").let { it.body() to it.replayed })
        }
    }

    @Test
    fun `a server error frees its key unless it is to be stored`() {
        val failing: Answer = { order, _, response ->
            when (order) {
                1 -> response.status = 503
                2 -> throw IllegalStateException("the printer is out of paper")
                3 -> response.sendError(500)
                else -> response.sendError(404, "unknown\norder")
            }
        }
        withShop(failing) { shop ->
            assertEquals(listOf(503, 500, 500, 404, 404), List(5) { shop.post("k").statusCode() })
            assertEquals(4, shop.made)
        }
        withShop(failing, { it.storeServerErrors(true) }) { shop ->
            listOf("k" to 503, "l" to 500, "m" to 500).forEach { (key, status) ->
                assertEquals(listOf(status to null, status to "true"), List(2) { shop.post(key).let { it.statusCode() to it.replayed } })
            }
            assertEquals(3, shop.made)
        }
    }

    @Test
    fun `a response that is too large is sent once and not made again`() =
        withShop({ _, _, response -> response.outputStream.write(ByteArray(1 shl 20)) }) { shop ->
            assertEquals(1 shl 20, shop.post("k").body().length)
            assertEquals(409, shop.post("k").statusCode())
            assertEquals(1, shop.made)
        }

    /** Fifty presses of one button at once. */
    @Test
    fun `requests at once are handled once`() = withShop(with = { it.waitAtMost(ofSeconds(30)).lease(ofSeconds(10)).retention(ofMinutes(1)) }) { shop ->
        val answers = List(50) { shop.later("k") }.map { it.get().body() }
        assertEquals(setOf("order 1"), answers.toSet())
        assertEquals(1, shop.made)
    }

    @Test
    fun `fields of forms are read and compared`() {
        val fields: Answer = { order, request, response ->
            val file = if (request.contentType.startsWith("multipart")) request.getPart("file").inputStream.readAllBytes().decodeToString() else "-"
            response.writer.print("${request.getParameter("item")} $file $order")
        }
        fun parts(boundary: String, file: String) = listOf(
            "--$boundary", "Content-Disposition: form-data; name=\"item\"", "", "pear",
            "--$boundary", "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"", "", file, "--$boundary--", "",
        ).joinToString("\r\n")
        withShop(fields, { it.maxBody(1000) }) { shop ->
            fun form(body: String) = shop.post("k", body, type = "application/x-www-form-urlencoded")
            assertEquals("pear - 1", form("item=pear&count=2").body())
            assertEquals("pear - 1", form("count=2&item=pear").body())
            assertEquals(422, form("item=pear&count=3").statusCode())
            fun upload(boundary: String, file: String) = shop.post("l", parts(boundary, file), type = "multipart/form-data; boundary=$boundary")
            assertEquals("pear content 2", upload("one", "content").body())
            // As a client that sends it again does.
            assertEquals("pear content 2", upload("two", "content").body())
            assertEquals(422, upload("one", "other").statusCode())
            assertEquals(413, upload("one", "x".repeat(1001)).statusCode())
            assertEquals(2, shop.made)
        }
    }

    @Test
    fun `a redirection, a page of the container and a text are the same again`() {
        val answers: Answer = { order, request, response ->
            when (request.getHeader("Content-Type")) {
                "redirect/x" -> response.sendRedirect("/orders/$order")
                "error/x" -> response.sendError(404, "no such order")
                else -> {
                    response.characterEncoding = "UTF-8"
                    response.contentType = "text/plain"
                    response.writer.write("größer, order ${request.reader.readText()} $order")
                    response.reset()
                    response.contentType = "text/plain;charset=UTF-8"
                    response.writer.write("größer, order $order")
                }
            }
        }
        withShop(answers) { shop ->
            listOf("redirect/x" to 302, "error/x" to 404, "text/x" to 200).forEach { (type, status) ->
                val (first, again) = List(2) { shop.post(type, type = type) }
                assertEquals(listOf(status, null), listOf(first.statusCode(), first.replayed))
                assertEquals(listOf(status, "true"), listOf(again.statusCode(), again.replayed))
                assertEquals(first.body(), again.body())
                listOf("Location", "Content-Type").forEach { assertEquals(first[it], again[it]) }
            }
            assertEquals("größer, order 3", shop.post("text/x", type = "text/x").body())
            assertContains(shop.post("error/x", type = "error/x").body(), "no such order")
            assertEquals(3, shop.made)
        }
    }

    @Test
    fun `a request with a key is not answered asynchronously`() {
        val async: Answer = { order, request, response ->
            val context = request.startAsync()
            response.writer.print("order $order")
            context.complete()
        }
        withShop(async) { shop ->
            assertEquals("order 1", shop.post(null).body())
            assertEquals(500, shop.post("k").statusCode())
            assertNull(shop.post("k").replayed)
            assertEquals(3, shop.made)
        }
    }
}
