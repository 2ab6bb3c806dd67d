# frozen_string_literal: true

# A holder from before comes back late, and the resource refuses it.

require "polylatch"

account = Polylatch::TokenGate.new
Polylatch.connect(ENV.fetch("POLYLATCH_URL", "memory:")) do |client|
  # The first holder's lease is short and not renewed: as if its process were paused for long.
  paused = client.lock("account/1", lease: 0.2, renew: false).acquire
  client.lock("account/1", wait: 10).acquire do |guard|
    account.admit(guard.fencing_token)
    puts "the second holder writes with token #{guard.fencing_token}"
  end
  begin
    account.admit(paused.fencing_token)
    raise "a late write came through"
  rescue Polylatch::StaleToken
    puts "the first holder comes back with token #{paused.fencing_token}: refused"
  end
  puts "and it learns: #{paused.lost_reason}"
end
