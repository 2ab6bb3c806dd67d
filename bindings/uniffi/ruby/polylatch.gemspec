# frozen_string_literal: true

require_relative "lib/polylatch/version"

Gem::Specification.new do |spec|
  spec.name = "polylatch"
  spec.version = Polylatch::VERSION
  spec.authors = ["The Polylatch developers"]
  spec.summary = "Distributed locks whose holder always knows whether it still holds them"
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.0"
  # It carries a native library for one system, or the sources from which Cargo makes it.
  platform = ENV.fetch("POLYLATCH_GEM_PLATFORM", "")
  spec.platform = platform.empty? ? Gem::Platform.local : platform
  spec.extensions = ["ext/extconf.rb"] if platform == "ruby"
  # lib/polylatch/native.rb and the library are made by `bindings/uniffi/build` and put there by `pack`, and so is native/.
  spec.files = Dir["lib/**/*.rb", "lib/polylatch/libpolylatch_uniffi.*", "ext/*", "native/**/*"] +
               %w[README.md LICENSE THIRD-PARTY-NOTICES.txt]
  spec.add_dependency "ffi", "~> 1.15"
  spec.metadata["rubygems_mfa_required"] = "true"
end
