//! Says what the server, as it is set up, can and cannot promise.

mod checks;

use std::time::Duration;

use tokio::sync::mpsc;

use crate::backend::Purpose;
use crate::backend::postgres::open::{can_create, prepare};
use crate::backend::postgres::protocol::messages::{listen, notify};
use crate::backend::postgres::protocol::statements::begin;
use crate::backend::postgres::server::Postgres;
use crate::backend::rows::Push;
use crate::backend::rows::server::doctor::{Skew, Tables, pooler};
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::store::Store;
use crate::backend::rows::server::value::Statement;
use crate::backend::rows::server::{Session as _, rollback};
use crate::error::Result;
use crate::snapshot::Examination;
use crate::token::OwnerToken;

/// What was read of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub version: String,
    pub settings: std::collections::BTreeMap<String, String>,
    pub in_recovery: bool,
    pub connections: i64,
    pub skew: Skew,
    /// What is set for the commits of this client.
    pub commits: Option<&'static str>,
    /// Whether a notification that was sent was heard; `None` if this URL listens for none.
    pub is_heard: Option<bool>,
    pub tables: Tables,
    /// How many standbys follow.
    pub standbys: i64,
    /// Why connections are not the client's own.
    pub pooler: Option<String>,
    pub in_session: bool,
    /// Statements that the server would carry out without an index.
    pub scans: Vec<String>,
}

/// How long a notification is waited for; it takes about a millisecond.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

const SETTINGS: [&str; 8] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "max_connections",
    "superuser_reserved_connections",
    "synchronous_standby_names",
];

pub(crate) async fn examine(store: &Store<Postgres>) -> Result<Examination> {
    let mut facts = Facts::default();
    let names: Vec<String> = SETTINGS.iter().map(|name| (*name).to_owned()).collect();
    let statements = [
        Statement::new(
            "SELECT current_setting('server_version'), pg_is_in_recovery()::int::bigint, \
             (SELECT count(*) FROM pg_stat_activity), (SELECT count(*) FROM pg_stat_replication)",
            vec![],
        ),
        Statement::new("SELECT name, setting FROM pg_settings WHERE name = ANY ($1)", vec![names.into()]),
    ];
    let answers = store.ask(&statements, true).await?;
    if let Some(row) = answers[0].first() {
        (facts.version, facts.in_recovery, facts.connections) = (row.text(0), row.int(1) != 0, row.int(2));
        facts.standbys = row.int(3);
    }
    facts.settings = answers[1].iter().map(|row| (row.text(0), row.text(1))).collect();
    facts.skew = Skew::read(store).await?;
    facts.commits = store.server().opener.config.durability.setting();
    facts.is_heard = if store.server().opener.config.listens && !facts.in_recovery {
        Some(is_heard(store).await?)
    } else {
        None
    };
    facts.tables = match prepare(&store.link, &store.server().schema, Purpose::Examine).await {
        Ok(true) => Tables::Usable,
        Ok(false) if can_create(&store.link, &store.server().schema).await? => Tables::ToBeMade,
        Ok(false) => Tables::Refused("there are none, and this user may not create them".into()),
        Err(error) => Tables::Refused(error.to_string()),
    };
    facts.in_session = store.server().opener.config.in_session;
    facts.pooler = pooler(store, &store.server().schema).await?;
    if facts.tables == Tables::Usable {
        facts.scans = scans(store).await?;
    }
    Ok(checks::judge(&facts))
}

/// Asks the server how it would carry out the statements of the verbs. Of a few rows it would read all, so that is ruled out
/// wherever there is another way.
async fn scans(store: &Store<Postgres>) -> Result<Vec<String>> {
    let mut scans = Vec::new();
    let rule = Statement::new("SELECT set_config('enable_seqscan', 'off', true)", vec![]);
    for statement in store.server().schema.explained() {
        let explain = Statement::new(format!("EXPLAIN {}", statement.sql), statement.params);
        let answers = store.ask(&[begin(), rule.clone(), explain, rollback()], true).await?;
        if answers[2].iter().any(|row| row.text(0).contains("Seq Scan")) {
            scans.push(statement.sql);
        }
    }
    Ok(scans)
}

/// Sends a notification on one connection and listens for it on another. A pooler in transaction mode gives the connection
/// that listens to other clients.
async fn is_heard(store: &Store<Postgres>) -> Result<bool> {
    let client = format!("examined by {}", store.client.as_str());
    let (heard, mut messages) = mpsc::unbounded_channel();
    let session = store.server().opener.open(Some(heard)).await.map_err(Failure::into_error)?;
    session.ask(&[listen(&client)], false).await.map_err(Failure::into_error)?;
    let push = Push::Granted { owner: OwnerToken::random()?, fence: 1 };
    store.ask(&[notify(&client, push)], true).await?;
    Ok(tokio::time::timeout(HEARD_WITHIN, messages.recv()).await.is_ok_and(|message| message.is_some()))
}
