//! Bounded model checks: of the Redis hand-off protocol, and of fencing over independent nodes ([`redlock`]).
//!
//! The shipped protocol lets a waiter enter its critical section on one pushed message, without
//! asking the server again. Whether that is safe depends on orders of events that tests on a real
//! server meet once in millions of runs. This crate explores those orders: it describes the server,
//! the clients and the network as a small state machine and visits every reachable state up to a
//! bound, breadth first, then goes deeper along seeded random walks.
//!
//! # What is modelled
//!
//! - **Server**: the lock with owner, fencing token and expiry; the set of waiters; the fence
//!   counter. `poll`, `renew`, `release` and `cancel` are atomic, as scripts are. A grant publishes
//!   a push to the waiter it names.
//! - **Clients**: each acquires, waits, polls whenever it likes, enters on an answer or on a push,
//!   renews or does not, lets its window lapse, leaves, cancels, and starts over without limit.
//! - **Network**: every request, answer and push may be late, lost, or overtaken by any other. A
//!   request of an acquisition that ended long ago may still be executed. `release` and `cancel`
//!   may be executed repeatedly, since clients retry them.
//! - **Time**: discrete and nondeterministic. Any number of events may happen within one tick. With
//!   [`Bounds::drift`] a client's clock may lose one tick in every [`Bounds::lease`] ticks.
//!
//! Two simplifications make the model larger than the protocol, so that what it proves covers every
//! policy in the place of the real one:
//!
//! - The queue has no order and heartbeats have no deadline. A grant may go to any waiter, to the
//!   poller itself or (on release) to nobody, as if everybody else's heartbeat had just lapsed.
//! - Renewal and polling follow no schedule. A client that never renews is as possible as one that
//!   renews in every tick, so no result here rests on the renewal that follows an entry by push. Renewals
//!   have two lengths, the provisional lease and the whole one, in any order; so an extension by the holder,
//!   to a longer or a shorter lease, is one of them.
//!
//! Locks that several can hold have a model of their own: [`shared`]; so have a promotion that forgets,
//! [`promotion`], and the nodes that vote after a change, [`admission`].
//!
//! # What is not modelled
//!
//! Order in the queue and progress (only safety is checked), loss of the server's data, failover,
//! slot migration, steps of the server's clock, an operator breaking a lease, scripts that stop
//! half-way, several locks, and negative answers ("not yours", "lost"), which only make a client
//! stop earlier than it would by its own clock.
//!
//! # Bounds
//!
//! Names and numbers are not bounded: a state is stored with its owner tokens and fences renamed
//! to the smallest ones that keep every equality and order that the protocol can observe (see
//! [`State::canonical`]). What is bounded is the number of messages in flight, the number of
//! waiters, and the length of the two leases in ticks. A message that can no longer change anything
//! is dropped at once, so it takes no room ([`State::prune`]). The smallest world is visited
//! completely: any number of acquisitions, any length of run.
//!
//! # The shipped types
//!
//! The model's waiters and holders are a few numbers, so that a state fits three words. In each step of the full
//! protocol the types that the core ships, its acquisition and its lease, are asked what they would do with the same
//! anchor, answer, push or passing tick; a difference is a violation (`shipped.rs` says what counts as one).
//! [`admission`] and [`redlock`] decide by the shipped functions themselves. [`shared`] and [`promotion`] are about the
//! store's side, which is written in the language of each store: there the differential runs of the core compare the
//! stores with the memory store, step by step.
//!
//! # Invariants
//!
//! See [`Violation`]. The main one: whenever a client believes that it holds the lock, the
//! server's lock names exactly its owner token and fence, and has not expired. Two believers are
//! then impossible.
//!
//! # Reading a trace
//!
//! A violation comes with the way that the search took to it; from [`breadth_first`] that is a
//! shortest one. Every line is one event and, after the bar, the state it leaves behind:
//!
//! ```text
//!  5. server executes poll(B1) sent 1 ago, answers Wait | lock A1#1 for 1; queue B1; A holds #1 for 1; B waits
//! ```
//!
//! Clients are `A`, `B`, `C`; `B2` is the owner token of the second acquisition of `B`; `#3` is a
//! fence; every duration is in ticks.

pub mod admission;
mod clock;
mod error;
mod explore;
pub mod kept;
mod message;
mod policy;
pub mod promotion;
pub mod redlock;
mod rules;
pub mod shared;
mod shipped;
mod state;
mod step;
mod store;

pub use explore::{Report, Trace, Walk, breadth_first, random_walks};
pub use message::{Kind, Message, Owner};
pub use rules::{Bounds, Model, Rule, Rules, Watch};
pub use state::{Client, Lock, Phase, State};
pub use step::{Entry, Event, Successor, Violation};
pub use store::Packed;
