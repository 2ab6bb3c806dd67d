# frozen_string_literal: true

# Lets the conformance runner drive the gem: requests and answers are JSON lines. The protocol stands in
# tests/conformance/README.md.

require "json"
require "polylatch"

# The runner asks for something that there is not.
class Runners < StandardError; end

# Ends a request as Timeout does: by an exception in its thread.
class GivenUp < Exception; end # rubocop:disable Lint/InheritException

# Carries out requests, each on a thread of its own.
class Shim
  OPTIONS = %i[lease_ms wait_ms max_hold_ms beat_every_ms keep_idle_ms label owner fifo renew on_failure].freeze

  def initialize
    @clients = {}
    @events = Hash.new { |all, client| all[client] = Queue.new }
    @named = []
    @guards = {}
    @running = {}
    @out = Mutex.new
  end

  def serve(request)
    case request[:op]
    when "connect"
      heard = @events[request[:client]]
      client = @clients[request[:client]] = Polylatch.connect(request[:url], on_event: heard.method(:push))
      { capability: capability(client.capability) }
    when "name" then done { @named << lock(request) }
    when "acquire" then keep(request, lock(request).acquire)
    when "try" then keep(request, lock(request).try_acquire)
    when "lock_all" then keep(request, locks(request).acquire)
    when "try_all" then keep(request, locks(request).try_acquire)
    when "release" then done { guard(request).release }
    when "check" then done { guard(request).check }
    when "beat" then done { guard(request).beat }
    when "extend" then done { guard(request).extend(request[:lease_ms] / 1000.0) }
    when "lost" then { reason: lost(guard(request)) }
    when "downgrade" then keep(request, guard(request).downgrade)
    when "upgrade" then keep(request, guard(request).then { |held| held if held.try_upgrade })
    when "see" then see(request)
    when "break" then { outcome: broken(request) }
    when "told" then { events: told_of(request) }
    when "stats" then stats(client(request).stats)
    when "run" then run_once(request)
    when "working" then done { gate(request).reached(1) }
    when "end_run" then done { gate(request).reach(2) }
    when "close" then done { client(request).close }
    else raise Runners, "there is no verb #{request[:op].inspect}"
    end
  end

  def run
    say(hello: "polylatch", protocol: 1, language: "ruby", version: Polylatch::VERSION, can: %w[cancel idempotency])
    $stdin.each_line do |line|
      request = JSON.parse(line, symbolize_names: true)
      if request[:op] == "cancel"
        @running[request[:target]]&.raise(GivenUp)
        say(id: request[:id], ok: {})
        next
      end
      # Not before the thread is known: a request to cancel it may follow at once.
      known = Queue.new
      @running[request[:id]] = Thread.new { known.pop && answer(request) }
      known << true
    end
    exit!(true)
  end

  private

  def answer(request)
    result =
      begin
        { ok: serve(request) }
      rescue GivenUp then { canceled: true }
      rescue Polylatch::Error => e then { error: told(e) }
      rescue StandardError => e then { fault: "#{e.class}: #{e.message}" }
      end
    @running.delete(request[:id])
    say(id: request[:id], **result)
  rescue GivenUp
    # It came after the answer was made.
    say(id: request[:id], **result)
  end

  def told(error)
    reason = error.reason if error.is_a?(Polylatch::LeaseLost)
    { code: error.code, retry: error.retry, effect: error.effect, reason: reason, message: error.message }
  end

  def say(answer)
    @out.synchronize do
      $stdout.write("#{JSON.generate(answer)}\n")
      $stdout.flush
    end
  end

  # How far work has come that waits: begun (1), and let go on (2).
  class Gate
    def initialize
      @stage = 0
      @mutex = Mutex.new
      @changed = ConditionVariable.new
    end

    def reach(stage)
      @mutex.synchronize do
        @stage = [@stage, stage].max
        @changed.broadcast
      end
    end

    def reached(stage)
      @mutex.synchronize { @changed.wait(@mutex) until @stage >= stage }
    end
  end

  def gate(request)
    @out.synchronize { (@gates ||= {})[request[:waits]] ||= Gate.new }
  end

  def run_once(request)
    keys = client(request).idempotency(request[:scope])
    outcome = keys.run(request[:key], payload: request[:payload], **options(request)) do
      if request[:waits]
        gate(request).reach(1)
        gate(request).reached(2)
      end
      raise Polylatch::WorkFailed.new("the work fails", answer: request[:value]) if request[:fails]

      request[:value]
    end
    { value: outcome.value, replayed: outcome.replayed }
  end

  def done
    yield
    {}
  end

  def client(request)
    @clients[request[:client]] || raise(Runners, "there is no client #{request[:client]}")
  end

  def guard(request)
    @guards[request[:guard]] || raise(Runners, "there is no guard #{request[:guard]}")
  end

  def options(request)
    (request[:options] || {}).to_h do |key, value|
      raise Runners, "there is no option #{key}" unless OPTIONS.include?(key)

      key.end_with?("_ms") ? [key.to_s.delete_suffix("_ms").to_sym, value / 1000.0] : [key, value]
    end
  end

  def lock(request)
    name, with = request[:lock], options(request)
    mode = request[:mode] || { kind: "mutex" }
    case mode[:kind]
    when "mutex" then client(request).lock(name, **with)
    when "read" then client(request).rw_lock(name, **with).read
    when "write" then client(request).rw_lock(name, **with).write
    else client(request).semaphore(name, mode[:capacity], **with).permits(mode[:count])
    end
  end

  def locks(request)
    client(request).lock_all(request[:locks], **options(request))
  end

  def keep(request, held)
    return { held: false } unless held

    @guards[request[:guard]] = held
    return { held: true, locks: held.fencing_tokens.keys } if held.is_a?(Polylatch::GuardSet)

    { held: true, token: held.fencing_token, locks: [held.name] }
  end

  def lost(held)
    told = Queue.new
    held.on_lost { |reason| told << reason }
    told.pop
  end

  # What the callback heard of a lock so far.
  def told_of(request)
    heard = @told ||= Hash.new { |all, client| all[client] = [] }
    queue = @events[request[:client]]
    heard[request[:client]] << queue.pop until queue.empty?
    of_lock = heard[request[:client]].select { |event| event.lock == request[:lock] }
    of_lock.map { |event| "#{event.level} #{event.event}" }
  end

  def stats(stats)
    { acquired: stats.acquired, refused: stats.refused, timed_out: stats.timed_out, held: stats.held,
      waiting: stats.waiting, losses: stats.losses.values.sum }
  end

  def broken(request)
    client(request).break_lease(request[:lock], fencing_token: request[:token], by: request[:by],
                                                reason: request[:reason]).outcome
  end

  def see(request)
    snapshot = client(request).inspect_locks(name: request[:lock])
    view = snapshot.locks.first
    clients = snapshot.clients.to_h { |one| [one.id, one] }
    seen = lambda do |one|
      who = clients[one.client]
      { label: one.label, mode: one.mode, permits: one.permits, pid: who&.pid, language: who&.language }
    end
    holders = view ? view.holders : []
    {
      holders: holders.map { |one| { **seen.(one), token: one.fencing_token, renewals: one.renewals } },
      waiters: (view ? view.waiters : []).map(&seen)
    }
  end

  def capability(can)
    { backend: can.backend, fifo: can.fifo, push: can.push, expiry: can.expiry, sharing: can.sharing,
      atomic_sets: can.atomic_sets, fencing: can.fencing, min_lease: can.min_lease_ms, max_lease: can.max_lease_ms }
  end
end

Shim.new.run
