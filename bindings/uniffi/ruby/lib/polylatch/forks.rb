# frozen_string_literal: true

module PolylatchNative
  # Closes the files of "sqlite:" stores whose clients hold nothing and wait for nothing while the process forks, so that
  # the child can open them. Every way to fork goes through Process._fork, from Ruby 3.1 on.
  module Forks # :nodoc:
    library = UniFFILib.ffi_libraries.first
    # Other threads run meanwhile.
    BEFORE = FFI::Function.new(:void, [], library.find_function("polylatch_before_fork"), blocking: true)
    AFTER_IN_PARENT = FFI::Function.new(:void, [], library.find_function("polylatch_after_fork_in_parent"))

    def _fork
      BEFORE.call
      child = super
    ensure
      AFTER_IN_PARENT.call unless child&.zero?
    end

    Process.singleton_class.prepend(self) if Process.respond_to?(:_fork)
  end
  private_constant :Forks
end
