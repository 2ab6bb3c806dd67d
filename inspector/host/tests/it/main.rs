//! What the programs use of this machine, on real stores.

mod poll;
