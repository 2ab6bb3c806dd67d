# frozen_string_literal: true

require_relative "helper"
require "logger"
require "pg"

# The programs of the package's page and of the guide, run as they stand there, on a real Redis and a real PostgreSQL.
class TestReadme < PolylatchTest
  GUIDE = File.expand_path("../../../../core/docs", __dir__)
  PAGES = [File.expand_path("../README.md", __dir__), *Dir[File.join(GUIDE, "**", "*.md")]]
  PROGRAMS = PAGES.flat_map { |page| File.read(page).scan(/^```ruby\n(.*?)^```$/m).flatten }

  # What a program has that is not on the page.
  class Program
    attr_reader :client, :connection, :guard, :key, :written, :charged

    def initialize(client, connection)
      @client = client
      @connection = connection
      @guard = client.lock("account/7").try_acquire
      @key = SecureRandom.uuid
      @written = []
      @charged = 0
    end

    def order = 42
    def body = "a book"
    def values = [7]
    def receipt = "r-1"
    def orders = client.idempotency("orders/customer-7")
    def runs = Polylatch::TransactionRuns.new("postgres $1")
    def work = written << :work

    def write(order, token)
      written << [order, token]
    end

    def charge(connection)
      connection.exec("SELECT 1")
      @charged += 1
    end

    # Runs the program of a page that has these words, and returns what its last line gives.
    def run(words, result = "nil")
      text = PROGRAMS.find { |program| program.include?(words) } or raise "no program with #{words}"
      text = text.sub("redis://localhost", ENV.fetch("POLYLATCH_TEST_REDIS")).sub("INTO orders …", "INTO readme_orders VALUES ($1)")
      instance_eval("#{text}\n#{result}", "README.md")
    end
  end

  def setup
    port = ENV.fetch("POLYLATCH_POSTGRES_PORT")
    # A client makes the tables of idempotent work.
    @store = Polylatch.connect("postgres://postgres@127.0.0.1:#{port}/postgres")
    @connection = PG.connect(host: "127.0.0.1", port: port, user: "postgres", dbname: "postgres")
    @connection.exec("SET client_min_messages = warning; DROP TABLE IF EXISTS account, readme_orders;
                      CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT, fence BIGINT);
                      INSERT INTO account VALUES (7, 100, 0); CREATE TABLE readme_orders (id BIGINT)")
    @client = Polylatch.connect("memory:#{SecureRandom.uuid}")
    @program = Program.new(@client, @connection)
  end

  def teardown
    @client.close
    @store.close
    @connection.close
  end

  def test_each_program_is_run
    tests = self.class.instance_methods(false).count { |name| name.start_with?("test_the_program_of_") }
    assert_equal PROGRAMS.length, tests, "a page has a program that no test runs, or lost one"
  end

  def test_the_program_of_a_first_lock
    @program.run("client.lock(\"orders/42\", lease: 30, wait: 5)")
    assert_equal 42, @program.written.first.first
    assert_operator @program.written.first.last, :>, 0
  end

  def test_the_program_of_a_fenced_write
    assert_equal 1, @program.run("FencedUpdate.update", "connection.exec(\"SELECT FROM account WHERE balance = 150\").ntuples")
  end

  def test_the_program_of_idempotent_work
    assert_equal [{ "order" => 42 }, false], @program.run("outcome.replayed", "[outcome.value, outcome.replayed]")
    assert_equal [{ "order" => 42 }, true], @program.run("outcome.replayed", "[outcome.value, outcome.replayed]")
  end

  def test_the_program_of_work_in_a_transaction
    2.times { @program.run("runs.run(connection") }
    assert_equal 1, @connection.exec("SELECT FROM readme_orders").ntuples, "the second run did the work again"
  end

  def test_the_program_of_work_in_steps
    2.times { @program.run("runs.steps") }
    assert_equal 1, @program.charged
  end

  def test_the_program_of_events
    assert_output("", nil) { @program.run("on_event") }
    assert_equal [:work], @program.written
  end

  def test_the_program_of_a_lock_of_a_transaction
    @store.lock("orders/42").acquire do
      assert_equal "held", assert_raises(RuntimeError) { @program.run("TransactionLock") }.message
    end
    @program.run("TransactionLock")
    @store.lock("orders/42").try_acquire.release
  end
end
