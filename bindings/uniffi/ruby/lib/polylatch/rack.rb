# frozen_string_literal: true

require "stringio"
require "polylatch"

module Polylatch
  # Idempotent requests of a Rack application (Rails, Sinatra, Hanami and others); <tt>require "polylatch/rack"</tt>.
  #
  #   use Polylatch::IdempotencyMiddleware, client: client, caller: ->(env) { env["warden"].user&.id }
  #
  # A client makes a key, such as a UUID, and sends it as the header Idempotency-Key with every repetition of one request.
  # The application handles the request once, and every repetition gets the stored response, marked with the header
  # <tt>Idempotency-Replayed: true</tt>. The header is that of the IETF draft draft-ietf-httpapi-idempotency-key-header.
  #
  # 400:: the key breaks a rule, or is missing where it is required
  # 409:: the request with this key is being handled, or its response was too large to be stored
  # 413:: the body is larger than +max_body+
  # 422:: the key was used for another request
  #
  # Of a response, the status, the body and the headers are stored, except Set-Cookie, Date and those of one
  # connection; at most 1 MiB in all. It is sent when it is stored, so it is not streamed. A response of 500 or more is not stored.
  class IdempotencyMiddleware
    SERVER_ERROR = 500

    # Of one connection (RFC 9110, 7.6.1), of one moment, or of one browser.
    NOT_STORED = %w[
      connection date keep-alive proxy-connection set-cookie te trailer transfer-encoding upgrade
    ].freeze

    STATUS = { InvalidArgument => 400, InProgress => 409, ResultTooLarge => 409, PayloadMismatch => 422 }.freeze

    private_constant :SERVER_ERROR, :NOT_STORED, :STATUS

    # +client+: of Polylatch.connect. +caller+: a callable that returns who sent the request, by an identity that was
    # checked before; put this middleware behind that of authentication. Two callers never get each other's responses.
    # If it returns nil, the request is anonymous: the application gets it as if it had no key. +methods+: which
    # requests may have a key. +required+: without a key, such a request is refused. +retention+, +lease+: as of
    # Idempotency#run. +wait+: how many seconds a repetition waits for the response of the first request before it
    # gets 409; not at all by default. +max_body+: the largest body of a request with a key, in bytes.
    #
    # A response of 500 or more, and an exception of the application, free the key, and the next repetition is handled
    # again. That is right only if what failed had no effect: with +store_server_errors+ they are stored, too.
    def initialize(app, client:, caller:, methods: %w[POST PATCH], header: "Idempotency-Key", required: false,
                   retention: nil, lease: nil, wait: 0, max_body: 1024 * 1024, store_server_errors: false)
      unless caller.respond_to?(:call)
        raise ArgumentError, "caller must be a callable that gets the Rack environment and returns who sent the request"
      end

      @app = app
      @client = client
      @caller = caller
      @methods = methods.map { |method| method.to_s.upcase }
      @header = header
      @required = required
      @options = { retention: retention, lease: lease, wait: wait }
      @max_body = max_body
      @store_server_errors = store_server_errors
    end

    # Handles one request, as Rack has it.
    def call(env)
      key = key_of(env)
      return @app.call(env) if !@methods.include?(env["REQUEST_METHOD"]) || (key.nil? && !@required)
      return refuse(400, "this request needs the header #{@header}, a key made by its client") if key.nil?

      who = @caller.call(env)
      return @app.call(env) if who.nil?

      body = env["rack.input"]&.read(@max_body + 1).to_s.b
      return refuse(413, "the body of a request with a key has at most #{@max_body} bytes") if body.bytesize > @max_body

      env["rack.input"] = StringIO.new(body)
      handle(env, key, who, body)
    end

    private

    # The application's response while it is kept back, or what it raised.
    Answer = Struct.new(:status, :headers, :body, :error, :entered)
    private_constant :Answer

    def key_of(env)
      text = env["HTTP_#{@header.upcase.tr('-', '_')}"]&.strip
      # A string of structured fields (RFC 9651), or as most clients send it.
      text && text[/\A"(.*)"\z/m, 1] || text
    end

    def handle(env, key, who, body)
      answer = Answer.new
      keys = @client.idempotency("http/#{who}", encoding: :bytes)
      asked = %w[REQUEST_METHOD SCRIPT_NAME PATH_INFO QUERY_STRING].map { |name| env[name].to_s.b }
      with = { payload: [*asked, body.b].join("\0"), on_failure: "free", **@options }
      outcome = keys.run(key, **with) { worked(answer, env) }
      raise answer.error if answer.error

      outcome.replayed ? replay(env, outcome.value) : sent(answer)
    rescue Error => e
      # Of the application, or the work is done: its response is sent whether it is stored or not.
      raise(answer.error || e) if answer.entered && answer.status.nil?

      if answer.status
        warn "polylatch: the response to a request with a key is not stored: #{e.message}" unless e.is_a?(WorkFailed)
        return sent(answer)
      end
      status = STATUS.fetch(e.class) { raise }
      refuse(status, e.message, e.is_a?(InProgress) ? { "retry-after" => "1" } : {})
    end

    # Has the request handled, and keeps its response back until it is stored: a client that got a response and repeats the
    # request gets the same one.
    def worked(answer, env)
      answer.entered = true
      begin
        status, headers, body = @app.call(env)
        answer.body = content(body)
        answer.headers = headers
        answer.status = status.to_i
      rescue StandardError => e
        raise unless @store_server_errors

        answer.error = e
        return stored(SERVER_ERROR, {}, "")
      end
      if answer.status >= SERVER_ERROR && !@store_server_errors
        raise WorkFailed.new("status #{answer.status}", on_failure: "free")
      end

      stored(answer.status, answer.headers, answer.body)
    end

    def content(body)
      whole = StringIO.new("".b)
      body.respond_to?(:each) ? body.each { |part| whole << part } : body.call(whole)
      whole.string
    ensure
      body.close if body.respond_to?(:close)
    end

    def sent(answer)
      [answer.status, answer.headers, [answer.body]]
    end

    def stored(status, headers, body)
      pairs = headers.flat_map do |name, values|
        values = values.split("\n", -1) if values.is_a?(String)
        Array(values).map { |value| [name.downcase, value.to_s] }
      end
      kept = pairs.reject { |name, _| NOT_STORED.include?(name) || name.start_with?("rack.") }
      JSON.generate({ status: status, headers: kept, body: [body].pack("m0") }).b
    end

    def replay(env, stored)
      response = JSON.parse(stored.dup.force_encoding(Encoding::UTF_8))
      headers = response["headers"].group_by(&:first).transform_values { |pairs| pairs.map(&:last) }
      # Rack 2 has several values as lines, and later versions as a list.
      headers.transform_values! { |values| values.one? ? values.first : joined(env, values) }
      headers["idempotency-replayed"] = "true"
      [response["status"], headers, [response["body"].unpack1("m0")]]
    end

    def joined(env, values)
      env.key?("rack.version") ? values.join("\n") : values
    end

    # Answers with problem details (RFC 9457).
    def refuse(status, detail, more = {})
      body = JSON.generate({ type: "about:blank", status: status, detail: detail })
      headers = { "content-type" => "application/problem+json", "content-length" => body.bytesize.to_s, **more }
      [status, headers, [body]]
    end
  end
end
