# frozen_string_literal: true

module Polylatch
  # One client of one store of locks; one per process is enough. Every thread may use it, and a forked child
  # too: there it connects again.
  class Client
    def self.open(url, program, on_event, options) # :nodoc:
      unless on_event.nil? || on_event.respond_to?(:call)
        raise TypeError, "on_event must respond to call, as a Proc or a Method does, not #{on_event.class}"
      end

      native = PolylatchNative::NativeClient.new
      listening = on_event && Listening.new(native.events, on_event)
      entries = options.map do |key, value|
        PolylatchNative::OptionEntry.new(key: key.to_s, word: Words.word(key.to_s, value))
      end
      with = PolylatchNative::ConnectWith.new(
        url: url && Words.text("url", url), program: program && Words.text("program", program),
        language: "ruby", options: entries
      )
      Told.told { native.connect(with) }
      new(native, listening)
    end
    private_class_method :new

    def initialize(native, listening) # :nodoc:
      @native = native
      @listening = listening
      listening&.here
    end

    def native # :nodoc:
      # A forked child has none of its parent's threads.
      @listening&.here
      @native
    end

    # Names a lock, with how it is to be acquired. Nothing is sent before it is.
    #
    # +lease+: how many seconds the lease lasts unless renewed, 0.1 to a day. Shorter: a dead holder is noticed
    # sooner. Longer: a slow network or a pause does not lose the lock. +wait+: how long to wait for a lock that
    # another client holds; without it, as long as it takes. +label+: a description shown to operators; no
    # secrets. +owner+: an acquisition with the same id in this client while it is held enters at once.
    # +max_hold+: never hold it for longer. +beat_every+: renew only while Held#beat is called at least this
    # often. <tt>fifo: false</tt>: may take a free lock although other clients are queued. <tt>renew: false</tt>:
    # the lease ends after its full length. +keep_idle+: after a release the client keeps the lease for the next
    # caller, for at most this long, 0.1 to a day, and acquiring it again costs no request; another client that asks
    # for the lock has it released. A process that stops while it keeps a lease blocks the lock until the lease ends.
    # For plain locks, on memory and Redis stores.
    def lock(name, **options)
      Lock.new(self, name, PolylatchNative::WantedWay::MUTEX, Words.options(**options))
    end

    # Names a lock that many may read or one may write; the options are those of #lock.
    def rw_lock(name, **options)
      RwLock.new(self, name, Words.options(**options))
    end

    # Names a lock with this many permits, 1 to 1000; the options are those of #lock.
    def semaphore(name, permits, **options)
      Semaphore.new(self, name, permits, Words.options(**options))
    end

    # Names several locks that are had all together or not at all. +wait+ is for all of them together; the
    # other options are those of #lock, for each.
    def lock_all(names, **options)
      LockAll.new(self, names, Words.options(**options))
    end

    # Names a scope of idempotent work: each of its keys is worked for once, and every repetition gets the stored
    # answer. Nothing is sent before the first call.
    #
    # The scope names the operation and the caller it is done for, such as "orders/customer-7". Take the caller's
    # identity from its credentials, never from its request: two callers that share a scope get each other's answers
    # for the same key. Results are stored as JSON, or with <tt>encoding: :bytes</tt> as they are.
    def idempotency(scope, encoding: :json)
      Idempotency.new(self, scope, encoding)
    end

    # Reads who holds and who waits. Changes nothing in the store.
    #
    # +name+: only this lock, also if it is free. +prefix+: only locks whose name starts so. +limit+: at most
    # so many. What a store cannot say is nil.
    def inspect_locks(name: nil, prefix: nil, limit: nil)
      look = PolylatchNative::Look.new(
        name: name && Words.text("name", name), prefix: prefix && Words.text("prefix", prefix),
        limit: limit && Words.whole("limit", limit)
      )
      Told.told { native.inspect_locks(look) }
    end

    # Breaks a lease, if it still has this fencing token; the outcome is "broken", "free" or
    # "changed_hands". +by+ and +reason+ are recorded in the store, for operators.
    def break_lease(name, fencing_token:, by:, reason:)
      Told.told do
        native.break_lease(Words.text("name", name), Words.whole("fencing_token", fencing_token),
                           Words.text("by", by), Words.text("reason", reason))
      end
    end

    # Ends waiting, releases what is held, and waits (at most 5 s) until the store knows, then (at most 5 s) until
    # +on_event+ has had all events: it is not called any more then. Repeatable.
    def close
      Told.told { @native.shut_down }
      @listening&.finish
      nil
    end

    # What this client has done since it was made, in numbers: an object with +acquired+, +refused+, +timed_out+,
    # +failed+, +cancelled+ (how acquisitions ended), +waiting+ and +held+ (now), +losses+ and +errors+ (counts by
    # code), and the histograms +wait+, +hold+ and +renewal_lag+, each with +bounds+ (seconds), +counts+ (one more:
    # for all above), +sum+ and +count+. Costs no request.
    def stats
      Told.told { @native.stats }
    end

    # The same as text that Prometheus reads, with these labels on every line; the label +backend+ is there already.
    #
    # Raises InvalidArgument for a label that Prometheus does not accept.
    def prometheus(labels = {})
      pairs = labels.to_h do |name, value|
        [Words.text("a label", name.is_a?(Symbol) ? name.name : name), Words.text("the label #{name}", value)]
      end
      Told.told { @native.prometheus(pairs) }
    end

    # The id of this client in the store.
    def id
      Told.told { native.id }
    end

    # The store's URL without its secrets.
    def url
      Told.told { native.url }
    end

    # What this store, as configured, can do.
    def capability
      Told.told { native.capability }
    end

    def inspect
      "#<Polylatch::Client>"
    end
  end
end
