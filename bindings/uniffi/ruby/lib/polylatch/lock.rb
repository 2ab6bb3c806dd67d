# frozen_string_literal: true

module Polylatch
  # What can be acquired: Lock and LockAll. Nothing is sent, and nothing is checked, before it is acquired.
  class Acquirable
    # Acquires it, waiting as long as the options say.
    #
    # With a block, yields what is held, releases it, and returns what the block did: LeaseLost is raised if
    # it was lost meanwhile. Without one, returns what is held.
    #
    # Raises WaitTimeout with who holds it; InvalidArgument before anything is sent; Canceled when the client
    # is closed; NameConflict, Unsupported, BackendUnavailable, BackendRejected.
    def acquire(&block)
      hold(true, block)
    end

    # Acquires it if it is available at once; nil, without running the block, if another client holds it or
    # stands before.
    def try_acquire(&block)
      hold(false, block)
    end

    private

    def hold(wait, block)
      return enter(wait) unless block

      # A Timeout or Thread#raise is let in while it waits and while the block runs, and nowhere between: a
      # held lock is always released.
      Thread.handle_interrupt(Object => :never) do
        held = Thread.handle_interrupt(Object => :on_blocking) { enter(wait) }
        next unless held

        giving_back(held) { Thread.handle_interrupt(Object => :immediate) { block.call(held) } }
      end
    end

    def giving_back(held)
      done = false
      result = yield
      done = true
      result
    ensure
      begin
        held.release
      rescue Error
        # What the block raised is not replaced by a failed release.
        raise if done
      end
    end

    def enter(wait)
      held = false
      slot = Told.told { @client.native.slot(wanted) }
      Told.told { held = wait ? (slot.acquire || true) : slot.try_acquire }
      held ? self.class::HELD.new(slot) : nil
    ensure
      slot&.abandon unless held
    end
  end

  # A lock to acquire: a name and options.
  class Lock < Acquirable
    HELD = Guard

    # The name of the lock.
    attr_reader :name

    def initialize(client, name, way, options, count: 0, capacity: 0) # :nodoc:
      super()
      @client = client
      @name = Words.text("name", name)
      @way = way
      @options = options
      @count = count
      @capacity = capacity
    end

    def inspect
      "#<Polylatch::Lock #{name.inspect}>"
    end

    private

    def wanted
      PolylatchNative::Wanted.new(
        names: [@name], together: false, way: @way, count: @count, capacity: @capacity, options: @options
      )
    end
  end

  # A lock that many may read or one may write. Readers and writers share one queue.
  class RwLock
    # The name that readers and writers share.
    attr_reader :name

    def initialize(client, name, options) # :nodoc:
      @client = client
      @name = Words.text("name", name)
      @options = options
    end

    # The lock beside other readers.
    def read
      Lock.new(@client, @name, PolylatchNative::WantedWay::READ, @options)
    end

    # The lock alone.
    def write
      Lock.new(@client, @name, PolylatchNative::WantedWay::WRITE, @options)
    end
  end

  # A lock with a number of permits.
  class Semaphore
    # The name of the semaphore.
    attr_reader :name

    def initialize(client, name, capacity, options) # :nodoc:
      @client = client
      @name = Words.text("name", name)
      @capacity = Words.whole("permits", capacity)
      @options = options
    end

    # Some of the permits, as one lease: 1 to the capacity, all or none.
    def permits(count)
      Lock.new(@client, @name, PolylatchNative::WantedWay::PERMITS, @options,
               count: Words.whole("count", count), capacity: @capacity)
    end
  end

  # Several locks that are had all together or not at all.
  class LockAll < Acquirable
    HELD = GuardSet

    # The names of the locks.
    attr_reader :names

    def initialize(client, names, options) # :nodoc:
      super()
      raise TypeError, "names must be an Array of Strings, not #{names.class}" unless names.respond_to?(:to_ary)

      @client = client
      @names = names.to_ary.map { |name| Words.text("a name", name) }.freeze
      @options = options
    end

    private

    def wanted
      PolylatchNative::Wanted.new(
        names: @names, together: true, way: PolylatchNative::WantedWay::MUTEX, count: 0, capacity: 0,
        options: @options
      )
    end
  end
end
