# frozen_string_literal: true

module Polylatch
  # Calls back with the events of one client, on a thread of its own.
  class Listening # :nodoc:
    # How many seconds Client#close waits for callbacks.
    LAST_CALLBACKS = 5

    def initialize(events, on_event)
      @events = events
      @on_event = on_event
      @stop = false
    end

    # Sees to it that there is a thread in this process.
    def here
      return if @process == Process.pid

      @process = Process.pid
      @thread = Thread.new { tell_all }
      @thread.name = "polylatch-events"
    end

    # Returns when all events were handed over. In the callback itself, at once: it still receives the rest.
    def finish
      return if @process != Process.pid || @thread == Thread.current

      @stop = true unless @thread.join(LAST_CALLBACKS)
    end

    private

    def tell_all
      while (events = @events.next_events)
        events.each { |event| tell(event) unless @stop }
      end
    end

    def tell(event)
      @on_event.call(event)
    rescue StandardError => e
      warn "polylatch: on_event raised; the locks are not affected: #{e.full_message(highlight: false)}"
    end
  end
  private_constant :Listening
end
