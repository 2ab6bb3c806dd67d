# frozen_string_literal: true

module Polylatch
  # The texts of a write. It sends nothing: execute #sql with the values of #parameters, and see how many rows were changed.
  # Names are checked and quoted: [A-Za-z_][A-Za-z0-9_]{0,62}; values are bound.
  #
  # +dialect+ is the database and the sign of its driver for a value: "sqlite ?" (sqlite3), "postgres $1" (pg), "mysql ?"
  # (mysql2; MariaDB too), and "sqlite ?1", "postgres ?", "postgres %s", "mysql %s".
  class GuardedWrite
    # The text to execute.
    attr_reader :sql,
                # Which value each parameter is, in order: by column, or by column and operator, such as "stock >=".
                :parameters,
                # A query for why no row was changed.
                :probe_sql,
                # Which column's value each parameter of the probe is.
                :probe_parameters

    private_class_method :new

    def initialize(texts) # :nodoc:
      @sql = texts.sql
      @parameters = texts.parameters
      @probe_sql = texts.probe_sql
      @probe_parameters = texts.probe_parameters
    end

    def inspect
      "#<#{self.class} #{sql}>"
    end
  end

  # A conditional write to one row of an SQL table that keeps the largest fencing token seen: comparison and write are one
  # statement. The table needs a column such as <tt>fence BIGINT NOT NULL DEFAULT 0</tt>; do not delete rows that late writers
  # may still want to write. One changed row: done. None: ask with the probe, and .why_unchanged.
  class FencedUpdate < GuardedWrite
    # Writes to a row that exists. Without columns to set it only raises the token.
    #
    # Raises InvalidArgument for names that could be more than names, columns that are named twice, and without keys.
    def self.update(dialect:, table:, fence:, set:, keys:)
      new(Told.told { PolylatchNative.fenced_write(false, *Words.row(dialect, table, fence, set, keys)) })
    end

    # Writes to a row, or inserts it if it is missing; the keys need a unique index.
    def self.upsert(dialect:, table:, fence:, set:, keys:)
      new(Told.told { PolylatchNative.fenced_write(true, *Words.row(dialect, table, fence, set, keys)) })
    end

    # Explains a write that changed no row by the row that the probe found, an Array or a Hash, or nil for none: "missing", or
    # "changed_meanwhile" if it is worth writing again. Raises StaleToken if a newer holder wrote before.
    def self.why_unchanged(token, row)
      Told.told { PolylatchNative.fenced_unchanged(Words.whole("token", token), Words.probed(row)) }
    end

    # Reads what the probe found after a write whose number of rows says nothing. Raises StaleToken if the row keeps a newer
    # token.
    def self.check(token, row)
      Told.told { PolylatchNative.fenced_accepted(Words.whole("token", token), Words.probed(row)) }
      nil
    end

    def initialize(texts) # :nodoc:
      super
      @rows_tell = texts.rows_tell
    end

    # Whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB: ask
    # with the probe each time, and .check its row.
    def rows_tell?
      @rows_tell
    end
  end

  # A write to one row that is refused if the row was written since its version was read, and that raises the version by one
  # (optimistic locking). It needs no lock. One changed row: done. None: read the row again, and decide what to write now.
  class VersionedUpdate < GuardedWrite
    # Writes to a row that exists. Without columns to set it only raises the version.
    def self.update(dialect:, table:, version:, set:, keys:)
      new(Told.told { PolylatchNative.versioned_write(*Words.row(dialect, table, version, set, keys)) })
    end

    # Explains a write that changed no row by the row that the probe found, or nil for none: "missing" or "changed".
    def self.why_unchanged(row)
      Told.told { PolylatchNative.versioned_unchanged(Words.probed(row)) }
    end
  end

  # A write to one row that happens only while the row fulfils conditions, such as <tt>stock >= 3</tt>: what is left cannot be
  # sold twice. It needs no lock. One changed row: done. None: a condition is not fulfilled, or there is no such row.
  class ConditionalUpdate < GuardedWrite
    # +changes+ are pairs of a column and "=", "+" or "-", +conditions+ pairs of a column and "=", "<>", "<", "<=", ">" or ">=".
    def self.update(dialect:, table:, changes:, conditions:, keys:)
      new(Told.told do
        PolylatchNative.conditional_write(
          Words.text("dialect", dialect), Words.text("table", table), Words.signs("changes", changes),
          Words.signs("conditions", conditions), Words.texts("keys", keys)
        )
      end)
    end
  end

  # A lock inside a transaction of the caller, on the caller's connection to the database that keeps the locks. It excludes
  # every holder of a lease on that name and other such transactions; the server frees it at the commit, at the rollback, and
  # when the connection ends. It sends nothing; the caller executes:
  #
  # 1. MySQL and MariaDB: #prepare_sql with #prepare_values, before the transaction.
  # 2. First in the transaction #take_sql with #take_values. One row (PostgreSQL: returned, MySQL and MariaDB: changed) means
  #    taken. No row: a client holds a lease or waits for one; roll back at once.
  # 3. The fencing token is in the row; on MySQL and MariaDB #fence_sql reads it.
  #
  # Keep the transaction short, well below the +timeout+ of the clients. Take several locks in the order of their names.
  class TransactionLock
    # The name of the lock, and the statements with their values.
    attr_reader :name, :prepare_sql, :prepare_values, :take_sql, :take_values, :fence_sql

    # +schema+ is that of the store on PostgreSQL.
    def initialize(dialect:, name:, schema: nil)
      @name = Words.text("name", name)
      schema &&= Words.text("schema", schema)
      texts = Told.told { PolylatchNative.transaction_lock_texts(Words.text("dialect", dialect), @name, schema) }
      @prepare_sql = texts.prepare&.sql
      @prepare_values = texts.prepare ? texts.prepare.values : []
      @take_sql = texts.take.sql
      @take_values = texts.take.values
      @fence_sql = texts.fence&.sql
    end
  end

  module Words # :nodoc:
    def self.texts(what, values)
      raise TypeError, "#{what} must be an Array of Strings, not #{values.class}" unless values.respond_to?(:to_ary)

      values.to_ary.map { |value| text("a name in #{what}", value.is_a?(Symbol) ? value.to_s : value) }
    end

    def self.row(dialect, table, column, set, keys)
      [text("dialect", dialect), text("table", table), text("column", column), texts("set", set), texts("keys", keys)]
    end

    def self.signs(what, pairs)
      raise TypeError, "#{what} must be an Array of pairs, not #{pairs.class}" unless pairs.respond_to?(:to_a)

      pairs.to_a.map do |pair|
        column, sign, *more = texts(what, pair)
        raise ArgumentError, "each of #{what} must be a column and an operator" if sign.nil? || more.any?

        PolylatchNative::ColumnSign.new(column: column, sign: sign)
      end
    end

    # Drivers have rows as Arrays or Hashes, and some have numbers as Strings.
    def self.probed(row)
      return if row.nil?

      values = row.is_a?(Hash) ? row.values : row
      unless values.is_a?(Array) && values.length == 1
        raise TypeError, "the row must be what the probe found: an Array or a Hash with one value"
      end

      value = values.first
      value = Integer(value, 10) if value.is_a?(String)
      PolylatchNative::ProbedRow.new(number: value && whole("the number in the row", value))
    end
  end
end
