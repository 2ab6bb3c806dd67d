//! `polylatch graph`: who waits for whom.

use std::sync::Arc;

use polylatch::inspect::Query;

use super::GraphArgs;
use super::store::{Failure, Store, print_line};
use crate::host::ThisHost;
use crate::model::{Connection, ConnectionId, Environment, Fleet, Report, Sample, Sight, Update};

pub(super) async fn graph(url: Option<&str>, args: &GraphArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let query = Query { prefix: args.prefix.clone(), ..Query::default() };
    let snapshot = store.read(&query).await?;
    let id = ConnectionId::new("store");
    let mut fleet = Fleet::default();
    fleet.connect(Connection {
        id: id.clone(),
        shown_url: store.client.url_for_display().to_owned(),
        command: store.command.clone(),
        environment: Environment::Development,
        read_only: true,
    });
    let sight = Sight::of(&snapshot, &ThisHost::new());
    let sample = Sample { snapshot: Arc::new(snapshot), events: vec![], sight, every_ms: 0 };
    fleet.ingest(Update { connection: id, at_ms: 0, report: Report::Seen(sample) });
    for line in fleet.graph().text().lines() {
        print_line(line)?;
    }
    Ok(0)
}
