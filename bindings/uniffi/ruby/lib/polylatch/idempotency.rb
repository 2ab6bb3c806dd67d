# frozen_string_literal: true

module Polylatch
  # The answer to a run: +value+, and whether an earlier run did the work (+replayed+).
  Outcome = Struct.new(:value, :replayed)

  # The claim on a key under which idempotent work runs. It is renewed until the work has ended.
  class Claim
    def initialize(slot) # :nodoc:
      @slot = slot
    end

    # The number of this claim, larger than that of every claim on the same key before.
    def fencing_token
      @slot.fencing_token
    end

    # How many runs of this key began since it was free, this one counted: more than 1 if a run before died, so
    # that its work may have been done in part.
    def runs
      @slot.runs
    end

    # For how many seconds it may be relied on from now; 0.0 once it is over.
    def remaining
      @slot.remaining
    end

    # Raises LeaseLost if it was lost: another client may do the work. Costs no request.
    def check
      Told.told { @slot.check }
      self
    end

    # Calls the block with the reason when it is lost, on a thread of its own; never after the work has ended.
    def on_lost(&block)
      raise ArgumentError, "on_lost needs a block" unless block

      Thread.new(@slot) do |slot|
        reason = Told.told { slot.ended }
        block.call(reason) if reason
      end
      self
    end
  end

  # The keys and one-time tokens of one scope; see Client#idempotency.
  class Idempotency
    # The scope of these keys.
    attr_reader :scope

    def initialize(client, scope, encoding) # :nodoc:
      @client = client
      @scope = Words.text("scope", scope)
      @results = Results.new(encoding)
    end

    # Yields a Claim and does the work of this key, unless it was done; returns an Outcome with the stored answer.
    #
    # +key+: what is unique to one request, 1 to 255 bytes, made by its client, such as a UUID. +payload+: what the
    # request consists of, as a String or a value for JSON; the same key with another one is refused. +fingerprint+:
    # its digest instead. +retention+: how many seconds the answer is kept, 24 h by default, Float::INFINITY for
    # ever. +lease+: a process that dies blocks its key for so long. +wait+: how long to wait for another run of
    # the key, by default as long as it takes; 0 does not wait. +on_failure+: what becomes of the key if the block
    # raises a StandardError: "store" (the default: every repetition gets the failure), "free" (the next run does
    # the work again), or a Proc of the error that returns one of them.
    #
    # The value is returned as it is read back, so that first and later answers are equal. What the block raises is
    # raised on; repetitions of a stored failure raise WorkFailed. Work that is interrupted (Thread#raise, Thread#kill,
    # throw) stores nothing; its key is free when the lease ends.
    #
    # Raises InProgress, PayloadMismatch, WorkFailed, ResultTooLarge, NotRecorded, and errors of the store.
    def run(key, payload: nil, on_failure: nil, **options, &work)
      raise ArgumentError, "run needs a block" unless work

      fate = on_failure.respond_to?(:call) ? nil : on_failure
      with = Words.run_options(payload: payload, on_failure: fate, **options)
      # As Acquirable: an interrupt is let in while it waits and while the block runs, and nowhere between.
      Thread.handle_interrupt(Object => :never) do
        slot = Told.told { @client.native.run_slot(@scope, Words.text("key", key), with) }
        begin
          entry = Thread.handle_interrupt(Object => :on_blocking) { Told.told { slot.start_run } }
          entry.mine ? worked(slot, on_failure, work) : replayed(entry)
        ensure
          # Nothing once it is finished.
          slot.abandon
        end
      end
    end

    # Deletes what is stored for a key, unless a client works on it: "forgotten", "absent" or "running".
    def forget(key)
      Told.told { @client.native.forget_key(@scope, Words.text("key", key)) }
    end

    # Issues a token that can be consumed once within +ttl+ seconds, 1 s to 10 years.
    def issue(ttl)
      Told.told { @client.native.issue_token(@scope, Words.number("ttl", ttl)) }
    end

    # Consumes a token: "first", "duplicate" or "unknown". However many calls do so at once, one is the first.
    def consume(token)
      Told.told { @client.native.consume_token(@scope, Words.text("token", token)) }
    end

    def inspect
      "#<Polylatch::Idempotency #{scope.inspect}>"
    end

    private

    def worked(slot, on_failure, work)
      begin
        value = Thread.handle_interrupt(Object => :immediate) { work.call(Claim.new(slot)) }
      rescue StandardError => e
        failed(slot, e, on_failure)
        raise
      end
      begin
        stored = @results.encode(value)
      rescue StandardError => e
        # The work is done, so its key is not freed, whatever the options say.
        Told.told { slot.fail(@results.described(e), "store") }
        raise
      end
      Told.told { slot.complete(stored) }
      Outcome.new(@results.decode(stored), false)
    end

    def failed(slot, error, on_failure)
      fate = error.on_failure if error.is_a?(WorkFailed)
      fate ||= on_failure.call(error) if on_failure.respond_to?(:call)
      Told.told { slot.fail(@results.failure(error), fate&.to_s) }
    rescue Error => e
      warn "polylatch: a failure of idempotent work is not recorded: #{e.message}"
    end

    def replayed(entry)
      raise @results.replayed(entry.failure, entry.answer) if entry.failure

      Outcome.new(@results.decode(entry.answer), true)
    end
  end
end
