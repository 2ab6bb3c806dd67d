//! A bounded model check of fencing over independent nodes (RedLock).
//!
//! # What is modelled
//!
//! - **Nodes**: each a lock with an owner, a counter, and whether it votes. A lock may expire at any
//!   moment, so no result rests on time or on exclusion: the tokens alone have to be in order.
//! - **Acquisitions**: each sends its proposal to all nodes at once. A free node that votes becomes its
//!   own and answers `max(counter + 1, proposal)`. Whenever a majority has said yes it may decide: the
//!   largest answer is its token, and unless a majority has answered that, it writes it back.
//! - **Network**: every request and answer may be late for ever or overtaken by any other. An acquisition
//!   may be given up at any moment.
//! - **Restart**: one node may lose everything, with the requests on their way to it, but not with the
//!   answers that have left it. Behind the gate it does not vote until every acquisition from before has
//!   ended and it was given the largest counter of so many voting nodes that every majority has one.
//!
//! # What is checked
//!
//! No two acquisitions get the same token, and one that began after another had its token gets a larger
//! one. With [`Rules`] that leave out a part of the protocol, the search finds how that fails.
//!
//! # Bounds
//!
//! The number of nodes and of acquisitions, the counters that nodes begin with, the proposals, and one
//! restart. Nodes are interchangeable, so states that differ by their order are one state.

mod explore;
mod state;
mod step;

pub use explore::{Found, Search, search, walk};
pub use state::{Model, Rules};

#[cfg(test)]
mod tests {
    use super::state::State;
    use super::*;

    #[test]
    fn a_state_survives_packing_and_the_order_of_nodes_does_not_matter() {
        let model = Model::new(5, 2);
        let mut state = State::root(&model, &[3, 1, 0, 0, 1]);
        state.start(&model, 0, 2);
        let packed = state.pack(&model);
        assert_eq!(State::unpack(&model, packed).pack(&model), packed);
        let mut turned = State::root(&model, &[1, 0, 1, 3, 0]);
        turned.start(&model, 0, 2);
        turned.sort_nodes(&model);
        state.sort_nodes(&model);
        assert_eq!(turned.pack(&model), state.pack(&model));
    }
}
