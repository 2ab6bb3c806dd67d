# frozen_string_literal: true

require_relative "helper"

class TestLocks < PolylatchTest
  on_every_store("a_lock_is_held_seen_and_given_back") do |client, _url|
    name = "orders/42 ü 🔒"
    guard = client.lock(name, lease: 30, label: "why").acquire
    assert_equal name, guard.name
    assert_predicate guard, :held?
    refute_predicate guard, :lost?
    assert_includes 0.5..30, guard.remaining
    assert_operator guard.valid_until, :>, 0
    assert_equal "mutex", guard.mode
    assert_includes %w[strict time-floored], guard.fence_quality
    assert_includes guard.sequencer, "orders"

    seen = client.inspect_locks(name: name)
    holder = seen.locks.first.holders.first
    assert_equal ["why", guard.fencing_token], [holder.label, holder.fencing_token]
    assert_equal client.id, holder.client
    # Who that is, is written beside the way.
    who = nil
    wait_until { who = client.inspect_locks(name: name).clients.find { |one| one.id == holder.client } }
    assert_equal ["ruby", Process.pid, client.id], [who.language, who.pid, who.id]

    guard.release
    guard.release
    refute_predicate guard, :held?
    refute_predicate guard, :lost?
    client.lock(name).acquire { |later| assert_operator later.fencing_token, :>, guard.fencing_token }
    client.close
    client.close
    assert_fails("canceled") { client.lock("after").acquire }
  end

  on_every_store("contention_is_a_result_and_a_wait_that_runs_out_names_the_holder") do |client, _url|
    result = client.lock("busy", label: "the first").acquire do
      assert_nil client.lock("busy").try_acquire
      assert_nil(client.lock("busy").try_acquire { flunk "it was acquired" })
      error = assert_fails("wait_timeout", "busy") { client.lock("busy", wait: 0.05).acquire }
      assert_equal "busy", error.context.lock
      :result
    end
    assert_equal :result, result
    assert_equal :had, client.lock("busy").try_acquire { :had }
  end

  on_every_store("a_waiter_is_let_in_while_other_threads_run") do |client, _url|
    first = client.lock("line").acquire
    second = Thread.new { client.lock("line", wait: 30).acquire }
    wait_until { lock_view(client, "line").waiters.any? }
    first.release
    assert_operator second.value.fencing_token, :>, first.fencing_token
    second.value.release
  end

  on_every_store("a_kept_lock_is_entered_again_and_released_for_another_client") do |client, url|
    lock = client.lock("kept", keep_idle: 60)
    unless %w[memory redis].include?(client.capability.backend)
      assert_fails("unsupported", "keep a lease after its release") { lock.acquire }
      next
    end
    tokens = Array.new(5) { lock.acquire(&:fencing_token) }
    assert_equal tokens.sort.uniq, tokens
    # The store still has the first grant: only that one was a request.
    assert_equal tokens.first, lock_view(client, "kept").holders.first.fencing_token
    Polylatch.connect(url) do |other|
      other.lock("kept", wait: 30).acquire { |guard| assert_operator guard.fencing_token, :>, tokens.last }
    end
  end

  on_every_store("readers_share_a_reader_steps_up_permits_run_out") do |client, _url|
    page = client.rw_lock("page", wait: 10)
    one = page.read.acquire
    other = page.read.acquire
    assert_nil page.write.try_acquire
    refute one.try_upgrade
    other.release
    before = one.fencing_token
    assert one.try_upgrade
    assert_operator one.fencing_token, :>, before
    assert_equal one.extend(60), one.valid_until
    assert_operator one.remaining, :>, 40
    assert_fails("invalid_argument", "lease") { one.extend(0.001) }
    one.downgrade
    assert_equal "read", one.mode
    assert_fails("invalid_argument", "read", "write") { one.downgrade }
    one.release

    pool = client.semaphore("pool", 3)
    pool.permits(2).acquire do
      assert_nil pool.permits(2).try_acquire
      assert_equal 1, pool.permits(1).try_acquire { 1 }
    end
  end

  on_every_store("several_locks_are_all_acquired_or_none") do |client, _url|
    client.lock_all(%w[b a], lease: 20).acquire do |set|
      assert_equal %w[a b], set.fencing_tokens.keys.sort
      assert_nil client.lock_all(%w[b c]).try_acquire
      assert_equal :free, client.lock("c").try_acquire { :free }
      set.check
    end
    assert_equal 7, client.lock_all(%w[a b]).acquire { 7 }
  end

  on_every_store("what_the_block_raises_is_what_the_caller_gets") do |client, _url|
    assert_raises(ZeroDivisionError) { client.lock("raises").acquire { 1 / 0 } }
    assert_equal :left, (catch(:out) { client.lock("raises", wait: 10).acquire { throw :out, :left } })
    client.lock("raises", wait: 10).acquire.release
  end

  def test_a_resource_refuses_holders_from_before
    gate = Polylatch::TokenGate.new(5)
    gate.admit(7)
    assert_equal 7, gate.largest
    assert_raises(Polylatch::StaleToken) { gate.admit(6) }
    assert_fails("invalid_argument", "-1") { gate.admit(-1) }
    assert_nil Polylatch::TokenGate.new.largest
  end

  def test_the_versions_agree
    assert_equal Polylatch::VERSION, PolylatchNative.native_version
    assert_includes Polylatch::LIBRARY, "/gems/polylatch-"
  end
end
