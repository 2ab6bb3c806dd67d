# frozen_string_literal: true

module Polylatch
  # The claim on a key under which the work of a transaction runs, or of several.
  class TransactionClaim
    def initialize(native) # :nodoc:
      @native = native
    end

    # The number of this claim, larger than that of every claim on the same key before.
    def fencing_token
      @native.fencing_token
    end

    # How many runs of this key began, this one counted; of work in steps, how many clients worked on it.
    def runs
      @native.runs
    end
  end

  # The work of a key that has begun: a claim to work under, or the answer of an earlier run.
  class BegunWork
    # The answer of an earlier run, or what #complete recorded.
    attr_reader :value

    def initialize(native, value, results) # :nodoc:
      @native = native
      @value = value
      @results = results
    end

    # Whether an earlier run did the work. Then there is nothing to do: #value is its answer.
    def replayed?
      @native.nil?
    end

    # The claim under which to work. Raises ArgumentError for a replayed answer.
    def claim
      TransactionClaim.new(native)
    end

    private

    def native
      @native || raise(ArgumentError, "an earlier run did the work of this key; its answer is in value")
    end

    # Records the result on this connection. Returns it as it is read back.
    def record(connection, value)
      stored = @results.encode(value)
      Statements.carry_out(connection, Told.told { native.complete(stored) })
      @value = @results.decode(stored)
    end

    def record_failure(connection, error)
      Statements.carry_out(connection, Told.told { native.fail(@results.failure(error)) })
      nil
    end
  end

  # The work of one key in the caller's transaction; see TransactionRuns#begin.
  class TransactionAttempt < BegunWork
    def initialize(connection, native, value, results) # :nodoc:
      super(native, value, results)
      @connection = connection
    end

    # Records the result: the last call before the commit. Returns it as it is read back.
    #
    # Raises InvalidArgument for a result of more than 1 MiB, StaleToken if the claim is not the present one. Roll back after
    # each of them: nothing is done then.
    def complete(value)
      record(@connection, value)
    end

    # Records a failure that every repetition gets. What the transaction changed is committed with it.
    def fail(error)
      record_failure(@connection, error)
    end
  end

  # The work of one key in several transactions, as it was when the last call about it was committed; see
  # TransactionRuns#steps. Each call that records something returns the next one. After a rollback go on with the one before.
  class StepsAttempt < BegunWork
    # Names and values of the finished steps, in their order.
    attr_reader :finished

    def initialize(native, value, results) # :nodoc:
      super
      @finished = native.nil? ? {} : native.finished.to_h { |step| [step.name, results.decode(step.value)] }
    end

    # Records that a step is finished, and renews the lease: the last call before the step's commit. +name+: 1 to 100 bytes.
    #
    # Raises StaleToken if another client has taken the work over (roll back: the step was not done by this one),
    # InvalidArgument for a step that is finished already and for values of more than 1 MiB in all.
    def step(connection, name, value = nil)
      following(connection, Told.told { native.step(Words.text("name", name), @results.encode(value)) })
    end

    # Renews the lease; commit it. Raises StaleToken.
    def renew(connection)
      following(connection, Told.told { native.renew })
    end

    # Ends the claim without an answer, so that another client goes on at once; commit it.
    def release(connection)
      Statements.carry_out(connection, Told.told { native.release })
      nil
    end

    # Records the result of all: the last call before the last commit. Raises as TransactionAttempt#complete.
    def complete(connection, value)
      record(connection, value)
    end

    # Records a failure that every repetition gets. What finished steps have done remains.
    def fail(connection, error)
      record_failure(connection, error)
    end

    private

    def following(connection, talk)
      StepsAttempt.new(Statements.carry_out(connection, talk).first, nil, @results)
    end
  end

  # Work in several transactions; see TransactionRuns#steps.
  class TransactionSteps
    def initialize(run, results) # :nodoc:
      @run = run
      @results = results
    end

    # Claims the work with its finished steps, or finds its answer. Commit it at once. If the answer to a commit is lost, claim
    # again with the same object: it says whether the step was committed.
    #
    # Raises InProgress while another client works on it, PayloadMismatch, WorkFailed, ResultTooLarge.
    def claim(connection)
      Statements.check_transaction(connection)
      StepsAttempt.new(*@results.found(*Statements.carry_out(connection, @run.claim)), @results)
    end
  end

  # Idempotent work whose record is committed by the caller's own transaction: both, or neither.
  #
  #   runs = Polylatch::TransactionRuns.new("postgres $1")
  #   connection.transaction do # of the gem pg: commits, or rolls back
  #     outcome = runs.run(connection, "orders/customer-7", key) { |claim| order(connection) }
  #   end
  #
  # Nothing is sent but the statements on the connection that is given: a PG::Connection, a Mysql2::Client, an
  # SQLite3::Database, or a Proc of SQL and values that executes a statement and returns its rows as Arrays (bytes are Strings
  # of the encoding BINARY). The caller begins (SQLite: BEGIN IMMEDIATE), commits and rolls back. In Rails it is
  # <tt>ActiveRecord::Base.connection.raw_connection</tt> within a transaction.
  #
  # On PostgreSQL, MySQL and MariaDB the record is the one that Client#idempotency keeps in that database. On SQLite it is in a
  # table of its own, which #schema_sql makes.
  class TransactionRuns
    # +dialect+: "postgres $1" (pg), "mysql ?" (mysql2; MariaDB too) or "sqlite ?" (sqlite3); see GuardedWrite. +schema+: that of
    # the store on PostgreSQL. +encoding+: how results are stored, :json or :bytes.
    #
    # Raises InvalidArgument for another dialect, InvalidConfig for an impossible schema.
    def initialize(dialect, schema: nil, encoding: :json)
      @results = Results.new(encoding)
      schema &&= Words.text("schema", schema)
      @native = Told.told { PolylatchNative::NativeRuns.new(Words.text("dialect", dialect), schema) }
    end

    # The script that makes the tables. Run again, it changes nothing.
    def schema_sql
      @native.schema_sql
    end

    # Yields a TransactionClaim and does the work of a key in the caller's transaction, unless it was done; returns an Outcome
    # with the stored answer.
    #
    # It waits for another transaction with the same key. With +no_wait+ it raises InProgress instead (PostgreSQL, MariaDB).
    # What the block raises is raised on: roll back, and nothing was done. The other options are those of Idempotency#run.
    #
    # Raises InProgress, PayloadMismatch, WorkFailed, ResultTooLarge, those of TransactionAttempt#complete, and what the driver
    # raises. Roll back after each.
    def run(connection, scope, key, **options)
      raise ArgumentError, "run needs a block" unless block_given?

      attempt = self.begin(connection, scope, key, **options)
      return Outcome.new(attempt.value, true) if attempt.replayed?

      Outcome.new(attempt.complete(yield(attempt.claim)), false)
    end

    # Claims a key, or finds its answer: the first half of #run, for work that is no block.
    def begin(connection, scope, key, payload: nil, fingerprint: nil, retention: nil, no_wait: false)
      with = Words.sql_run_options(payload: payload, fingerprint: fingerprint, retention: retention, no_wait: no_wait)
      run = Told.told { @native.whole(Words.text("scope", scope), Words.text("key", key), with) }
      Statements.check_transaction(connection)
      TransactionAttempt.new(connection, *@results.found(*claimed(connection, run, no_wait)), @results)
    end

    # Names work in several transactions: a repetition goes on after the last step that was committed. Nothing is sent.
    #
    # +lease+: 0.1 s to a day, 15 s by default; each step renews it, and if the client dies, another one goes on when it ends.
    def steps(scope, key, payload: nil, fingerprint: nil, retention: nil, lease: nil)
      with = Words.sql_run_options(payload: payload, fingerprint: fingerprint, retention: retention, lease: lease)
      TransactionSteps.new(Told.told { @native.steps(Words.text("scope", scope), Words.text("key", key), with) }, @results)
    end

    # Deletes records whose retention is over, at most so many (1 to 100 000), and returns how many; commit it.
    def purge(connection, most = 1000)
      Statements.carry_out(connection, Told.told { @native.purge(Words.whole("most", most)) }).last.deleted
    end

    def inspect
      "#<Polylatch::TransactionRuns>"
    end

    private

    def claimed(connection, run, no_wait)
      Statements.carry_out(connection, run.claim)
    rescue StandardError => e
      raise unless no_wait && @native.says_in_progress(Statements.code_of(e))

      raise Told.error(run.in_progress)
    end
  end
end
