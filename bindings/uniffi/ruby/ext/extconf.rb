# frozen_string_literal: true

# Run by RubyGems where the gem has no native library for the machine: has Cargo compile it.
require "mkmf"

root = File.expand_path("..", __dir__)
abort "polylatch is compiled here, which needs Rust (cargo): https://rustup.rs has it" unless find_executable("cargo")

library = RbConfig::CONFIG["host_os"].include?("darwin") ? "libpolylatch_uniffi.dylib" : "libpolylatch_uniffi.so"
File.write("Makefile", <<~MAKEFILE)
  all:
  \tcd "#{root}/native" && cargo build --profile dist -p polylatch-uniffi --target-dir "#{Dir.pwd}/target"
  install:
  \tcp "target/dist/#{library}" "#{root}/lib/polylatch/"
  \trm -rf target
  clean:
  \trm -rf target
  .PHONY: all install clean
MAKEFILE
