# frozen_string_literal: true

module Polylatch
  # Checks the types of what a caller says. Ranges are the library's to check.
  module Words # :nodoc:
    def self.text(what, value)
      raise TypeError, "#{what} must be a String, not #{value.class}" unless value.respond_to?(:to_str)

      text = value.to_str
      text = text.encode(Encoding::UTF_8) unless text.encoding == Encoding::BINARY
      text = text.dup.force_encoding(Encoding::UTF_8) if text.encoding == Encoding::BINARY
      raise ArgumentError, "#{what} is not UTF-8" unless text.valid_encoding?

      text
    rescue EncodingError
      raise ArgumentError, "#{what} is not UTF-8"
    end

    def self.number(what, value)
      raise TypeError, "#{what} must be a number, not #{value.class}" unless value.is_a?(Numeric)

      Float(value)
    end

    def self.whole(what, value)
      raise TypeError, "#{what} must be an Integer, not #{value.class}" unless value.is_a?(Integer)
      raise RangeError, "#{what} is #{value}; that is far too large" unless value.bit_length < 64

      value
    end

    def self.yes(what, value)
      raise TypeError, "#{what} must be true or false, not #{value.class}" unless [true, false].include?(value)

      value
    end

    # Options of an acquisition, as the native half has them. An unknown one is an ArgumentError.
    def self.options(lease: nil, wait: nil, label: nil, owner: nil, max_hold: nil, beat_every: nil, fifo: nil,
                     renew: nil, keep_idle: nil)
      PolylatchNative::WantedOptions.new(
        lease: lease && number("lease", lease), wait: wait && number("wait", wait),
        label: label && text("label", label), owner: owner && text("owner", owner),
        max_hold: max_hold && number("max_hold", max_hold),
        beat_every: beat_every && number("beat_every", beat_every),
        fifo: fifo.nil? ? nil : yes("fifo", fifo), renew: renew.nil? ? nil : yes("renew", renew),
        keep_idle: keep_idle && number("keep_idle", keep_idle)
      )
    end

    # Options of a run of idempotent work. An unknown one is an ArgumentError.
    def self.run_options(payload: nil, fingerprint: nil, retention: nil, lease: nil, wait: nil, on_failure: nil)
      PolylatchNative::RunWith.new(
        payload: payload.nil? ? nil : payload_bytes(payload),
        fingerprint: fingerprint && text("fingerprint", fingerprint),
        retention: retention && number("retention", retention), lease: lease && number("lease", lease),
        wait: wait && number("wait", wait), on_failure: on_failure && text("on_failure", on_failure.to_s)
      )
    end

    # Options of work in transactions.
    def self.sql_run_options(payload: nil, fingerprint: nil, retention: nil, lease: nil, no_wait: false)
      PolylatchNative::SqlRunWith.new(
        payload: payload.nil? ? nil : payload_bytes(payload),
        fingerprint: fingerprint && text("fingerprint", fingerprint),
        retention: retention && number("retention", retention), lease: lease && number("lease", lease),
        no_wait: yes("no_wait", no_wait)
      )
    end

    # Equal payloads are equal bytes, whatever the order of their keys.
    def self.payload_bytes(payload)
      payload.is_a?(String) ? payload.b : JSON.generate(sorted(payload)).b
    end

    def self.sorted(value)
      case value
      when Hash then value.map { |key, inner| [key.to_s, sorted(inner)] }.sort_by(&:first).to_h
      when Array then value.map { |inner| sorted(inner) }
      else value
      end
    end

    # The value of a client's option.
    def self.word(key, value)
      case value
      when true, false then PolylatchNative::OptionWord::FLAG.new(yes: value)
      when Numeric then PolylatchNative::OptionWord::BARE.new(number: number(key, value))
      when String, Symbol then PolylatchNative::OptionWord::TEXT.new(text: text(key, value.to_s))
      else raise TypeError, "#{key} must be a String, a Symbol, a number, true or false, not #{value.class}"
      end
    end
  end
  private_constant :Words
end
