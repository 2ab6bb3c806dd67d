# frozen_string_literal: true

require_relative "helper"

class TestStats < PolylatchTest
  on_every_store("numbers_tell_a_small_story") do |client, _url|
    client.lock("a").acquire do
      assert_nil client.lock("a").try_acquire
      assert_fails("wait_timeout") { client.lock("a", wait: 0.05).acquire }
      assert_equal 1, client.stats.held
    end
    lost = Queue.new
    client.lock("a", lease: 0.2, renew: false).acquire.on_lost { |reason| lost << reason }
    assert_equal "expired", lost.pop
    stats = client.stats
    assert_equal client.capability.backend, stats.backend
    assert_equal [2, 1, 1, 0, 0], [stats.acquired, stats.refused, stats.timed_out, stats.failed, stats.cancelled]
    assert_equal [0, 0], [stats.waiting, stats.held]
    assert_equal 1, stats.losses["expired"]
    assert_equal [1, 0], stats.errors.values_at("wait_timeout", "backend_unavailable")
    assert_equal 2, stats.hold.count
    assert_equal stats.hold.count, stats.hold.counts.sum
    assert_equal stats.hold.bounds.size + 1, stats.hold.counts.size
    assert_operator stats.hold.sum, :>, 0.19
  end

  def test_prometheus_text_has_labels_and_refuses_wrong_ones
    Polylatch.connect("memory:prometheus") do |client|
      client.lock("a").acquire { nil }
      text = client.prometheus(service: 'a "shop"')
      assert_match(/polylatch_acquisitions_total\{[^}]*outcome="acquired"[^}]*\} 1$/, text)
      assert_includes text, 'service="a \\"shop\\""'
      assert_fails("invalid_argument", "le") { client.prometheus("le" => "x") }
      assert_raises(TypeError) { client.prometheus(5 => 6) }
    end
  end
end
