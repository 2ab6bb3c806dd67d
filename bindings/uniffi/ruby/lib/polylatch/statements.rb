# frozen_string_literal: true

module Polylatch
  # Executes statements on a caller's connection.
  module Statements # :nodoc:
    # Executes what is asked for, until it is over. Returns the claim, if there is one, and what came of it.
    def self.carry_out(connection, talk)
      query = query_of(connection)
      rows = []
      while (asked = Told.told { talk.next_statement(rows) })
        values = asked.values.map { |cell| cell.number || cell.text || cell.bytes&.b }
        rows = (query.call(asked.sql, values) || []).map { |row| row.map { |value| cell(value) } }
      end
      ended = talk.ending
      [ended.mine ? Told.told { talk.claimed } : nil, ended]
    end

    # How this connection executes a statement. Its rows are Arrays of Integers, texts, bytes (of the encoding BINARY) and nil.
    def self.query_of(connection)
      return connection if connection.respond_to?(:call)
      return ->(sql, values) { postgres(connection, sql, values) } if of?("PG::Connection", connection)
      return ->(sql, values) { mysql(connection, sql, values) } if of?("Mysql2::Client", connection)
      return ->(sql, values) { sqlite(connection, sql, values) } if of?("SQLite3::Database", connection)

      raise TypeError, "the connection is a #{connection.class}; give a PG::Connection, a Mysql2::Client, an " \
                       "SQLite3::Database, or a Proc of SQL and values that returns rows as Arrays"
    end

    # A transaction that was forgotten, where the driver knows.
    def self.check_transaction(connection)
      open = if of?("PG::Connection", connection) then connection.transaction_status != PG::PQTRANS_IDLE
             elsif of?("SQLite3::Database", connection) then connection.transaction_active?
             else true
             end
      return if open

      raise ArgumentError, "the connection is in no transaction, so work and record would be committed one by one; begin one before"
    end

    # The number of a database's error, as the driver has it.
    def self.code_of(error)
      error.respond_to?(:error_number) ? error.error_number.to_s : ""
    end

    def self.of?(name, connection)
      Object.const_defined?(name) && connection.is_a?(Object.const_get(name))
    end

    # The types of PostgreSQL's columns, whatever map of types the connection has.
    WHOLE = [20, 21, 23].freeze
    BYTES = 17
    private_constant :WHOLE, :BYTES

    def self.postgres(connection, sql, values)
      given = values.map do |value|
        { value: value.is_a?(Integer) ? value.to_s : value, type: 0, format: bytes?(value) ? 1 : 0 }
      end
      result = connection.exec_params(sql, given, 0, PG::TypeMapAllStrings.new)
      result.type_map = PG::TypeMapAllStrings.new
      types = Array.new(result.nfields) { |column| result.ftype(column) }
      result.values.map { |row| row.zip(types).map { |value, type| value && column(value, type) } }
    ensure
      result&.clear
    end

    def self.column(value, type)
      return Integer(value, 10) if WHOLE.include?(type)

      type == BYTES ? PG::Connection.unescape_bytea(value) : value.dup.force_encoding(Encoding::UTF_8)
    end

    def self.mysql(connection, sql, values)
      statement = connection.prepare(sql)
      statement.execute(*values, as: :array, symbolize_keys: false, cast: true)&.to_a
    ensure
      statement&.close
    end

    def self.sqlite(connection, sql, values)
      connection.prepare(sql) do |statement|
        values.each.with_index(1) do |value, at|
          statement.bind_param(at, bytes?(value) ? SQLite3::Blob.new(value) : value)
        end
        rows = []
        while (row = statement.step)
          rows << row
        end
        rows
      end
    end

    def self.bytes?(value)
      value.is_a?(String) && value.encoding == Encoding::BINARY
    end

    def self.cell(value)
      number = text = bytes = nil
      case value
      when nil then nil
      when Integer then number = Words.whole("a column", value)
      when String then bytes?(value) ? bytes = value : text = value
      else
        raise TypeError, "the driver returned a column of the class #{value.class}; Integers, Strings and nil are expected"
      end
      PolylatchNative::SqlCell.new(number: number, text: text, bytes: bytes)
    end

    private_class_method :query_of, :of?, :postgres, :column, :mysql, :sqlite, :bytes?, :cell
  end
  private_constant :Statements
end
