# frozen_string_literal: true

require_relative "helper"

class TestEvents < PolylatchTest
  RAISED = "polylatch: on_event raised"

  on_every_store("a_callback_is_told_of_the_life_of_its_own_client") do |_client, url|
    events = []
    Polylatch.connect(url) do |other|
      holder = other.lock("a").acquire
      Polylatch.connect(url, on_event: events.method(:push), level: "debug") do |client|
        waiter = Thread.new { client.lock("a", wait: 30).acquire }
        wait_until { events.any? { |event| event.event == "waiting" } }
        holder.release
        guard = waiter.value
        assert_equal "broken", other.break_lease("a", fencing_token: guard.fencing_token, by: "ann", reason: "test").outcome
        wait_until { events.any? { |event| event.event == "lost" } }
        assert_equal [client.id], events.map(&:client).uniq
        assert_equal %w[waiting acquired], events.map(&:event).first(2)
        acquired = events.find { |event| event.event == "acquired" }
        assert_equal ["a", guard.fencing_token, "info"], [acquired.lock, acquired.fencing_token, acquired.level]
        lost = events.find { |event| event.event == "lost" }
        assert_equal ["a", guard.fencing_token, "broken", "error"], [lost.lock, lost.fencing_token, lost.reason, lost.level]
        assert_includes lost.line, "reason=broken"
        client.lock("b").acquire { nil }
      end
      # Closing waited for the last event.
      assert_equal "released", events.last.event
    end
  end

  def test_what_a_callback_raises_is_a_warning_and_the_next_event_comes
    events = []
    raising = lambda do |event|
      events << event.event
      raise "on purpose"
    end
    _, warned = capture_io do
      Polylatch.connect("memory:raising", on_event: raising, level: "debug") { |client| client.lock("a").acquire { nil } }
    end
    assert_equal %w[acquired released], events
    assert_equal 2, warned.scan(RAISED).size
    assert_includes warned, "on purpose"
  end

  def test_a_callback_may_call_and_close
    told = Queue.new
    client = nil
    close = lambda do |event|
      next unless event.event == "released" && event.lock == "a"

      client.lock("b").acquire { nil }
      client.close
      told << :closed
    end
    client = Polylatch.connect("memory:closing", on_event: close, level: "debug")
    client.lock("a").acquire { nil }
    assert_equal :closed, Timeout.timeout(30) { told.pop }
  end

  def test_a_store_that_goes_away_is_told_once_and_that_it_is_back
    Timeout.timeout(60) do
      on_own_redis do |url, server|
        events = []
        on_event = ->(event) { events << [event.event, event.level] }
        Polylatch.connect(url, on_event: on_event, timeout: 0.3, poll: 0.1) do |client|
          Process.kill(:STOP, server)
          waiter = Thread.new { client.lock("a").acquire { nil } }
          wait_until { events.include?(%w[store_unreachable warn]) }
          Process.kill(:CONT, server)
          waiter.value
          wait_until { events.include?(%w[store_reachable info]) }
          assert_equal 1, events.count { |name, _| name == "store_unreachable" }
        end
      end
    end
  end

  def test_a_forked_child_hears_its_own_client
    reader, writer = IO.pipe
    on_event = ->(event) { writer.write("#{Process.pid} #{event.event}\n") }
    url = "#{ENV.fetch('POLYLATCH_TEST_REDIS')}?prefix=#{SecureRandom.uuid}"
    Polylatch.connect(url, on_event: on_event, level: "debug") do |client|
      client.lock("a").acquire { nil }
      child = fork do
        client.lock("b").acquire { nil }
        client.close
        exit!(0)
      end
      Process.wait(child)
      writer.close
      lines = reader.read.lines(chomp: true)
      assert_equal ["#{child} acquired", "#{child} released"], (lines.select { |line| line.start_with?("#{child} ") })
    end
  end

  def test_a_client_that_is_forgotten_is_not_kept_by_its_callback
    ended = Thread.list
    forget = -> { Polylatch.connect("memory:forgotten", on_event: ->(_) {}) && nil }
    forget.call
    listening = (Thread.list - ended).find { |thread| thread.name == "polylatch-events" }
    wait_until do
      GC.start
      !listening.alive?
    end
  end

  on_every_store("a_callback_hears_its_level_and_above_by_default_no_lock_that_was_free") do |_client, url|
    assert_equal ["info waiting", "info acquired", "error lost"], heard_at(url)
    assert_equal ["error lost"], heard_at(url, level: :error)
    assert_equal ["debug acquired", "debug released"], heard_at(url, level: "debug").first(2)
    error = assert_raises(Polylatch::InvalidConfig) { Polylatch.connect(url, on_event: ->(_) {}, level: "loud") }
    assert_includes error.message, "must be one of error, warn, info, debug"
  end

  def test_what_cannot_be_called_is_no_callback
    error = assert_raises(TypeError) { Polylatch.connect("memory:", on_event: 7) }
    assert_includes error.message, "on_event"
  end

  private

  # What a callback hears of a lock that is free, one that is waited for, and one that is lost.
  def heard_at(url, **level)
    events = []
    on_event = ->(event) { events << "#{event.level} #{event.event}" }
    Polylatch.connect(url, on_event: on_event, **level) do |client|
      Polylatch.connect(url) do |other|
        client.lock("free").acquire { nil }
        holder = other.lock("a").acquire
        waiter = Thread.new { client.lock("a", wait: 30).acquire }
        wait_until { client.stats.waiting == 1 }
        holder.release
        waiter.value.release
        # Kept until then: a guard that the collector takes releases its lock, which is no loss.
        lost = client.lock("b", lease: 0.2, renew: false).acquire
        wait_until { events.include?("error lost") }
        refute_predicate lost, :held?
      end
    end
    events
  end

  def on_own_redis
    Dir.mktmpdir("polylatch") do |folder|
      socket = File.join(folder, "redis.sock")
      server = spawn("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", chdir: folder, out: File::NULL)
      wait_until { File.socket?(socket) }
      yield "redis+unix:#{socket}", server
    ensure
      Process.kill(:KILL, server)
      Process.wait(server)
    end
  end
end
