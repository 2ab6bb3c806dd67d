# frozen_string_literal: true

require "json"
require "minitest/autorun"
require "polylatch"
require "securerandom"
require "timeout"
require "tmpdir"

# What every test has: stores of its own, and nothing that waits for ever.
class PolylatchTest < Minitest::Test
  ERRORS = JSON.parse(File.read(ENV.fetch("POLYLATCH_ERRORS_JSON")))
               .values_at("errors", "idempotency_errors").flatten.to_h { |row| [row["code"], row] }

  def self.stores
    file = File.join(Dir.mktmpdir("polylatch"), "locks.db")
    Minitest.after_run { FileUtils.rm_rf(File.dirname(file)) }
    ["memory:#{SecureRandom.uuid}", "sqlite:#{file}", "#{ENV.fetch('POLYLATCH_TEST_REDIS')}?prefix=#{SecureRandom.uuid}"]
  end

  # A test for each store.
  def self.on_every_store(name, &test)
    stores.each do |url|
      define_method("test_#{name}_on_#{url[/\A\w+/]}") do
        Timeout.timeout(60) { Polylatch.connect(url) { |client| instance_exec(client, url, &test) } }
      end
    end
  end

  # The call fails with this code, as the table of all errors says, and the message has these words.
  def assert_fails(code, *words, &call)
    error = assert_raises(Polylatch::Error, &call)
    assert_equal code, error.code
    row = ERRORS.fetch(code)
    assert_equal row["retry"], error.retry
    assert_includes row["effects"], error.effect
    assert_equal "Polylatch::#{row['kind']}", error.class.name
    refute_empty error.hint
    words.each { |word| assert_includes error.message, word }
    error
  end

  # Waits until it is so. The test's own limit ends it.
  def wait_until
    sleep 0.005 until yield
  end

  def lock_view(client, name)
    client.inspect_locks(name: name).locks.first
  end
end
