# frozen_string_literal: true

# Work that stops by itself when its lock is lost.

require "polylatch"

Polylatch.connect(ENV.fetch("POLYLATCH_URL", "memory:")) do |client|
  client.lock("import", lease: 2).acquire do |guard|
    import = Thread.new { sleep 3600 }
    guard.on_lost { import.kill }

    # Meanwhile an operator ends the lease, naming the token that was looked at.
    token = guard.fencing_token
    Thread.new do
      sleep 0.2
      client.break_lease("import", fencing_token: token, by: "ann@desk", reason: "the import runs in the wrong place")
    end
    import.join
  end
rescue Polylatch::LeaseLost => e
  puts "stopped the import: the lock is lost (#{e.reason})"
end
