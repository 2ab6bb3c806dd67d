# frozen_string_literal: true

# A job that takes longer than its lease: renewed in the background, stopped when it hangs.

require "polylatch"

Polylatch.connect(ENV.fetch("POLYLATCH_URL", "memory:")) do |client|
  report = client.lock("reports/nightly", label: "nightly report", lease: 1.2, beat_every: 1, max_hold: 60)
  report.acquire do |guard|
    lost = Queue.new
    guard.on_lost { |reason| lost << reason }
    1.upto(8) do |page|
      sleep 0.2
      guard.beat.check
      puts "page #{page} done, lease good for another #{(guard.remaining * 1000).round} ms"
    end
    puts "renewed #{guard.renewals} times; now the work hangs: no more beats"
    puts "the lock is given up: #{lost.pop}"
  end
rescue Polylatch::LeaseLost => e
  raise unless e.reason == "no_progress"

  puts "and the block's caller learns: #{e.reason}"
end
