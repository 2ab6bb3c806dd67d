//! Says what the server, as it is set up, can and cannot promise.

mod checks;

use std::collections::BTreeMap;

use crate::backend::Purpose;
use crate::backend::rows::server::Session as _;
use crate::backend::rows::server::doctor::{Skew, Tables, pooler};
use crate::backend::rows::server::store::Store;
use crate::backend::rows::server::value::Statement;
use crate::error::Result;
use crate::snapshot::Examination;
use crate::token::ClientId;

use super::open::prepare;
use super::protocol::bells::{Name, introduce, rings};
use super::protocol::sessions::BySessionLock;
use super::protocol::statements::explained;
use super::server::Mysql;

/// What was read of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub version: String,
    pub settings: BTreeMap<String, String>,
    pub connections: i64,
    /// Whether waiters listen for a ring; `None` if the URL says wake=poll, else whether session locks work.
    pub bell_works: Option<bool>,
    pub skew: Skew,
    pub tables: Tables,
    /// Statements that the server would carry out without the primary key.
    pub scans: Vec<String>,
    /// How many replicas follow, if the server says so.
    pub replicas: Option<i64>,
    /// Why connections are not the client's own.
    pub pooler: Option<String>,
    pub in_session: bool,
}

/// Settings of the server. One that it does not have is left out by its answer.
const SETTINGS: [&str; 14] = [
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "sync_binlog",
    "log_bin",
    "binlog_format",
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "max_connections",
    "tx_isolation",
    "transaction_isolation",
    "wsrep_on",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
];

pub(crate) async fn examine(store: &Store<Mysql>) -> Result<Examination> {
    let mut facts = Facts::default();
    let names: Vec<_> = SETTINGS.iter().map(|name| format!("'{name}'")).collect();
    let statements = [
        Statement::new("SELECT CAST(VERSION() AS BINARY)", vec![]),
        Statement::new(
            format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", ")),
            vec![],
        ),
        Statement::new("SHOW GLOBAL STATUS LIKE 'Threads_connected'", vec![]),
        Statement::new("SHOW GLOBAL STATUS LIKE 'Slaves_connected'", vec![]),
        // Of this session, which sets it itself.
        Statement::new(
            "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')",
            vec![],
        ),
    ];
    let answers = store.ask(&statements, true).await?;
    facts.version = answers[0].first().map_or_else(String::new, |row| row.text(0));
    facts.settings = answers[1].iter().map(|row| (row.text(0), row.text(1))).collect();
    facts.connections = answers[2].first().and_then(|row| row.text(1).parse().ok()).unwrap_or(0);
    facts.replicas = answers[3].first().and_then(|row| row.text(1).parse().ok());
    let isolation = answers[4].first().map_or_else(String::new, |row| row.text(1));
    facts.settings.insert("session_isolation".into(), isolation);
    facts.skew = Skew::read(store).await?;
    if store.server().opener.config.listens {
        facts.bell_works = Some(bell_works(store).await);
    }
    facts.tables = match prepare(&store.link, Purpose::Examine).await {
        Ok(true) => Tables::Usable,
        Ok(false) => Tables::ToBeMade,
        Err(error) => Tables::Refused(error.to_string()),
    };
    facts.in_session = store.server().opener.config.in_session;
    facts.pooler = pooler(store, &BySessionLock).await?;
    if facts.tables == Tables::Usable {
        facts.scans = scans(store).await?;
    }
    Ok(checks::judge(&facts))
}

/// Whether a session lock can be taken and found. A cluster or a proxy may refuse it.
async fn bell_works(store: &Store<Mysql>) -> bool {
    let Ok(session) = store.server().opener.open().await else { return false };
    let client = ClientId::from_stored(&format!("examined by {}", store.client.as_str()));
    let me = Name { user: store.server().opener.config.user().to_owned(), client };
    let answers = session.ask(&[introduce(&me), rings(&me)], false).await;
    answers.is_ok_and(|answers| answers.iter().all(|rows| rows.first().is_some_and(|row| row.int(0) == 1)))
}

/// Asks the server how it would carry out the statements of the verbs.
async fn scans(store: &Store<Mysql>) -> Result<Vec<String>> {
    let mut scans = Vec::new();
    for statement in explained() {
        let what = statement.sql.clone();
        let explain = Statement::new(format!("EXPLAIN {}", statement.sql), statement.params);
        let answers = store.ask(&[explain], true).await?;
        // Columns in front of the key differ between servers, so it is looked for by its value.
        let uses_key = answers[0].iter().all(|row| {
            let texts: Vec<_> = (0..row.0.len()).map(|at| row.text(at)).collect();
            let is_empty_by_rule = texts
                .iter()
                .any(|text| text.contains("Impossible WHERE") || text.contains("no matching row"));
            is_empty_by_rule || texts.iter().any(|text| text == "PRIMARY")
        });
        if !uses_key {
            scans.push(what);
        }
    }
    Ok(scans)
}
