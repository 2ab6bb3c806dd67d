//! One judgement of a store, as reliable as that of something which watches it: what is found is looked at until it
//! has stood as long as its rule wants, or has passed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use polylatch::inspect::{Query, Snapshot, changes};

use super::store::{Failure, Store};
use host::ThisHost;
use host::poll::ViewerClock;
use model::Evidence;
use model::{
    Connection, ConnectionId, Environment, Fleet, LocalFacts, Polled, Report, Rule, Severity, Update,
    findings,
};

/// Between two snapshots of a store in which something was found.
const BETWEEN: Duration = Duration::from_millis(250);

/// Reads one store into the fleet, under this name, until what was found in the first snapshot is certain. `names` are
/// read also if a large store would leave them out. `counts` says which rules are to be certain beside warnings.
/// Returns how many requests it took.
pub(super) async fn settle(
    fleet: &mut Fleet,
    id: &ConnectionId,
    store: &Store,
    query: &Query,
    names: &[String],
    counts: &dyn Fn(Rule) -> bool,
) -> Result<u64, Failure> {
    fleet.connect(Connection {
        id: id.clone(),
        shown_url: store.client.url_for_display().to_owned(),
        command: store.command.clone(),
        environment: Environment::Development,
        read_only: true,
    });
    let clock = ViewerClock::start();
    let host = ThisHost::new();
    let (mut requests, mut until, mut before) = (0, None, None::<Arc<Snapshot>>);
    loop {
        let snapshot = Arc::new(read(store, query, names).await?);
        requests += u64::from(snapshot.requests);
        let now_ms = clock.now_ms();
        let local = LocalFacts::of(&snapshot, &host);
        let wanted = unsettled_ms(&snapshot, &local, counts);
        let events = before.as_ref().map_or_else(Vec::new, |before| changes(before, &snapshot));
        let every_ms = u64::try_from(BETWEEN.as_millis()).unwrap_or(u64::MAX);
        let report = Report::Polled(Polled { snapshot: Arc::clone(&snapshot), events, local, every_ms });
        fleet.ingest(Update { connection: id.clone(), at_ms: now_ms, report });
        // A ring of waits counts from the second snapshot on.
        let rings = before.is_none() && fleet.has_rings();
        // From when it was first seen, which a slow store may show late.
        let until = *until.get_or_insert(wanted.map(|ms| now_ms + ms));
        let goes_on = wanted.is_some() && until.is_some_and(|until| now_ms <= until);
        if !goes_on && !rings {
            return Ok(requests);
        }
        before = Some(snapshot);
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn read(store: &Store, query: &Query, names: &[String]) -> Result<Snapshot, Failure> {
    let mut snapshot = store.read(query).await?;
    if snapshot.truncated {
        let seen: HashSet<String> = snapshot.locks.iter().map(|lock| lock.name.clone()).collect();
        for name in names.iter().filter(|name| !seen.contains(*name)) {
            let one = store.read(&Query { name: Some(name.clone()), ..Query::default() }).await?;
            snapshot.requests += one.requests;
            snapshot.locks.extend(one.locks.into_iter().filter(|lock| lock.name == *name));
            let known: HashSet<_> = snapshot.clients.iter().map(|client| client.id.clone()).collect();
            snapshot.clients.extend(one.clients.into_iter().filter(|client| !known.contains(&client.id)));
        }
        // As every snapshot has them.
        snapshot.locks.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.clients.sort_by(|a, b| a.id.cmp(&b.id));
    }
    Ok(snapshot)
}

/// For how long what is the case now must have been seen before it is reported; `None` if there is nothing of that kind.
fn unsettled_ms(snapshot: &Snapshot, local: &LocalFacts, counts: &dyn Fn(Rule) -> bool) -> Option<u64> {
    let evidence = Evidence::new(snapshot, local, "");
    let found = snapshot.locks.iter().flat_map(|lock| findings(lock, &evidence));
    let found = found.filter(|finding| finding.severity >= Severity::Warning || counts(finding.rule));
    let of_locks = found.map(|finding| finding.rule.stands_for_ms());
    let of_nodes = (!snapshot.troubles.is_empty()).then(|| Rule::NodeDown.stands_for_ms());
    of_locks.chain(of_nodes).filter(|ms| *ms > 0).max()
}

/// A store that cannot be read, as a connection of its own.
pub(super) fn unread(fleet: &mut Fleet, id: &ConnectionId, failure: &Failure) {
    let connection = Connection {
        id: id.clone(),
        shown_url: id.as_str().to_owned(),
        command: "polylatch".into(),
        environment: Environment::Development,
        read_only: true,
    };
    fleet.connect(connection);
    let report = Report::Failed { message: failure.message.clone(), retry_in_ms: None };
    fleet.ingest(Update { connection: id.clone(), at_ms: ViewerClock::start().now_ms(), report });
}
