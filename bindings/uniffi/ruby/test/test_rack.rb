# frozen_string_literal: true

require_relative "helper"
require "net/http"
require "polylatch/rack"
require "puma"
require "puma/server"
require "rack"

# Behind a real server, and what Rack demands of applications is checked on both sides of the middleware.
class TestRack < PolylatchTest
  # A shop that makes an order for each request that gets so far.
  class Shop
    attr_reader :made

    def initialize(client, options, answer)
      @made = 0
      @answer = answer
      shop = ->(env) { @answer.call(@made += 1, env) }
      caller = ->(env) { env["HTTP_USER"] }
      middleware = Polylatch::IdempotencyMiddleware.new(Rack::Lint.new(shop), client: client, caller: caller, **options)
      @server = Puma::Server.new(Rack::Lint.new(middleware))
      @server.add_tcp_listener("127.0.0.1", 0)
      @server.run
      @place = URI("http://127.0.0.1:#{@server.connected_ports.first}")
      @user = SecureRandom.uuid
    end

    def post(key, body: "order", user: @user, path: "/orders", method: Net::HTTP::Post)
      request = method.new(path)
      request["Idempotency-Key"] = key if key
      request["User"] = user if user
      request["Content-Type"] = "text/plain"
      request.body = body if request.request_body_permitted?
      Net::HTTP.start(@place.host, @place.port) { |http| http.request(request) }
    end

    def close
      @server.stop(true)
    end
  end

  # Two values of one header, as this Rack has them.
  TWO = Rack.release < "3" ? "<a>\n<b>" : %w[<a> <b>]

  PLAIN = lambda do |order, env|
    body = [env["rack.input"].read, " #{order}"]
    [201, { "x-order" => order.to_s, "content-type" => "text/plain", "set-cookie" => "a=b", "link" => TWO }, body]
  end

  def with_shop(client, answer = PLAIN, **options)
    shop = Shop.new(client, options, answer)
    yield shop
  ensure
    shop&.close
  end

  on_every_store("a_repeated_request_gets_the_stored_response") do |client, _url|
    with_shop(client) do |shop|
      first = shop.post("k")
      assert_equal ["201", "order 1", "1", "a=b", nil],
                   [first.code, first.body, first["x-order"], first["set-cookie"], first["idempotency-replayed"]]
      again = shop.post('"k"')
      assert_equal ["201", "order 1", "1", nil, "true"],
                   [again.code, again.body, again["x-order"], again["set-cookie"], again["idempotency-replayed"]]
      assert_equal first.get_fields("link"), again.get_fields("link")
      assert_equal "order 2", shop.post("k", user: "another user").body
      assert_equal "order 3", shop.post("l").body
      assert_equal "order 4", shop.post(nil).body
      assert_equal "order 5", shop.post("k", user: nil).body
      assert_equal "6", shop.post("k", method: Net::HTTP::Get)["x-order"]
      assert_equal 6, shop.made
    end
  end

  on_every_store("bad_keys_and_other_requests_are_refused") do |client, _url|
    with_shop(client, required: true, max_body: 10) do |shop|
      assert_equal "400", shop.post(nil).code
      assert_equal "400", shop.post("x" * 256).code
      assert_equal "413", shop.post("k", body: "x" * 11).code
      assert_equal "201", shop.post("k").code
      [{ body: "other" }, { path: "/refunds" }, { path: "/orders?a=1" }, { method: Net::HTTP::Patch }].each do |other|
        refused = shop.post("k", **other)
        assert_equal %w[422 application/problem+json], [refused.code, refused["content-type"]]
        assert_includes JSON.parse(refused.body)["detail"], "another payload"
      end
      assert_equal 1, shop.made
    end
  end

  on_every_store("a_request_in_progress_is_409") do |client, _url|
    entered = Queue.new
    gate = Queue.new
    slow = lambda do |order, env|
      entered << order
      gate.pop
      PLAIN.call(order, env)
    end
    with_shop(client, slow) do |shop|
      first = Thread.new { shop.post("k") }
      entered.pop
      busy = shop.post("k")
      assert_equal %w[409 1], [busy.code, busy["retry-after"]]
      gate << 1
      assert_equal "order 1", first.value.body
      assert_equal ["order 1", "true"], shop.post("k").then { |one| [one.body, one["idempotency-replayed"]] }
    end
  end

  on_every_store("a_server_error_frees_its_key_unless_it_is_to_be_stored") do |client, _url|
    text = { "content-type" => "text/plain" }
    failing = lambda do |order, _env|
      raise "the printer is out of paper" if order == 2

      order == 1 ? [503, text, ["down"]] : [404, text, ["unknown"]]
    end
    with_shop(client, failing) do |shop|
      assert_equal %w[503 500 404 404], Array.new(4) { shop.post("k").code }
      assert_equal 3, shop.made
    end
    with_shop(client, failing, store_server_errors: true) do |shop|
      assert_equal [["503", nil], %w[503 true]], Array.new(2) { shop.post("k").then { |one| [one.code, one["idempotency-replayed"]] } }
      assert_equal [["500", nil], %w[500 true]], Array.new(2) { shop.post("l").then { |one| [one.code, one["idempotency-replayed"]] } }
      assert_equal 2, shop.made
    end
  end

  on_every_store("a_response_that_is_too_large_is_sent_once_and_not_made_again") do |client, _url|
    large = ->(_order, _env) { [200, { "content-type" => "text/plain" }, ["x" * (1 << 20)]] }
    with_shop(client, large) do |shop|
      assert_equal 1 << 20, shop.post("k").body.bytesize
      assert_equal "409", shop.post("k").code
      assert_equal 1, shop.made
    end
  end

  # Fifty presses of one button at once.
  on_every_store("requests_at_once_are_handled_once") do |client, _url|
    with_shop(client, wait: 30) do |shop|
      answers = Array.new(50) { Thread.new { shop.post("k").body } }.map(&:value)
      assert_equal ["order 1"], answers.uniq
      assert_equal 1, shop.made
    end
  end
end
