# frozen_string_literal: true

# A lock is taken, used and released.

require "polylatch"

Polylatch.connect(ENV.fetch("POLYLATCH_URL", "memory:")) do |client|
  client.lock("orders/42", lease: 30, wait: 5).acquire do |guard|
    # Hand the token to whatever is protected: it refuses writes of holders from before.
    puts "held for another #{guard.remaining.round(1)} s, write with token #{guard.fencing_token}"
    raise "another client got in" if client.lock("orders/42").try_acquire
  end
  puts "released"
end
