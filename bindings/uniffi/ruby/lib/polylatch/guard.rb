# frozen_string_literal: true

module Polylatch
  # What is held: proof of a lease, and the means to release it.
  #
  # It is renewed in the background until it is released or lost. A loss is reported by this process's own clock,
  # with or without an answer from the store. One that is forgotten is released when it is collected; a forked
  # child does not hold what its parent holds.
  class Held
    def initialize(slot) # :nodoc:
      @slot = slot
    end

    # Whether it is still held, by the clock, now. Costs no request.
    def held?
      @slot.is_held
    end

    # Whether it was lost, by the clock, now. False after a release.
    def lost?
      !lost_reason.nil?
    end

    # Why it was lost, such as "expired"; nil if it was not.
    def lost_reason
      check
      nil
    rescue LeaseLost => e
      e.reason
    rescue InvalidArgument
      nil
    end

    # For how many seconds it may be relied on from now; 0.0 once it is over.
    def remaining
      @slot.remaining
    end

    # Raises LeaseLost unless it is still held, by the clock, now. Costs no request.
    def check
      Told.told { @slot.check }
      self
    end

    # Says that the protected work moves on; matters only with +beat_every+.
    def beat
      Told.told { @slot.beat }
      self
    end

    # Calls the block with the reason when it is lost, on a thread of its own; never after a release. A guard
    # with such a block is kept until it is released or lost.
    def on_lost(&block)
      raise ArgumentError, "on_lost needs a block" unless block

      Thread.new(@slot) do |slot|
        reason = Told.told { slot.ended }
        block.call(reason) if reason
      end
      self
    end

    # Releases it and waits until the store has confirmed it. Repeatable.
    #
    # Raises LeaseLost if it was over before; BackendUnavailable if the store did not answer in time, and then
    # the background goes on trying until the lease has ended.
    def release
      Told.told { @slot.release }
      nil
    end
  end

  # A held lock.
  class Guard < Held
    # The lock's name.
    def name
      @slot.names.first
    end

    # The number to hand to the protected resource: larger than any given out before for this name.
    def fencing_token
      @slot.fencing_tokens.first
    end

    # How far the order of fencing tokens can be relied on: "strict", "time-floored" or "none".
    def fence_quality
      Told.told { @slot.fence_quality }
    end

    # Name, holder and fencing token as one printable value.
    def sequencer
      Told.told { @slot.sequencer }
    end

    # Until when it may be relied on, in seconds of the clock that goes on while the machine sleeps (on Linux
    # <tt>Process.clock_gettime(Process::CLOCK_BOOTTIME)</tt>).
    def valid_until
      Told.told { @slot.valid_until }
    end

    # In which way it is held: "mutex", "read", "write" or "permits".
    def mode
      Told.told { @slot.mode }
    end

    # How often it was renewed.
    def renewals
      Told.told { @slot.renewals }
    end

    # Gives the lease another length, in seconds; later renewals use it too. The store is asked at once. Returns
    # until when it may be relied on, as #valid_until.
    #
    # A shorter length takes nothing back: a deadline that lies further away stays. +max_hold+ and +beat_every+
    # limit the lease as before. Without renewal, extend again before it ends.
    #
    # Raises LeaseLost; InvalidArgument for a length out of range and after a release; Unsupported where a lease
    # keeps its length (Consul); BackendUnavailable if the store did not confirm it in time, and then the guard
    # keeps its deadline and its length.
    def extend(lease)
      lease = Words.number("lease", lease)
      Told.told { @slot.extend(lease) }
    end

    # Atomically downgrades a write lock to a read lock.
    def downgrade
      Told.told { @slot.downgrade }
      self
    end

    # Upgrades a read lock to a write lock if there is no other reader, under a newer fencing token.
    # Returns whether it did; if not, it still reads. There is no form that waits: two readers would wait
    # for each other for ever.
    def try_upgrade
      Told.told { @slot.try_upgrade }
    end

    def inspect
      "#<Polylatch::Guard #{name.inspect}, token #{fencing_token}, #{held? ? 'held' : 'not held'}>"
    end
  end

  # Several held locks.
  class GuardSet < Held
    # The fencing token of each lock, by name.
    def fencing_tokens
      @slot.names.zip(@slot.fencing_tokens).to_h
    end

    def inspect
      "#<Polylatch::GuardSet #{fencing_tokens}, #{held? ? 'held' : 'not held'}>"
    end
  end

  # The gate that a protected resource puts fencing tokens through: it refuses holders from before.
  class TokenGate
    # +largest+ is the largest token that came before, if it was kept.
    def initialize(largest = nil)
      largest &&= Words.whole("largest", largest)
      @native = Told.told { PolylatchNative::NativeGate.new(largest) }
    end

    # The largest token that came; nil if none did.
    def largest
      @native.largest
    end

    # Raises StaleToken if a larger token came before.
    def admit(token)
      Told.told { @native.admit(Words.whole("token", token)) }
      self
    end
  end
end
