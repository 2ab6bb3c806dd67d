# frozen_string_literal: true

# What a call costs, and whether memory stays: measure.rb CYCLES URL…

require "polylatch"

MOST_GROWTH_KIB = 16 * 1024

def resident_kib
  3.times { GC.start }
  File.read("/proc/self/statm").split[1].to_i * 4
end

def each_ns(times)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  times.times { yield }
  (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - started) / times
end

cycles = Integer(ARGV.shift)
ARGV.each do |url|
  Polylatch.connect(url) do |client|
    lock = client.lock("measured")
    300.times { lock.acquire.release }
    both = each_ns(1_500) { lock.acquire.release }
    check = lock.acquire { |guard| each_ns(20_000) { guard.check } }
    puts "ruby #{url[/\A\w+/]} check_ns=#{check} acquire_release_ns=#{both}"
  end
end

Polylatch.connect("memory:cycles") do |client|
  cycle = -> { client.lock("cycle").acquire(&:check) }
  (cycles / 4).times { cycle.call }
  before = resident_kib
  cycles.times { cycle.call }
  growth = resident_kib - before
  puts "ruby memory cycles=#{cycles} growth_kib=#{growth}"
  exit 1 if growth > MOST_GROWTH_KIB
end
