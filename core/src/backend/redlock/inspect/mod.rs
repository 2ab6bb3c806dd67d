//! Reading all nodes for people.

mod snapshot;
