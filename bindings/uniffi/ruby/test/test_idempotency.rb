# frozen_string_literal: true

require_relative "helper"

class TestIdempotency < PolylatchTest
  NEVER = ->(_claim) { raise "it was done again" }

  on_every_store("a_repetition_gets_the_first_answer") do |client, _url|
    keys = client.idempotency("orders/customer-7 #{SecureRandom.uuid}")
    first = keys.run("k", payload: { b: 1, a: [{ d: 1, c: 2 }] }) do |claim|
      claim.check
      assert_operator claim.fencing_token, :>, 0
      assert_operator claim.remaining, :>, 0
      assert_equal 1, claim.runs
      { order: 42, note: "ü" }
    end
    assert_equal Polylatch::Outcome.new({ "order" => 42, "note" => "ü" }, false), first
    again = keys.run("k", payload: { a: [{ c: 2, d: 1 }], b: 1 }, &NEVER)
    assert_equal Polylatch::Outcome.new(first.value, true), again
    assert_fails("payload_mismatch", "another payload") { keys.run("k", payload: "other", &NEVER) }
    assert_fails("invalid_argument", "the key") { keys.run("", &NEVER) }
    assert_equal %w[forgotten absent], [keys.forget("k"), keys.forget("k")]
    assert_raises(ArgumentError) { keys.run("k", ttl: 1, &NEVER) }
    assert_raises(ArgumentError) { client.idempotency("s", encoding: :xml) }
    bytes = client.idempotency(keys.scope, encoding: :bytes)
    assert_equal "\x00\xFF".b, bytes.run("l", retention: Float::INFINITY) { "\x00\xFF".b }.value
    assert_equal "\x00\xFF".b, bytes.run("l", &NEVER).value
  end

  on_every_store("concurrent_runs_get_one_answer") do |client, _url|
    keys = client.idempotency("concurrent #{SecureRandom.uuid}")
    calls = Queue.new
    gate = Queue.new
    threads = Array.new(4) do
      Thread.new do
        keys.run("k") do
          calls << 1
          gate.pop
        end
      end
    end
    wait_until { calls.size == 1 }
    assert_fails("in_progress", "in progress on host") { keys.run("k", wait: 0, &NEVER) }
    assert_equal "running", keys.forget("k")
    gate << "done"
    outcomes = threads.map(&:value)
    assert_equal ["done"] * 4, outcomes.map(&:value)
    assert_equal [1, 1], [calls.size, outcomes.count { |one| !one.replayed }]
  end

  on_every_store("a_failure_is_stored_or_frees_its_key") do |client, _url|
    keys = client.idempotency("failures #{SecureRandom.uuid}")
    assert_raises(KeyError) { keys.run("k") { raise KeyError, "no card" } }
    error = assert_fails("failed") { keys.run("k", &NEVER) }
    assert_equal [{ "error" => "KeyError", "message" => "no card" }, true], [error.answer, error.replayed?]

    kind = ->(failure) { failure.is_a?(IOError) ? :free : :store }
    assert_raises(IOError) { keys.run("l", on_failure: kind) { raise IOError } }
    assert_raises(KeyError) { keys.run("l", on_failure: kind) { raise KeyError } }
    assert_fails("failed") { keys.run("l", on_failure: kind, &NEVER) }

    own = assert_fails("failed") { keys.run("m") { raise Polylatch::WorkFailed.new("declined", answer: { code: 7 }) } }
    assert_equal({ code: 7 }, own.answer)
    assert_equal({ "code" => 7 }, assert_fails("failed") { keys.run("m", &NEVER) }.answer)
    assert_fails("failed") { keys.run("n") { raise Polylatch::WorkFailed.new("again", on_failure: "free") } }
    refute keys.run("n") { 1 }.replayed
    assert_fails("result_too_large") { keys.run("o") { "x" * (1 << 20) } }
  end

  on_every_store("interrupted_work_stores_nothing_and_its_key_is_free_with_the_lease") do |client, _url|
    keys = client.idempotency("interrupted #{SecureRandom.uuid}")
    working = Queue.new
    thread = Thread.new do
      keys.run("k", lease: 0.5) do
        working << 1
        sleep
      end
    end
    working.pop
    thread.kill.join
    assert_equal 2, keys.run("k", lease: 0.5, &:runs).value
  end

  on_every_store("a_token_is_consumed_once") do |client, _url|
    keys = client.idempotency("tokens #{SecureRandom.uuid}")
    token = keys.issue(60)
    assert_equal %w[first duplicate], [keys.consume(token), keys.consume(token)]
    assert_equal "unknown", client.idempotency("other").consume(token)
  end

  def test_a_killed_process_is_taken_over_when_its_lease_ends
    url = self.class.stores[1]
    # In another process, which loads the gem itself.
    child = IO.popen([RbConfig.ruby, "-r", "polylatch", "-e", <<~RUBY, url], "r+")
      Polylatch.connect(ARGV[0]).idempotency("s").run("k", lease: 1) { puts "working"; $stdout.flush; sleep }
    RUBY
    assert_equal "working\n", child.gets
    Timeout.timeout(60) do
      Polylatch.connect(url) do |client|
        keys = client.idempotency("s")
        assert_fails("in_progress") { keys.run("k", wait: 0, &NEVER) }
        Process.kill(:KILL, child.pid)
        assert_equal 2, keys.run("k", &:runs).value
        assert keys.run("k", &NEVER).replayed
      end
    end
  ensure
    child&.close
  end
end
