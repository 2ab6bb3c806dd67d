# frozen_string_literal: true

require_relative "helper"
require "mysql2"
require "pg"
require "sqlite3"

# Idempotent work inside transactions of the program's own, by the drivers that programs use.
class TestTransactions < PolylatchTest
  SCOPE = "orders/7"

  # A database of a program, with a table of effects. What the drivers differ in is here.
  class Database
    attr_reader :dialect, :runs, :url

    def initialize(dialect, url)
      @dialect = dialect
      @url = url
      @runs = Polylatch::TransactionRuns.new(dialect)
      # A client makes the tables.
      url ? Polylatch.connect(url).close : with { |connection| 2.times { execute_script(connection, runs.schema_sql) } }
      with do |connection|
        execute(connection, "DROP TABLE IF EXISTS effects")
        execute(connection, "CREATE TABLE effects (work VARCHAR(99))")
      end
    end

    def with
      connection = connect
      yield connection
    ensure
      connection&.close
    end

    # As a framework has it: commits, or rolls back.
    def transaction(connection)
      execute(connection, start)
      ended = "ROLLBACK"
      done = yield
      ended = "COMMIT"
      done
    ensure
      execute(connection, ended)
    end

    def effect(connection, work)
      execute(connection, "INSERT INTO effects VALUES ('#{work}')")
    end

    def effects(work)
      with { |connection| count(connection, "SELECT count(*) AS number FROM effects WHERE work = '#{work}'") }
    end

    def start
      "BEGIN"
    end

    def table
      "polylatch_idempotency"
    end
  end

  class Sqlite < Database
    def initialize
      folder = Dir.mktmpdir("polylatch")
      Minitest.after_run { FileUtils.rm_rf(folder) }
      @file = File.join(folder, "app.db")
      super("sqlite ?", nil)
    end

    def connect
      SQLite3::Database.new(@file).tap { |connection| connection.busy_timeout(30_000) }
    end

    def execute(connection, sql)
      connection.execute(sql)
    end

    def execute_script(connection, sql)
      connection.execute_batch(sql)
    end

    def count(connection, sql)
      connection.get_first_value(sql)
    end

    def start
      "BEGIN IMMEDIATE"
    end
  end

  class Postgres < Database
    def initialize
      @port = ENV.fetch("POLYLATCH_POSTGRES_PORT")
      super("postgres $1", "postgres://postgres@127.0.0.1:#{@port}/postgres")
    end

    def connect
      PG.connect(host: "127.0.0.1", port: @port, user: "postgres", dbname: "postgres")
    end

    def execute(connection, sql)
      connection.exec(sql)
    end

    def count(connection, sql)
      connection.exec(sql).getvalue(0, 0).to_i
    end

    def table
      "polylatch.idempotency"
    end
  end

  class Mariadb < Database
    def initialize
      @port = ENV.fetch("POLYLATCH_MARIADB_PORT")
      super("mysql ?", "mariadb://root@127.0.0.1:#{@port}/locks")
    end

    def connect
      Mysql2::Client.new(host: "127.0.0.1", port: @port.to_i, username: "root", database: "locks")
    end

    def execute(connection, sql)
      connection.query(sql)
    end

    def count(connection, sql)
      connection.query(sql).first["number"]
    end
  end

  DATABASES = Hash.new { |made, kind| made[kind] = kind.new }

  # A test for each database.
  def self.on_every_database(name, kinds = [Sqlite, Postgres, Mariadb], &test)
    kinds.each do |kind|
      define_method("test_#{name}_on_#{kind.name[/\w+\z/].downcase}") do
        database = DATABASES[kind]
        Timeout.timeout(60) { database.with { |connection| instance_exec(database, connection, SecureRandom.uuid, &test) } }
      end
    end
  end

  # Does a run in a transaction of its own.
  def in_one(database, connection, key, **options, &work)
    work ||= ->(_) { flunk("it was done again") }
    database.transaction(connection) { database.runs.run(connection, SCOPE, key, **options, &work) }
  end

  on_every_database("a_repetition_gets_the_answer_of_the_first_transaction") do |database, connection, key|
    answers = Array.new(2) do
      in_one(database, connection, key, payload: { apples: 3 }, retention: 300) do |claim|
        assert_operator claim.fencing_token, :>, 0
        assert_equal 1, claim.runs
        database.effect(connection, key)
        { order: "42 ü" }
      end
    end
    assert_equal [false, true], answers.map(&:replayed)
    assert_equal [{ "order" => "42 ü" }], answers.map(&:value).uniq
    assert_fails("payload_mismatch", "another payload") { in_one(database, connection, key, payload: { apples: 4 }) }
    bytes = Polylatch::TransactionRuns.new(database.dialect, encoding: :bytes)
    other = database.transaction(connection) { bytes.begin(connection, "orders/8", key).tap { |one| one.complete("\x00\xFF'\\") } }
    refute other.replayed?
    other = database.transaction(connection) { bytes.begin(connection, "orders/8", key) }
    assert_equal "\x00\xFF'\\".b, other.value
    assert_raises(ArgumentError) { other.claim }
    assert_equal 1, database.effects(key)
  end

  on_every_database("what_is_raised_after_the_effect_leaves_nothing") do |database, connection, key|
    assert_raises(KeyError) do
      in_one(database, connection, key) do
        database.effect(connection, key)
        raise KeyError, "no card"
      end
    end
    assert_equal 0, database.effects(key)
    outcome = in_one(database, connection, key) { database.effect(connection, key) && nil }
    assert_equal Polylatch::Outcome.new(nil, false), outcome
    assert_fails("invalid_argument") { in_one(database, connection, "#{key} large") { "x" * (1 << 20) } }
    assert_equal 1, database.effects(key)
  end

  on_every_database("a_stored_failure_is_raised_for_every_repetition") do |database, connection, key|
    database.transaction(connection) do
      database.runs.begin(connection, SCOPE, key).fail(Polylatch::WorkFailed.new("no", answer: { refused: true }))
    end
    failed = assert_fails("failed") { in_one(database, connection, key) }
    assert_equal [{ "refused" => true }, true], [failed.answer, failed.replayed?]
  end

  on_every_database("a_duplicate_waits_for_the_first_transaction", [Postgres, Mariadb]) do |database, connection, key|
    begun = Queue.new
    second = nil
    database.transaction(connection) do
      database.runs.run(connection, SCOPE, key) { "first" }
      second = Thread.new do
        database.with do |other|
          begun << 1
          in_one(database, other, key)
        end
      end
      begun.pop
      assert_nil second.join(0.3)
    end
    assert_equal Polylatch::Outcome.new("first", true), second.value
  end

  on_every_database("without_waiting_a_duplicate_is_in_progress", [Postgres, Mariadb]) do |database, connection, key|
    database.with do |other|
      second = -> { database.transaction(other) { database.runs.begin(other, SCOPE, key, no_wait: true) } }
      database.transaction(connection) do
        attempt = database.runs.begin(connection, SCOPE, key)
        assert_fails("in_progress", "transaction") { Timeout.timeout(10) { second.call } }
        assert_equal 1, attempt.complete(1)
      end
      assert_equal 1, second.call.value
    end
  end

  on_every_database("steps_go_on_after_the_last_commit") do |database, connection, key|
    steps = -> { database.runs.steps(SCOPE, key, lease: 600) }
    in_one = ->(&work) { database.transaction(connection, &work) }
    attempt = in_one.call { steps.call.claim(connection) }
    attempt = in_one.call do
      database.effect(connection, "#{key} charge")
      attempt.step(connection, "charge", { receipt: 7 })
    end
    # The next one is rolled back.
    assert_raises(KeyError) do
      in_one.call do
        database.effect(connection, "#{key} send")
        attempt.step(connection, "send")
        raise KeyError
      end
    end
    assert_fails("in_progress", "lease") { in_one.call { steps.call.claim(connection) } }
    in_one.call { attempt.renew(connection).release(connection) }
    other = in_one.call { steps.call.claim(connection) }
    assert_equal [{ "charge" => { "receipt" => 7 } }, 2], [other.finished, other.claim.runs]
    # The first one is not the present one any more.
    assert_fails("stale_token") do
      in_one.call do
        database.effect(connection, "#{key} send")
        attempt.step(connection, "send")
      end
    end
    other = in_one.call do
      database.effect(connection, "#{key} send")
      other.step(connection, "send")
    end
    assert_equal "done", in_one.call { other.complete(connection, "done") }
    again = in_one.call { steps.call.claim(connection) }
    assert_equal [true, "done"], [again.replayed?, again.value]
    assert_equal [1, 1], %w[charge send].map { |step| database.effects("#{key} #{step}") }
  end

  on_every_database("a_client_sees_the_record_of_a_transaction_and_old_ones_are_purged") do |database, connection, key|
    in_one(database, connection, key) { [1, 2] }
    if database.url
      Polylatch.connect(database.url) do |client|
        outcome = client.idempotency(SCOPE).run(key) { flunk("it was done again") }
        assert_equal Polylatch::Outcome.new([1, 2], true), outcome
      end
    end
    database.transaction(connection) { database.execute(connection, "UPDATE #{database.table} SET keep_until_ms = 1") }
    assert_operator database.transaction(connection) { database.runs.purge(connection) }, :>=, 1
    assert_equal 0, database.transaction(connection) { database.runs.purge(connection, 10) }
  end

  # What a library that keeps the driver to itself hands over.
  on_every_database("a_proc_executes_statements", [Sqlite]) do |database, connection, key|
    query = lambda do |sql, values|
      connection.execute(sql, values.map { |value| value.is_a?(String) && value.encoding == Encoding::BINARY ? SQLite3::Blob.new(value) : value })
    end
    answers = Array.new(2) { database.transaction(connection) { database.runs.run(query, SCOPE, key) { |claim| claim.runs } } }
    assert_equal [[1, false], [1, true]], answers.map(&:to_a)
  end

  # Maps of types, as Rails sets them.
  on_every_database("maps_of_types_change_nothing", [Postgres]) do |database, connection, key|
    connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
    connection.type_map_for_queries = PG::BasicTypeMapForQueries.new(connection)
    answers = Array.new(2) { in_one(database, connection, key, payload: "one") { { order: 42 } } }
    assert_equal [[{ "order" => 42 }, false], [{ "order" => 42 }, true]], answers.map(&:to_a)
  end

  on_every_database("bad_arguments_are_refused_before_anything_is_sent", [Sqlite, Postgres]) do |database, connection, key|
    runs = database.runs
    assert_fails("invalid_argument", "sqlite") { Polylatch::TransactionRuns.new("sqlite") }
    assert_fails("invalid_argument", "schema") { Polylatch::TransactionRuns.new("mysql ?", schema: "x") }
    assert_fails("invalid_config") { Polylatch::TransactionRuns.new("postgres $1", schema: "a;b") }
    assert_raises(ArgumentError) { Polylatch::TransactionRuns.new("sqlite ?", encoding: :yaml) }
    assert_raises(ArgumentError) { runs.run(connection, SCOPE, key) { flunk("autocommit") } }
    assert_raises(ArgumentError) { runs.steps(SCOPE, key).claim(connection) }
    assert_raises(ArgumentError) { runs.run(connection, SCOPE, key) }
    assert_raises(TypeError) { runs.begin(Object.new, SCOPE, key) }
    assert_raises(TypeError) { runs.begin(connection, SCOPE, key, no_wait: 1) }
    assert_fails("invalid_argument", "fingerprint") { runs.begin(connection, SCOPE, key, payload: "", fingerprint: "f") }
    assert_fails("invalid_argument", "the key") { runs.begin(connection, SCOPE, "") }
    assert_fails("invalid_argument", "lease") { runs.steps(SCOPE, key, lease: 0.001) }
    assert_fails("invalid_argument", "100000") { runs.purge(connection, 0) }
  end
end
