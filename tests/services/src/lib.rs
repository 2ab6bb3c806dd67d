//! Real servers for tests, and ways to hurt them.
//!
//! - [`redis::RedisServer`] starts a `redis-server` on a free loopback port with a throw-away data
//!   folder: plain, with a password, ACL users, TLS, a unix socket, an append-only file.
//! - [`consul::ConsulAgent`] starts a Consul agent, [`consul::Cluster`] three servers.
//! - [`etcd::EtcdMember`] starts an etcd of one member, [`etcd::EtcdCluster`] one of three.
//! - [`mariadb::MariadbServer`] starts a MariaDB server, as another user if this one is root.
//! - [`pgbouncer::PgBouncer`] starts a pooler before such a server.
//! - [`postgres::PostgresServer`] starts a PostgreSQL server, as another user if this one is root.
//! - [`zookeeper::ZooKeeper`] starts a ZooKeeper server, [`zookeeper::Ensemble`] three members.
//! - [`proxy::Proxy`] sits between a client and such a server, understands RESP, and delays, holds,
//!   resets, slices, loses or repeats what passes.
//! - [`proc`](mod@proc) pauses and kills processes and mounts a disk that fills up;
//!   [`temp`] and [`wait`] hold what every test needs.
//!
//! Everything started here ends with the value that started it, and also when the test process is
//! killed. This crate knows nothing of Polylatch itself: what it reports is a second opinion.
#![cfg(unix)]

mod child;
#[cfg(target_os = "linux")]
pub mod clock;
pub mod consul;
mod database;
pub mod etcd;
pub mod http;
pub mod mariadb;
#[cfg(target_os = "linux")]
pub mod netns;
pub mod pgbouncer;
pub mod port;
pub mod postgres;
pub mod proc;
pub mod proxy;
pub mod redis;
pub mod resp;
pub mod temp;
pub mod tls;
pub mod wait;
pub mod zookeeper;

pub use resp::{Client, Reply};
pub use temp::TempDir;
pub use wait::{wait_for, wait_until};
