# frozen_string_literal: true

require_relative "helper"

class TestGivingUp < PolylatchTest
  on_every_store("a_timeout_ends_a_wait_and_leaves_the_line") do |client, _url|
    client.lock("line").acquire do
      assert_raises(Timeout::Error) { Timeout.timeout(0.1) { client.lock("line").acquire } }
      wait_until { lock_view(client, "line").waiters.empty? }
      killed = Thread.new { client.lock("line").acquire { flunk "it was acquired" } }
      wait_until { lock_view(client, "line").waiters.any? }
      killed.kill.join
      wait_until { lock_view(client, "line").waiters.empty? }
    end
  end

  on_every_store("giving_up_at_any_moment_leaves_no_lock_behind") do |client, _url|
    random = Random.new(7)
    200.times do
      Timeout.timeout(random.rand(0.0001..0.003)) { client.lock("race", lease: 3600).acquire { sleep } }
    rescue Timeout::Error
      nil
    end
    # Far less than the lease: it is free because everything was undone.
    client.lock("race", wait: 20).acquire.release
    wait_until { client.inspect_locks(prefix: "race").locks.all? { |lock| lock.holders.empty? && lock.waiters.empty? } }
  end

  on_every_store("closing_ends_the_waits") do |client, url|
    other = Polylatch.connect(url)
    client.lock("line").acquire do
      waiter = Thread.new { assert_fails("canceled") { other.lock("line").acquire } }
      wait_until { lock_view(client, "line").waiters.any? }
      other.close
      waiter.value
    end
  end

  def test_a_forked_child_goes_on_with_the_client
    Timeout.timeout(60) do
      Polylatch.connect(self.class.stores.last) do |client|
        client.lock("parent", lease: 5).acquire do |guard|
          status = in_a_child { the_child_is_right(client, guard) }
          assert_predicate status, :success?
          guard.check
          client.lock("child", wait: 10).acquire.release
        end
      end
    end
  end

  # A file of SQLite is closed for the fork, unless its client holds or waits.
  def test_a_forked_child_uses_a_file_unless_its_parent_holds_a_lock_in_it
    Timeout.timeout(60) do
      Polylatch.connect(self.class.stores[1]) do |client|
        client.lock("parent").acquire.release
        2.times do
          assert_predicate in_a_child { client.lock("x", wait: 10).acquire { |mine| mine.held? } }, :success?
          client.lock("x", wait: 10).acquire.release
        end
        client.lock("parent", lease: 5).acquire do |guard|
          status = in_a_child { assert_fails("unsupported", "held or waited for a lock") { client.lock("x").acquire } }
          assert_predicate status, :success?
          guard.check
        end
        assert_predicate in_a_child { client.lock("x", wait: 10).acquire { |mine| mine.held? } }, :success?
      end
    end
  end

  def the_child_is_right(client, guard)
    !guard.held? && guard.lost_reason == "unverifiable" && client.lock("parent").try_acquire.nil? &&
      client.lock("child", wait: 10).acquire { |mine| mine.held? } && (client.close || true)
  end

  def in_a_child
    child = fork do
      right = Timeout.timeout(30) { yield }
      Process.exit!(right ? 0 : 1)
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn e.full_message
      Process.exit!(2)
    end
    Process.wait2(child).last
  end
end
