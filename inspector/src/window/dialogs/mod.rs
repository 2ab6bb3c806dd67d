//! What stands over the window until it is answered.

pub mod help;
pub mod palette;
