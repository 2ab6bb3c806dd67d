# frozen_string_literal: true

require_relative "helper"

# Guards for the rows of a table, and locks inside a transaction.
class TestSql < PolylatchTest
  CASES = JSON.parse(File.read(File.join(File.dirname(ENV.fetch("POLYLATCH_ERRORS_JSON")), "sql.json")))

  def make(given)
    words = given.transform_keys(&:to_sym)
    column = words.delete(:column)
    case words.delete(:make)
    when "fenced_update" then Polylatch::FencedUpdate.update(fence: column, **words)
    when "fenced_upsert" then Polylatch::FencedUpdate.upsert(fence: column, **words)
    when "versioned_update" then Polylatch::VersionedUpdate.update(version: column, **words)
    when "conditional_update" then Polylatch::ConditionalUpdate.update(**words)
    when "transaction_lock" then Polylatch::TransactionLock.new(**words)
    end
  end

  def test_the_texts_are_those_of_every_language
    CASES.each do |given|
      given = given.dup
      expected = given.delete("expect")
      if expected.key?("error")
        assert_equal expected["message"], assert_fails(expected["error"]) { make(given) }.message
      elsif given["make"] == "transaction_lock"
        assert_a_lock(expected, make(given), given["name"])
      else
        assert_a_write(expected, make(given))
      end
    end
  end

  def assert_a_write(expected, made)
    assert_equal expected.values_at("sql", "parameters"), [made.sql, made.parameters]
    assert_equal expected.values_at("probe_sql", "probe_parameters"), [made.probe_sql, made.probe_parameters]
    assert_equal expected["rows_tell"], made.rows_tell? if made.is_a?(Polylatch::FencedUpdate)
  end

  def assert_a_lock(expected, made, name)
    prepare, take, fence = expected.values_at("prepare", "take", "fence")
    assert_equal [prepare&.fetch("sql"), prepare ? prepare["values"] : []].inspect,
                 [made.prepare_sql, made.prepare_values].inspect
    assert_equal take.values_at("sql", "values"), [made.take_sql, made.take_values]
    assert_equal [fence&.fetch("sql"), name].inspect, [made.fence_sql, made.name].inspect
  end

  def test_a_row_says_why_nothing_changed
    [[34], { "fence" => 34 }, { fence: "34" }].each do |row|
      assert_fails("stale_token", "33", "34") { Polylatch::FencedUpdate.why_unchanged(33, row) }
      assert_fails("stale_token", "33", "34") { Polylatch::FencedUpdate.check(33, row) }
      assert_nil Polylatch::FencedUpdate.check(34, row)
      assert_equal "changed", Polylatch::VersionedUpdate.why_unchanged(row)
    end
    assert_equal "changed_meanwhile", Polylatch::FencedUpdate.why_unchanged(33, [nil])
    assert_equal "missing", Polylatch::FencedUpdate.why_unchanged(33, nil)
    assert_equal "missing", Polylatch::VersionedUpdate.why_unchanged(nil)
    assert_nil Polylatch::FencedUpdate.check(33, nil)
    [7, [], [1, 2], [1.5]].each { |row| assert_raises(TypeError) { Polylatch::FencedUpdate.check(33, row) } }
  end

  def test_what_has_the_wrong_type_is_refused
    write = { dialect: "sqlite ?", table: "account", fence: "fence", set: %w[balance], keys: %w[id] }
    [{ keys: "id" }, { table: 1 }, { set: [1] }].each do |bad|
      assert_raises(TypeError) { Polylatch::FencedUpdate.update(**write, **bad) }
    end
    assert_raises(ArgumentError) { Polylatch::FencedUpdate.update(**write, where: "id") }
    take = { dialect: "sqlite ?", table: "item", changes: { stock: "-" }, conditions: [["stock"]], keys: %w[id] }
    assert_raises(ArgumentError) { Polylatch::ConditionalUpdate.update(**take) }
    take[:conditions] = [%w[stock >=]]
    assert_equal ["stock -", "id", "stock >="], Polylatch::ConditionalUpdate.update(**take).parameters
  end
end
