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
  # A bug in this library.
  class Internal < Error; end

  # Makes this library's errors of what the native half says.
  module Told # :nodoc:
    CLASSES = {
      "invalid_config" => InvalidConfig, "invalid_argument" => InvalidArgument, "unsupported" => Unsupported,
      "wait_timeout" => WaitTimeout, "canceled" => Canceled, "lease_lost" => LeaseLost,
      "stale_token" => StaleToken, "name_conflict" => NameConflict,
      "quorum_unreachable" => QuorumUnreachable, "backend_unavailable" => BackendUnavailable,
      "backend_rejected" => BackendRejected, "internal" => Internal
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
