# frozen_string_literal: true

require "ffi"
require "io/wait"

# Distributed locks whose holder always knows, conservatively, whether it still holds them.
#
#   Polylatch.connect("redis://localhost") do |client|
#     client.lock("orders/42", lease: 30, wait: 5).acquire do |guard|
#       write(order, guard.fencing_token)
#     end
#   end
#
# Lengths of time are seconds. Waiting lets other threads run, and ends with Timeout, Thread#raise and
# Thread#kill, which leave nothing behind. Leases are renewed by a native thread, whatever Ruby does.
module Polylatch
  # The native library of this gem.
  LIBRARY = File.join(__dir__, "polylatch", "libpolylatch_uniffi.#{FFI::Platform::LIBSUFFIX}")

  # Connects to the store at +url+, such as "redis://localhost" or "sqlite:locks.db"; without one, to what
  # POLYLATCH_URL says, or else to an embedded file. Other keywords are options of the URL, such as
  # <tt>prefix: "shop"</tt>; +program+ is the name that people see beside held locks.
  #
  # +on_event+ is called with the events of this client from +level+ on ("error", "warn", "info", the default, or "debug",
  # which adds what comes with every lock; an event below the level costs nothing): an object with +event+ (such as
  # "lost"), +level+, +message+, +line+ (for a log), +client+ and, as far as they apply, +lock+,
  # +fencing_token+, +reason+, +error+ and others. It runs on a thread of its own, one event after the other, and
  # holds up no lock. What it raises goes to Kernel#warn. It is not called any more once #close has returned.
  #
  # With a block, yields the client, closes it, and returns what the block did.
  #
  # Raises InvalidConfig, BackendUnavailable, BackendRejected, NameConflict.
  def self.connect(url = nil, program: nil, on_event: nil, **options)
    client = Client.open(url, program, on_event, options)
    return client unless block_given?

    begin
      yield client
    ensure
      client.close
    end
  end
end

require_relative "polylatch/version"
require_relative "polylatch/native"
unless FFI::Platform.windows?
  require_relative "polylatch/waiting"
  require_relative "polylatch/forks"
end
require_relative "polylatch/errors"
require_relative "polylatch/words"
require_relative "polylatch/guard"
require_relative "polylatch/lock"
require_relative "polylatch/results"
require_relative "polylatch/idempotency"
require_relative "polylatch/sql"
require_relative "polylatch/statements"
require_relative "polylatch/transactions"
require_relative "polylatch/listening"
require_relative "polylatch/client"
