//! What is said to one node.

pub(crate) mod scripts;
