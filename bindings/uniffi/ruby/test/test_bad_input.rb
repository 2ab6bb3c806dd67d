# frozen_string_literal: true

require_relative "helper"

class TestBadInput < PolylatchTest
  def test_an_argument_that_cannot_be_is_refused_by_its_name
    Polylatch.connect("memory:bad") do |client|
      [
        [%w[name], -> { client.lock("").acquire }],
        [%w[name], -> { client.lock("a\0b").acquire }],
        [%w[name], -> { client.lock("x" * 2000).acquire }],
        [%w[lease -1], -> { client.lock("a", lease: -1).acquire }],
        [%w[lease], -> { client.lock("a", lease: 0).acquire }],
        [%w[lease], -> { client.lock("a", lease: 200_000).acquire }],
        [%w[lease finite], -> { client.lock("a", lease: Float::NAN).acquire }],
        [%w[wait finite], -> { client.lock("a", wait: Float::INFINITY).acquire }],
        [%w[wait -0.5], -> { client.lock("a", wait: -0.5).acquire }],
        [%w[max_hold], -> { client.lock("a", max_hold: 0.001).acquire }],
        [%w[beat_every], -> { client.lock("a", beat_every: 0.001).acquire }],
        [%w[keep_idle], -> { client.lock("a", keep_idle: 0.001).acquire }],
        [["keep_idle is for a plain lock"], -> { client.rw_lock("a", keep_idle: 1).read.acquire }],
        [%w[label], -> { client.lock("a", label: "x" * 300).acquire }],
        [%w[owner], -> { client.lock("a", owner: "").acquire }],
        [["0 permits"], -> { client.semaphore("a", 0).permits(1).acquire }],
        [%w[permits -3], -> { client.semaphore("a", -3).permits(1).acquire }],
        [["4 permits", "1 to 3"], -> { client.semaphore("a", 3).permits(4).acquire }],
        [["no locks"], -> { client.lock_all([]).acquire }],
        [%w[128], -> { client.lock_all((0..200).map(&:to_s)).acquire }],
        [%w[limit -1], -> { client.inspect_locks(limit: -1) }],
        [%w[token -1], -> { client.break_lease("a", fencing_token: -1, by: "ann", reason: "why") }]
      ].each { |words, call| assert_equal "none", assert_fails("invalid_argument", *words, &call).effect }
      assert_empty client.inspect_locks.locks
    end
  end

  def test_a_wrong_type_is_rubys_own_error
    Polylatch.connect("memory:types") do |client|
      [
        -> { client.lock(nil) }, -> { client.lock(7) }, -> { client.lock("a", lease: "30s") },
        -> { client.lock("a", fifo: 1) }, -> { client.lock("a", renew: "no") }, -> { client.lock("a", label: 3) },
        -> { client.semaphore("a", "3") }, -> { client.semaphore("a", 3).permits(1.5) },
        -> { client.lock_all("abc") }, -> { client.lock_all(["a", nil]) }, -> { client.inspect_locks(limit: "1") },
        -> { Polylatch.connect(7) }, -> { Polylatch.connect("memory:", lease: [1]) }
      ].each { |call| assert_raises(TypeError, &call) }
      assert_raises(ArgumentError) { client.lock("a", leese: 5) }
      assert_raises(ArgumentError) { client.lock("a", lease: 5).acquire.on_lost }
      assert_raises(ArgumentError) { client.lock("\xff") }
      assert_raises(ArgumentError) { client.lock("\xff".b) }
      assert_raises(RangeError) { client.semaphore("a", 2**70) }
      client.lock("ü".encode(Encoding::ISO_8859_1)).acquire { |guard| assert_equal "ü", guard.name }
    end
  end

  def test_an_option_that_is_unknown_or_wrong_is_refused_before_anything_is_sent
    assert_fails("invalid_config", "nope") { Polylatch.connect("memory:", nope: 1) }
    assert_fails("invalid_config", "gopher") { Polylatch.connect("gopher://x") }
    assert_fails("invalid_config", "lease") { Polylatch.connect("memory:", lease: -1) }
    assert_fails("invalid_config", "lease") { Polylatch.connect("memory:", lease: Float::NAN) }
    assert_fails("invalid_config") { Polylatch.connect("memory:?lease=5s", lease: 5) }
    Polylatch.connect("memory:", lease: 5, push: :hint).close
    secret = assert_fails("backend_unavailable") do
      Polylatch.connect("redis://user:hunter2@127.0.0.1:1", timeout: 0.3)
    end
    refute_includes secret.full_message + secret.inspect + secret.context.to_s, "hunter2"
  end

  def test_every_code_has_its_class_and_an_unknown_one_the_base
    of = lambda do |code, reason = nil|
      fault = PolylatchNative::Fault.new(
        code: code, again: "never", effect: "none", lost_reason: reason, text: "text", hint: "hint",
        backend: "redis", operation: "acquire", lock: "a", attempt: 2, elapsed: 0.5
      )
      # It is private: nobody else makes errors.
      Polylatch.module_eval("Told", __FILE__, __LINE__).error(fault)
    end
    ERRORS.each do |code, row|
      error = of.call(code)
      assert_kind_of Polylatch::Error, error
      assert_equal ["Polylatch::#{row['kind']}", code, 0.5], [error.class.name, error.code, error.context.elapsed]
    end
    assert_equal "broken", of.call("lease_lost", "broken").reason
    assert_instance_of Polylatch::Error, of.call("from_a_later_version")
  end
end
