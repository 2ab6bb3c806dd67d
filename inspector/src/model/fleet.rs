//! All connections together.

use std::collections::VecDeque;

use polylatch::ClientId;
use polylatch::inspect::LockView;

use super::Process;
use super::connection::{Connection, ConnectionId};
use super::findings::Finding;
use super::graph::Graph;
use super::history::{Limits, LockHistory, Logged};
use super::report::Update;
use super::rows::{LockState, Row, RowKey, Summary};
use super::store::Store;

/// Place of a row: good until the next change of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowRef {
    pub(super) store: u32,
    /// Counts on over the rows of locks that are gone.
    pub(super) row: u32,
}

/// A lock that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// Which; the lock's name is empty if it is about the connection itself.
    pub key: RowKey,
    /// Since when the finding stands, on the viewer's clock.
    pub since_ms: u64,
    /// What is the case.
    pub finding: Finding,
}

/// A client process, with what it holds and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// The connection through which it is seen.
    pub connection: ConnectionId,
    /// Its id.
    pub id: ClientId,
    /// Host, harmless.
    pub host: String,
    /// Process number, as text; `?` if it is not known.
    pub pid: String,
    /// Program, harmless; empty if it is not known.
    pub program: String,
    /// Language of the binding, harmless.
    pub language: String,
    /// Version of the binding, harmless.
    pub version: String,
    /// How long ago it last said so, as of the reading; `None` if it never did.
    pub seen_ago_ms: Option<u64>,
    /// What the viewer's host knows of the process.
    pub process: Process,
    /// Locks that it holds, with the time for which it has held them.
    pub holds: Vec<(RowKey, Option<u64>)>,
    /// Locks that it waits for, with the time for which it has waited.
    pub waits: Vec<(RowKey, u64)>,
}

/// All connections.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    stores: Vec<Store>,
    limits: Limits,
    version: u64,
}

impl Fleet {
    /// Makes a fleet without connections.
    pub fn new(limits: Limits) -> Self {
        Self { stores: Vec::new(), limits, version: 0 }
    }

    /// Adds a connection, or changes what is known of it.
    pub fn connect(&mut self, connection: Connection) {
        self.version += 1;
        match self.stores.iter_mut().find(|store| store.connection.id == connection.id) {
            Some(store) => store.connection = connection,
            None => self.stores.push(Store::new(connection)),
        }
    }

    /// Forgets a connection.
    pub fn disconnect(&mut self, id: &ConnectionId) {
        self.version += 1;
        self.stores.retain(|store| store.connection.id != *id);
    }

    /// Takes news. Those of a connection that is not known are dropped.
    pub fn ingest(&mut self, _update: Update) {
        self.version += 1;
        let _ = self.limits;
    }

    /// Lets time pass: rows that went are forgotten, readings become late. Call it before drawing.
    pub fn tick(&mut self, _now_ms: u64) {}

    /// Changes whenever something else than the passing of time has changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the connections, in the order in which they were added.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Returns a connection.
    pub fn store(&self, id: &ConnectionId) -> Option<&Store> {
        self.stores.iter().find(|store| store.connection.id == *id)
    }

    /// Returns the places of all rows, by connection and name, those of locks that just went last.
    pub fn row_refs(&self) -> impl Iterator<Item = RowRef> + '_ {
        self.stores.iter().enumerate().flat_map(|(at, store)| {
            (0..store.rows.len() + store.gone.len())
                .map(move |row| RowRef { store: at as u32, row: row as u32 })
        })
    }

    /// Returns a row. Panics if the place is of an older version of the fleet and does not exist now.
    pub fn at(&self, place: RowRef) -> &Row {
        let store = &self.stores[place.store as usize];
        let row = place.row as usize;
        store.rows.get(row).unwrap_or_else(|| &store.gone[row - store.rows.len()])
    }

    /// Finds a lock's row.
    pub fn find(&self, key: &RowKey) -> Option<RowRef> {
        self.row_refs().find(|place| self.at(*place).key == *key)
    }

    /// Returns a lock as the store had it at the latest reading; `None` if it is gone.
    pub fn lock(&self, key: &RowKey) -> Option<&LockView> {
        let store = self.store(&key.connection)?;
        let snapshot = store.snapshot()?;
        snapshot.locks.iter().find(|lock| *lock.name == *key.lock)
    }

    /// Returns what is remembered of a lock.
    pub fn history(&self, key: &RowKey) -> Option<&LockHistory> {
        self.store(&key.connection)?.history(&key.lock)
    }

    /// Returns what a row is at `now_ms`: `Unknown` if its connection is not fresh.
    pub fn state(&self, row: &Row, now_ms: u64) -> LockState {
        match self.store(&row.key.connection) {
            Some(store) if store.is_fresh(now_ms) => row.state,
            _ => LockState::Unknown,
        }
    }

    /// Explains a lock: findings that have stood long enough, the most severe first. Never empty for a
    /// lock that is there.
    pub fn explain(&self, _key: &RowKey) -> Vec<Finding> {
        Vec::new()
    }

    /// Returns everything that needs attention, the most severe first.
    pub fn attention(&self) -> Vec<Attention> {
        Vec::new()
    }

    /// Returns the events of one lock that are remembered, oldest first.
    pub fn events_of(&self, key: &RowKey) -> impl Iterator<Item = &Logged> {
        static NONE: VecDeque<Logged> = VecDeque::new();
        let events = self.store(&key.connection).map_or(&NONE, Store::events);
        events.iter().filter(|logged| *logged.event.lock == *key.lock)
    }

    /// Returns the client processes, by host, process and connection.
    pub fn clients(&self) -> Vec<ClientRow> {
        Vec::new()
    }

    /// Returns who waits for whom, across all connections.
    pub fn graph(&self) -> Graph {
        Graph::default()
    }

    /// Counts the rows as they are shown at `now_ms`.
    pub fn summary(&self, now_ms: u64) -> Summary {
        let mut summary = Summary::default();
        for store in &self.stores {
            let fresh = store.is_fresh(now_ms);
            for row in &store.rows {
                summary.count(row, if fresh { row.state } else { LockState::Unknown });
            }
        }
        summary
    }
}
