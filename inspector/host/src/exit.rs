//! Exit codes that the programs share; sysexits(3).

/// The command line is wrong. Not the usual 2, which many commands use themselves.
pub const USAGE: u8 = 64;

/// The store cannot be reached or refuses.
pub const UNAVAILABLE: u8 = 69;

/// A bug in this program.
pub const INTERNAL: u8 = 70;

/// The output cannot be written, or another call of the operating system failed.
pub const SYSTEM: u8 = 74;
