# frozen_string_literal: true

module Polylatch
  VERSION = "0.1.0"
end
