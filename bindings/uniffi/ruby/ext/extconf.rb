# frozen_string_literal: true

# Run by RubyGems where the gem has no native library for the machine: has Cargo compile it. Nothing here is C, so Ruby's own
# headers and its mkmf, which not every Ruby comes with, are not needed.
require "rbconfig"

root = File.expand_path("..", __dir__)
unless system("cargo", "--version")
  abort "polylatch is compiled here, which needs Rust (cargo): https://rustup.rs has it"
end

library = RbConfig::CONFIG["host_os"].include?("darwin") ? "libpolylatch_uniffi.dylib" : "libpolylatch_uniffi.so"
# In the folder that the environment names, such as one that other builds share; otherwise here, and deleted afterwards.
given = ENV.fetch("CARGO_TARGET_DIR", "")
target = File.expand_path(given.empty? ? "target" : given)
File.write("Makefile", <<~MAKEFILE)
  all:
  \tcd "#{root}/native" && cargo build --profile dist -p polylatch-uniffi --target-dir "#{target}"
  install:
  \tcp "#{target}/dist/#{library}" "#{root}/lib/polylatch/"
  \trm -rf target
  clean:
  \trm -rf target
  .PHONY: all install clean
MAKEFILE
