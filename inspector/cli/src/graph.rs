//! `polylatch graph`: who waits for whom.

use std::sync::Arc;
use std::time::Duration;

use polylatch::inspect::{Query, Snapshot};
use serde::Serialize;

use super::store::{Failure, JSON_VERSION, Store, json, print_line};
use super::{GraphArgs, exit};
use host::ThisHost;
use model::graph::{Certainty, Cycle, Wait};
use model::text::break_command;
use model::wait_for::{Edge, Graph};
use model::{Connection, ConnectionId, Environment, Fleet, LocalFacts, Polled, Report, Update};

/// Between the two snapshots that a ring must outlast.
const BETWEEN: Duration = Duration::from_millis(250);

pub(super) async fn graph(url: Option<&str>, args: &GraphArgs) -> Result<u8, Failure> {
    let query = Query { prefix: args.prefix.clone(), ..Query::default() };
    let mut stores = vec![Store::open(url, None).await?];
    for also in &args.also {
        stores.push(Store::open(Some(also), None).await?);
    }
    let mut fleet = Fleet::default();
    for (id, store) in ids(&stores).into_iter().zip(&stores) {
        fleet.connect(Connection {
            id,
            shown_url: store.client.url_for_display().to_owned(),
            command: store.command.clone(),
            environment: Environment::Development,
            read_only: true,
        });
    }
    read_all(&mut fleet, &stores, &query, 0).await?;
    // No lock in a deadlock changes hands: only what is the same twice is one.
    if fleet.has_rings() {
        tokio::time::sleep(BETWEEN).await;
        let later = u64::try_from(BETWEEN.as_millis()).unwrap_or(u64::MAX);
        read_all(&mut fleet, &stores, &query, later).await?;
    }
    let graph = fleet.graph();
    if args.json {
        let truncated =
            fleet.stores().iter().any(|store| store.snapshot().is_some_and(|seen| seen.truncated));
        print_line(&json(&told(&graph, &fleet, truncated), true)?)?;
    } else {
        for line in graph.text().lines() {
            print_line(line)?;
        }
    }
    Ok(if graph.rings.is_empty() { 0 } else { exit::DEADLOCK })
}

/// One name for each store: its URL, numbered where two look alike.
fn ids(stores: &[Store]) -> Vec<ConnectionId> {
    let urls: Vec<String> = stores.iter().map(Store::shown_url).collect();
    let id = |(at, url): (usize, &String)| {
        let before = urls[..at].iter().filter(|other| *other == url).count();
        ConnectionId::new(&if before == 0 { url.clone() } else { format!("{url} ({})", before + 1) })
    };
    urls.iter().enumerate().map(id).collect()
}

async fn read_all(fleet: &mut Fleet, stores: &[Store], query: &Query, at_ms: u64) -> Result<(), Failure> {
    let ids: Vec<ConnectionId> = fleet.stores().iter().map(|store| store.connection().id.clone()).collect();
    for (connection, store) in ids.into_iter().zip(stores) {
        let snapshot: Snapshot = store.read(query).await?;
        let local = LocalFacts::of(&snapshot, &ThisHost::new());
        let polled = Polled { snapshot: Arc::new(snapshot), events: vec![], local, every_ms: 0 };
        fleet.ingest(Update { connection, at_ms, report: Report::Polled(polled) });
    }
    Ok(())
}

/// The graph as JSON for scripts.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    truncated: bool,
    deadlocks: Vec<ToldRing<'a>>,
    holds: Vec<ToldEdge<'a>>,
    waits: Vec<ToldEdge<'a>>,
}

#[derive(Serialize)]
struct ToldRing<'a> {
    proved: bool,
    unchanged_ms: u64,
    /// Ends a deadlock at the least cost; only for one that is proved.
    #[serde(rename = "break")]
    break_command: Option<String>,
    waits: Vec<ToldWait<'a>>,
}

#[derive(Serialize)]
struct ToldWait<'a> {
    store: &'a str,
    lock: &'a str,
    waiter: &'a polylatch::ClientId,
    /// The process in the queue, if the waiter only waits for its end.
    through: Option<&'a polylatch::ClientId>,
    label: &'a str,
    waited_ms: u64,
    holder: &'a polylatch::ClientId,
    holder_label: &'a str,
    held_for_ms: Option<u64>,
    fencing_token: Option<u64>,
}

#[derive(Serialize)]
struct ToldEdge<'a> {
    store: &'a str,
    lock: &'a str,
    client: Option<&'a polylatch::ClientId>,
    who: &'a str,
    mode: &'a str,
    label: &'a str,
    for_ms: Option<u64>,
}

fn told<'a>(graph: &'a Graph, fleet: &Fleet, truncated: bool) -> Told<'a> {
    let edge = |edge: &'a Edge| {
        let (party, lock) = (&graph.parties[edge.party], &graph.locks[edge.lock]);
        let client = party.clients.iter().find(|(store, _)| *store == lock.connection);
        ToldEdge {
            store: lock.connection.as_str(),
            lock: &lock.lock,
            client: client.map(|(_, id)| id),
            who: &party.who,
            mode: &edge.mode,
            label: &edge.label,
            for_ms: edge.for_ms,
        }
    };
    let ring = |ring: &'a Cycle| ToldRing {
        proved: ring.certainty() == Certainty::Proved,
        unchanged_ms: ring.age_ms(),
        break_command: ring.cheapest().filter(|_| ring.is_proved()).and_then(|wait| break_of(wait, fleet)),
        waits: ring.waits.iter().map(told_wait).collect(),
    };
    Told {
        version: JSON_VERSION,
        truncated,
        deadlocks: graph.rings.iter().map(ring).collect(),
        holds: graph.holds.iter().map(edge).collect(),
        waits: graph.waits.iter().map(edge).collect(),
    }
}

fn told_wait(wait: &Wait) -> ToldWait<'_> {
    ToldWait {
        store: wait.connection.as_str(),
        lock: &wait.lock,
        waiter: &wait.waiter,
        through: wait.through.as_ref(),
        label: &wait.label,
        waited_ms: wait.waited_ms,
        holder: &wait.holder,
        holder_label: &wait.holder_label,
        held_for_ms: wait.held_for_ms,
        fencing_token: wait.fencing_token,
    }
}

fn break_of(wait: &Wait, fleet: &Fleet) -> Option<String> {
    let command = &fleet.store(&wait.connection)?.connection().command;
    Some(break_command(command, &wait.lock, wait.fencing_token?, "'deadlock: taken last'"))
}
