# frozen_string_literal: true

module Polylatch
  # Where an error happened. Unknown parts are nil; +elapsed+ is seconds.
  Context = Struct.new(:backend, :operation, :lock, :attempt, :elapsed)

  # The parent of every error of this library.
  #
  # +code+ is stable and the same in every language; +retry+ is "never", "caller_decides", "after_backoff" or
  # "acquire_anew"; +effect+ is "maybe" if the request may have been carried out, else "none"; +hint+ says
  # what to do about errors of this code.
  class Error < StandardError
    # The stable code; whether another try may help; whether the request may have changed the store; what to do about errors of
    # this code; where it happened.
    attr_reader :code, :retry, :effect, :hint, :context

    def initialize(fault)
      super(fault.text)
      @code = fault.code
      @retry = fault.again
      @effect = fault.effect
      @hint = fault.hint
      @context = Context.new(fault.backend, fault.operation, fault.lock, fault.attempt, fault.elapsed)
    end
  end

  # A caller's mistake in a URL or an option of the client; nothing was sent.
  class InvalidConfig < Error; end
  # A caller's mistake in an argument; nothing was sent.
  class InvalidArgument < Error; end
  # The store cannot do this.
  class Unsupported < Error; end
  # Another client held the lock for as long as the call waited.
  class WaitTimeout < Error; end
  # The wait was ended on purpose, such as by closing the client.
  class Canceled < Error; end

  # The lease ended without a release; +reason+ says why, such as "expired".
  class LeaseLost < Error
    # Why, such as "expired" or "broken".
    attr_reader :reason

    def initialize(fault)
      super
      @reason = fault.lost_reason
    end
  end

  # A newer holder has written.
  class StaleToken < Error; end
  # The name holds something that is not such a lock.
  class NameConflict < Error; end
  # Too many stores failed for a majority.
  class QuorumUnreachable < Error; end
  # The store did not answer.
  class BackendUnavailable < Error; end
  # The store refused: authentication, permission or setup.
  class BackendRejected < Error; end
  # Another run of the same key is under way, and the caller does not wait for it, or no longer.
  class InProgress < Error; end
  # The key belongs to another payload. Nothing was done.
  class PayloadMismatch < Error; end
  # The work is done, and its result is larger than 1 MiB, so it is not stored. It is not repeated.
  class ResultTooLarge < Error; end
  # The work is done, and what came of it is not stored: another run may do it again, or has.
  class NotRecorded < Error; end

  # The work of a key has failed. Work may raise it to choose what repetitions get (+answer+, the message unless it is
  # given) and what becomes of the key (+on_failure+: "store" or "free"). A repetition of a stored failure raises it
  # with that +answer+, and is +replayed+.
  class WorkFailed < Error
    # What a fault is, of work that raised it itself.
    Own = Struct.new(:text, :code, :again, :effect, :hint, :backend, :operation, :lock, :attempt, :elapsed)
    private_constant :Own

    # What repetitions get, and what becomes of the key if the work has chosen.
    attr_reader :answer, :on_failure

    def self.replayed(fault, answer) # :nodoc:
      new(fault, answer: answer, replayed: true)
    end

    def initialize(message = "the work has failed", answer: nil, on_failure: nil, replayed: false)
      hint = "The failure is the answer of this key; a new request needs a new key."
      super(message.is_a?(String) ? Own.new(message, "failed", "never", "maybe", hint) : message)
      @answer = answer.nil? && !replayed ? self.message : answer
      @on_failure = on_failure
      @replayed = replayed
    end

    # Whether an earlier run failed; this one did not do the work.
    def replayed?
      @replayed
    end
  end

  # A bug in this library.
  class Internal < Error; end

  # Makes this library's errors of what the native half says.
  module Told # :nodoc:
    CLASSES = {
      "invalid_config" => InvalidConfig, "invalid_argument" => InvalidArgument, "unsupported" => Unsupported,
      "wait_timeout" => WaitTimeout, "canceled" => Canceled, "lease_lost" => LeaseLost,
      "stale_token" => StaleToken, "name_conflict" => NameConflict,
      "quorum_unreachable" => QuorumUnreachable, "backend_unavailable" => BackendUnavailable,
      "backend_rejected" => BackendRejected, "internal" => Internal,
      "in_progress" => InProgress, "payload_mismatch" => PayloadMismatch, "failed" => WorkFailed,
      "result_too_large" => ResultTooLarge, "not_recorded" => NotRecorded
    }.freeze

    # The error of a fault; one whose code is unknown here becomes the base.
    def self.error(fault)
      CLASSES.fetch(fault.code, Error).new(fault)
    end

    def self.told
      yield
    rescue PolylatchNative::NativeError::Failed => e
      raise error(e.fault), cause: nil
    end
  end
  private_constant :Told
end
