# frozen_string_literal: true

require_relative "helper"

class TestLoss < PolylatchTest
  on_every_store("a_holder_is_notified_when_its_lease_is_broken") do |client, _url|
    told = Queue.new
    error = assert_raises(Polylatch::LeaseLost) do
      client.lock("import", lease: 30).acquire do |guard|
        # On a thread of its own: it may call the library.
        guard.on_lost { |reason| told << [reason, client.lock("other").try_acquire { :called }] }
        token = guard.fencing_token
        broken = client.break_lease("import", fencing_token: token, by: "ann", reason: "wrong import")
        assert_equal "broken", broken.outcome
        assert_equal ["broken", :called], told.pop
        assert_equal [true, "broken"], [guard.lost?, guard.lost_reason]
        assert_fails("lease_lost") { guard.check }
        assert_equal 0.0, guard.remaining
      end
    end
    assert_equal "broken", error.reason
    gone = client.break_lease("import", fencing_token: 1, by: "ann", reason: "again")
    assert_equal "free", gone.outcome
  end

  on_every_store("an_option_that_is_false_is_not_one_that_was_not_given") do |client, _url|
    told = Queue.new
    guard = client.lock("fixed", lease: 0.3, renew: false).acquire
    guard.on_lost { |reason| told << reason }
    assert_equal "expired", told.pop
    assert_equal 0, guard.renewals
  end

  on_every_store("a_listener_is_not_told_of_a_release") do |client, _url|
    told = Queue.new
    guard = client.lock("released", lease: 0.3).acquire
    guard.on_lost { |reason| told << reason }
    guard.release
    # Another lease that began later and is lost is told: by then the first would have been.
    limit = client.lock("limit", max_hold: 0.4).acquire
    limit.on_lost { |reason| told << reason }
    assert_equal "hold_limit", told.pop
    assert_empty told
  end

  def test_ruby_code_that_lets_nobody_run_loses_no_lease
    Polylatch.connect("memory:busy") do |client|
      client.lock("busy", lease: 0.3).acquire do |guard|
        waiter = Thread.new { client.lock("busy", wait: 30).acquire { :late } }
        wait_until { lock_view(client, "busy").waiters.any? }
        # One call into C that keeps the interpreter's lock for several leases.
        2.times { Array.new(6_000_000) { |i| (i * 7919) % 6_000_011 }.sort! }
        GC.start
        guard.check
        refute_nil waiter.status
        @waiter = waiter
      end
      assert_equal :late, @waiter.value
    end
  end
end
