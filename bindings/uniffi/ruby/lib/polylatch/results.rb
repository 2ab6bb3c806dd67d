# frozen_string_literal: true

require "json"

module Polylatch
  # Results of idempotent work as they are stored: JSON, or bytes.
  class Results # :nodoc:
    def initialize(encoding)
      unless %i[json bytes].include?(encoding)
        raise ArgumentError, "encoding is #{encoding.inspect}; it must be :json or :bytes"
      end

      @encoding = encoding
    end

    def encode(value)
      return JSON.generate(value).b if @encoding == :json
      raise TypeError, "a result in the encoding :bytes must be a String, not #{value.class}" unless value.is_a?(String)

      value.b
    end

    def decode(stored)
      @encoding == :json ? JSON.parse(stored.dup.force_encoding(Encoding::UTF_8)) : stored
    end

    # What repetitions get of work that raised.
    def failure(error)
      error.is_a?(WorkFailed) ? encode(error.answer) : described(error)
    end

    def described(error)
      JSON.generate({ error: error.class.name, message: error.message }).b
    end

    # The error of a stored failure.
    def replayed(fault, stored)
      answer = begin
        decode(stored)
      rescue JSON::ParserError
        # Stored by a program with another encoding.
        stored
      end
      WorkFailed.replayed(fault, answer)
    end

    # A claim, or the answer of an earlier run. Raises its stored failure.
    def found(claim, ended)
      raise replayed(ended.failure, ended.answer) if ended.failure

      [claim, ended.answer && decode(ended.answer)]
    end
  end
  private_constant :Results
end
