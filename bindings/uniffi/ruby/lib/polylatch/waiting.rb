# frozen_string_literal: true

# How Ruby waits for a call of the native half.
#
# The generated way is a callback into Ruby from a native thread. It waits for the interpreter's lock, and in a
# forked child no thread carries it out. Here the native half itself writes the byte that Ruby waits for.
module PolylatchNative
  # Pipes that are not in use. A forked child must not use those of its parent: both would read.
  module Pipes # :nodoc:
    @free = []
    @process = Process.pid

    def self.take
      unless @process == Process.pid
        @free = []
        @process = Process.pid
      end
      @free.pop || IO.pipe
    end

    # Only an empty one.
    def self.give_back(pipe)
      @process == Process.pid && @free.size < 16 ? @free.push(pipe) : pipe.each(&:close)
    end
  end
  private_constant :Pipes

  TELL = UniFFILib.ffi_libraries.first.find_function("polylatch_tell_ruby")
  READY = 0
  private_constant :TELL, :READY

  # Every poll is answered with one byte, also that of a call which is cancelled, so the pipe is empty again at
  # the end. An interrupt (Timeout, Thread#raise, Thread#kill) is let in only while it waits.
  def self.uniffi_rust_call_async(call, poll, cancel, complete, free, lift, error)
    pipe = Pipes.take
    reader, writer = pipe
    asked = false
    loop do
      Thread.handle_interrupt(Object => :never) do
        UniFFILib.public_send(poll, call, TELL, writer.fileno)
        asked = true
      end
      reader.wait_readable
      code = nil
      Thread.handle_interrupt(Object => :never) do
        code = reader.read_nonblock(1, exception: false)
        asked = false if code.is_a?(String)
      end
      next unless code.is_a?(String)
      break if code.ord == READY
    end
    lift.call(error ? rust_call_with_error(error, complete, call) : rust_call(complete, call))
  ensure
    Thread.handle_interrupt(Object => :never) do
      if asked
        UniFFILib.public_send(cancel, call)
        reader.readbyte
      end
      UniFFILib.public_send(free, call)
      Pipes.give_back(pipe) if pipe
    end
  end
end
