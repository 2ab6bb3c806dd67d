//! Distributed locks whose holder always knows, conservatively, whether it still holds them.
//!
//! ```
//! # async fn story() -> polylatch::Result<()> {
//! use std::time::Duration;
//!
//! let client = polylatch::Polylatch::connect("memory:").await?;
//! let guard = client.lock("orders/42").wait(Duration::from_secs(5)).acquire().await?;
//! // Hand the token to whatever is protected: it refuses writes of holders from before.
//! println!("held until {:?}, token {}", guard.valid_until(), guard.fencing_token());
//! guard.release().await?;
//! # Ok(())
//! # }
//! # pollster::block_on(story()).unwrap();
//! ```
//!
//! # What is promised
//!
//! - **A truthful local deadline.** [`Guard::valid_until`] counts from before the request left, on a
//!   clock that also runs while the machine sleeps. [`Guard::check`] and [`Guard::lost`] go by this
//!   clock, with or without any answer from the store.
//! - **A fencing token on every grant**, strictly larger than any before ([`FencingToken`]), and a
//!   gate that checks it at the resource ([`TokenGate`]).
//! - **First come, first served**, and the next waiter is woken by a message, not by polling.
//! - **Everything is visible** in the store: holders, waiters, renewals ([`inspect`]).
//!   [`Polylatch::stats`] has the numbers of one client.
//! - **Renewal on a native thread** that the host program cannot starve, with a stop for work that
//!   hangs ([`Lock::max_hold`], [`Lock::beat_every`]).
//!
//! # What is not promised
//!
//! A lease can end while its holder is paused. The holder learns of it at its first instruction
//! after the pause, but a request that had already left cannot be called back. Where that matters,
//! the resource must check fencing tokens.
//!
//! # How to read the code
//!
//! `backend/memory/store.rs` (what every store does), `policy/lease.rs` and `policy/waiting.rs` (the
//! decisions, without I/O), `driver/` (which carries them out), `guard.rs`.

#![deny(missing_docs)]
#![cfg_attr(
    target_family = "wasm",
    allow(
        dead_code,
        reason = "some of what a store knows is for the core's own connections, which are not there"
    )
)]

// Under the name of what it stands for, so that the core is written once.
#[cfg(target_family = "wasm")]
extern crate polylatch_web_runtime as tokio;
#[cfg(target_family = "wasm")]
extern crate polylatch_web_runtime as tracing;

mod address;
mod backend;
#[cfg(not(target_family = "wasm"))]
pub mod blocking;
mod caller_driven;
mod capability;
mod client;
mod client_info;
mod clock;
#[cfg(any(
    feature = "redis",
    feature = "http",
    feature = "postgres",
    feature = "mysql",
    feature = "zookeeper"
))]
mod credential;
mod driver;
mod error;
#[cfg(not(target_family = "wasm"))]
pub mod fork;
mod guard;
pub mod host;
#[cfg(not(target_family = "wasm"))]
pub mod idempotency;
pub mod inspect;
mod limits;
mod lock;
mod lock_all;
mod mode;
mod name;
pub mod observe;
mod options;
mod params;
mod policy;
mod prometheus;
mod registry;
pub mod resource;
mod service;
mod snapshot;
mod stats;
#[cfg(all(
    any(feature = "redis", feature = "http", feature = "postgres", feature = "mysql", feature = "zookeeper"),
    not(target_family = "wasm")
))]
mod tls;
mod token;
#[cfg(all(feature = "tower", not(target_family = "wasm")))]
pub mod tower;
mod url_check;
mod wakeups;

#[cfg(feature = "mysql")]
pub use backend::mysql::{MysqlRole, mysql_grants, mysql_schema};
#[cfg(feature = "postgres")]
pub use backend::postgres::{PostgresRole, postgres_grants, postgres_schema};
pub use capability::Capability;
pub use client::{ClientBuilder, Polylatch};
pub use clock::{BootInstant, Clock, ManualClock, Reached, SystemClock};
pub use error::{Effect, Error, ErrorContext, ErrorKind, LostReason, Result, Retry};
pub use guard::{Converted, Guard};
pub use limits::{DEFAULT_LEASE, MAX_LEASE, MIN_LEASE};
pub use lock::{Lock, RwLock, Semaphore};
pub use lock_all::{GuardSet, LockAll, MAX_LOCKS};
pub use mode::{Kind, MAX_PERMITS, Mode};
pub use name::{LockName, MAX_LABEL_BYTES, MAX_NAME_BYTES};
pub use params::parse_duration;
pub use policy::fencing::{FenceQuality, FencingToken, TokenGate};
pub use stats::{Histogram, Stats};
pub use token::ClientId;

/// What each store promises, and its options. There is no code here.
#[cfg(doc)]
pub mod stores {
    #[doc = include_str!("backend/consul/docs.md")]
    pub mod consul {}
    #[cfg(feature = "etcd")]
    #[doc = include_str!("backend/etcd/docs.md")]
    pub mod etcd {}
    #[doc = include_str!("backend/memory/docs.md")]
    pub mod memory {}
    #[cfg(feature = "mysql")]
    #[doc = include_str!("backend/mysql/docs.md")]
    pub mod mysql {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("backend/postgres/docs.md")]
    pub mod postgres {}
    #[doc = include_str!("backend/redis/docs.md")]
    pub mod redis {}
    #[doc = include_str!("backend/redlock/docs.md")]
    pub mod redlock {}
    #[doc = include_str!("backend/sqlite/docs.md")]
    pub mod sqlite {}
    #[cfg(feature = "zookeeper")]
    #[doc = include_str!("backend/zookeeper/docs.md")]
    pub mod zookeeper {}
}

/// Compiles and runs the code of the guide.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident: $page:literal,)*) => { $(#[doc = include_str!($page)] struct $name;)* };
    }
    pages! {
        Concepts: "../docs/concepts.md",
        FencedSql: "../docs/recipes/fenced-sql.md",
        Idempotency: "../docs/idempotency.md",
        Leader: "../docs/recipes/leader.md",
        LongJob: "../docs/recipes/long-job.md",
        Rust: "../docs/languages/rust.md",
        TwoRequests: "../docs/recipes/two-requests.md",
    }
}

/// Compiles and runs the README's code.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
