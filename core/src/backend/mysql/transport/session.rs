//! One connection.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::{Either, select};
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Column, Conn, OptsBuilder, Params, Row, SslOpts, Value};
use tokio::sync::{Mutex, Semaphore};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

use crate::address::{TlsFiles, bracketed};
use crate::backend::mysql::config::MysqlConfig;
use crate::backend::mysql::protocol::statements;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::login::SslMode;
use crate::backend::rows::server::value::{Cell, Cells, Param, Statement};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::tls::{self, Tls};

use super::errors::failure;

/// After how much idle time the operating system begins to probe a connection.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// How many statements the server keeps prepared for a session; there are about as many.
const PREPARED: usize = 64;

/// Opens connections.
pub(crate) struct Opener {
    pub config: MysqlConfig,
    /// The server has `INSERT ... RETURNING`, as was found when the store was opened.
    pub returns: AtomicBool,
    timeout_ms: i64,
}

/// An open connection. One request at a time is on its way; the others wait.
pub(crate) struct Session {
    /// Taken out by a request: one that is given up ends the connection, which may stand in the middle of an answer.
    conn: Mutex<Option<Conn>>,
    /// Closed at the end of the connection.
    ended: Semaphore,
    place: String,
}

impl Opener {
    /// Checks certificates and keys.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(config: MysqlConfig, timeout: Duration) -> Result<Self> {
        if config.login.ssl_mode != SslMode::Disable {
            Tls::new(&config.login.host, &config.login.files)?;
            // The client library takes the provider of the process; without one it would have to guess, and panics if
            // another library has brought a second one along.
            if CryptoProvider::get_default().is_none() {
                let _ = ring::default_provider().install_default();
            }
        }
        let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        Ok(Self { config, returns: AtomicBool::new(false), timeout_ms })
    }

    pub(crate) fn place(&self) -> String {
        format!("{}:{}", bracketed(&self.config.login.host), self.config.login.port)
    }

    /// Connects and logs in. A secret that was rotated is read again once.
    pub(crate) async fn open(&self) -> std::result::Result<Session, Failure> {
        match self.open_once().await {
            Err(refused)
                if refused.code() == "1045"
                    && self
                        .config
                        .login
                        .password
                        .as_ref()
                        .is_some_and(|password| password.read_again(|_| true)) =>
            {
                self.open_once().await
            }
            other => other,
        }
    }

    async fn open_once(&self) -> std::result::Result<Session, Failure> {
        let login = &self.config.login;
        let options = OptsBuilder::default()
            .ip_or_hostname(login.host.as_str())
            .tcp_port(login.port)
            .user(Some(self.config.user()))
            .pass(login.password.as_ref().map(|password| password.latest().0))
            .db_name(Some(login.database.as_str()))
            // A URL names a host and a port; the library would go on to a unix socket that the server names.
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PROBE_AFTER))
            .stmt_cache_size(PREPARED)
            // A row that is found counts, also if it stays as it was.
            .client_found_rows(true)
            .ssl_opts(match login.ssl_mode {
                SslMode::Disable => None,
                SslMode::Prefer | SslMode::Require => Some(ssl(&login.files)?),
            })
            .init(statements::session(self.timeout_ms).to_vec());
        let conn = Conn::new(options).await.map_err(|error| self.not_opened(error))?;
        Ok(Session { conn: Mutex::new(Some(conn)), ended: Semaphore::new(0), place: self.place() })
    }

    fn not_opened(&self, error: mysql_async::Error) -> Failure {
        let place = self.place();
        let has_tls = self.config.login.ssl_mode != SslMode::Disable;
        let io = match error {
            mysql_async::Error::Io(mysql_async::IoError::Io(io)) => io,
            mysql_async::Error::Io(mysql_async::IoError::Tls(tls)) => std::io::Error::other(tls.to_string()),
            other => return failure(other, &place, false),
        };
        if has_tls && io.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>()) {
            return Failure::from(tls::refused(io, "MySQL", &place, "mysql", "mysql"));
        }
        let error = Error::new(
            ErrorKind::BackendUnavailable,
            format!("cannot connect to MySQL at {place}; check that it runs and that this is its address"),
        );
        Failure::Lost { error: error.with_source(io), sent: false }
    }
}

/// Certificates and keys, read again for each connection so that they can be renewed while the program runs.
fn ssl(files: &TlsFiles) -> Result<SslOpts> {
    let roots = match &files.ca {
        Some(ca) => vec![ca.clone().into()],
        None => {
            let system = rustls_native_certs::load_native_certs().certs;
            system.into_iter().map(|root| root.to_vec().into()).collect()
        }
    };
    let identity = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientIdentity::new(certificate.clone().into(), key.clone().into()))
        }
        _ => None,
    };
    Ok(SslOpts::default()
        .with_root_certs(roots)
        .with_disable_built_in_roots(true)
        .with_client_identity(identity))
}

impl crate::backend::rows::server::Session for Session {
    fn is_open(&self) -> bool {
        !self.ended.is_closed()
    }

    fn end(&self) {
        self.ended.close();
    }

    async fn ended(&self) {
        // It has no permits, so this ends when it is closed.
        let _ = self.ended.acquire().await;
    }

    async fn ask(
        &self,
        statements: &[Statement],
        changes: bool,
    ) -> std::result::Result<Vec<Vec<Cells>>, Failure> {
        let mut slot = self.conn.lock().await;
        if !self.is_open() {
            *slot = None;
        }
        let Some(mut conn) = slot.take() else { return Err(self.gone(false)) };
        if let Some(text) = together(statements) {
            return match self.until_the_end(carry_out_all(&mut conn, &text, statements)).await {
                None => Err(self.gone(changes)),
                Some(Ok(answers)) => {
                    *slot = Some(conn);
                    Ok(answers)
                }
                Some(Err(error)) => Err(self.failed(&mut slot, conn, error, changes, statements).await),
            };
        }
        let mut answers = Vec::with_capacity(statements.len());
        // Before it is committed, a transaction has done nothing.
        let commit = statements.iter().position(|statement| statement.sql == "COMMIT");
        for (at, statement) in statements.iter().enumerate() {
            let sent = changes && commit.is_none_or(|commit| at >= commit);
            match self.until_the_end(carry_out(&mut conn, statement)).await {
                None => return Err(self.gone(sent)),
                Some(Ok(rows)) => answers.push(rows),
                Some(Err(error)) if is_refused_ring(statement, &error) => answers.push(Vec::new()),
                Some(Err(error)) => return Err(self.failed(&mut slot, conn, error, sent, statements).await),
            }
        }
        *slot = Some(conn);
        Ok(answers)
    }
}

impl Session {
    /// Waits for an answer; `None` if the connection was ended meanwhile.
    async fn until_the_end<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        use crate::backend::rows::server::Session as _;
        match select(Box::pin(answer), Box::pin(self.ended())).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Puts the connection back, unless it was lost.
    async fn failed(
        &self,
        slot: &mut Option<Conn>,
        mut conn: Conn,
        error: mysql_async::Error,
        sent: bool,
        statements: &[Statement],
    ) -> Failure {
        let failed = failure(error, &self.place, sent);
        if matches!(failed, Failure::Lost { .. }) {
            self.ended.close();
            return failed;
        }
        if statements.len() == 1 {
            // A transaction that it belongs to is rolled back by the one that has begun it.
            *slot = Some(conn);
            return failed;
        }
        // What the server has refused may be one of several statements of a transaction.
        match self.until_the_end(conn.query_drop("ROLLBACK")).await {
            Some(Ok(())) => *slot = Some(conn),
            _ => self.ended.close(),
        }
        failed
    }

    fn gone(&self, sent: bool) -> Failure {
        let effect = if sent { Effect::Maybe } else { Effect::None };
        let error = Error::new(
            ErrorKind::BackendUnavailable,
            format!("the connection to MySQL at {} ended", self.place),
        );
        Failure::Lost { error: error.with_effect(effect), sent }
    }
}

/// Several statements as one request, if they are short: the answer to one is not waited for before the next is sent.
/// After one that fails, the server carries none of the later ones out.
fn together(statements: &[Statement]) -> Option<String> {
    if statements.len() < 2 {
        return None;
    }
    let mut text = String::with_capacity(1024);
    for statement in statements {
        if !text.is_empty() {
            text.push_str("; ");
        }
        write_out(statement, &mut text)?;
        if text.len() > MOST_TOGETHER {
            return None;
        }
    }
    Some(text)
}

/// A statement with its values in its text.
fn write_out(statement: &Statement, text: &mut String) -> Option<()> {
    let mut params = statement.params.iter();
    for (at, part) in statement.sql.split('?').enumerate() {
        if at > 0 {
            literal(text, params.next()?);
        }
        text.push_str(part);
    }
    Some(())
}

/// A ring that finds no connection, or one that it may not wake: waiters poll too, and what comes before is carried out.
fn is_refused_ring(statement: &Statement, error: &mysql_async::Error) -> bool {
    first_word(statement) == "KILL" && matches!(error, mysql_async::Error::Server(_))
}

/// The smallest limit of a request that a server has is 1 MiB (`max_allowed_packet`).
const MOST_TOGETHER: usize = 64 * 1024;

/// A value as it stands in a statement: a text by its bytes, so that nothing in it is read as anything else.
fn literal(text: &mut String, param: &Param) {
    use std::fmt::Write as _;
    let mut hex = |before: &str, bytes: &[u8]| {
        text.push_str(before);
        text.push_str("X'");
        for byte in bytes {
            // Writing to a text does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\'');
    };
    match param {
        Param::Text(value) => hex("_utf8mb4 ", value.as_bytes()),
        Param::OptionalText(Some(value)) => hex("_utf8mb4 ", value.as_bytes()),
        Param::Bytes(bytes) => hex("", bytes),
        Param::Int(number) | Param::OptionalInt(Some(number)) => {
            let _ = write!(text, "{number}");
        }
        // These servers have no lists; the statements name each value.
        Param::OptionalText(None) | Param::OptionalInt(None) | Param::Texts(_) | Param::Ints(_) => {
            text.push_str("NULL");
        }
    }
}

/// Sends statements as one request, and reads the rows of each as [`carry_out`] does.
async fn carry_out_all(
    conn: &mut Conn,
    text: &str,
    statements: &[Statement],
) -> mysql_async::Result<Vec<Vec<Cells>>> {
    let mut result = conn.query_iter(text).await?;
    let mut answers = Vec::with_capacity(statements.len());
    let mut failed = None;
    for statement in statements {
        // What is told of a statement without rows is replaced by the next one's as soon as that is read.
        let done = result.columns_ref().is_empty().then(|| (result.affected_rows(), result.last_insert_id()));
        let rows: Vec<Row> = result.collect().await.unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        let number = done.map_or(0, |(changed, number)| answer_of(statement, changed, number));
        answers.push(if number > 0 {
            vec![one_number(number)]
        } else {
            rows.into_iter().map(cells).collect()
        });
        if failed.is_some() {
            break;
        }
    }
    // The driver tells a failure once more if nothing reads on.
    let ended = result.drop_result().await;
    let Some(error) = failed else { return ended.map(|()| answers) };
    let refused = statements.get(answers.len() - 1).filter(|refused| is_refused_ring(refused, &error));
    if refused.is_some() && answers.len() == statements.len() { Ok(answers) } else { Err(error) }
}

/// The number with which a statement answers that has no rows, or 0: see [`carry_out`].
fn answer_of(statement: &Statement, changed: u64, number: Option<u64>) -> u64 {
    match first_word(statement) {
        "UPDATE" | "INSERT" if changed > 0 => number.unwrap_or(0),
        "DELETE" => changed,
        _ => 0,
    }
}

fn first_word(statement: &Statement) -> &str {
    statement.sql.split(' ').next().unwrap_or_default()
}

fn one_number(number: u64) -> Cells {
    Cells(vec![Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))])
}

/// Sends one statement and reads its rows. One without any that wrote a row and gave a number above 0 to `LAST_INSERT_ID`
/// answers with that number as its only row, and one that deleted rows with how many.
async fn carry_out(conn: &mut Conn, statement: &Statement) -> mysql_async::Result<Vec<Cells>> {
    if ["START", "SET", "COMMIT", "ROLLBACK", "CREATE"].contains(&first_word(statement)) {
        conn.query_drop(statement.sql.as_str()).await?;
        return Ok(Vec::new());
    }
    if first_word(statement) == "KILL" {
        // Servers do not prepare it.
        let mut text = String::new();
        let _ = write_out(statement, &mut text);
        conn.query_drop(text).await?;
        return Ok(Vec::new());
    }
    let prepared = conn.prep(statement.sql.as_str()).await?;
    let values: Vec<Value> = statement.params.iter().map(value).collect();
    let values = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let mut result = conn.exec_iter(&prepared, values).await?;
    let has_rows = !result.columns_ref().is_empty();
    let rows: Vec<Row> = result.collect().await?;
    drop(result);
    let number = answer_of(statement, conn.affected_rows(), conn.last_insert_id());
    if number > 0 && !has_rows {
        return Ok(vec![one_number(number)]);
    }
    Ok(rows.into_iter().map(cells).collect())
}

fn value(param: &Param) -> Value {
    match param {
        Param::Text(text) => Value::from(text.as_str()),
        Param::Bytes(bytes) => Value::from(bytes.as_slice()),
        Param::Int(number) => Value::Int(*number),
        Param::OptionalInt(number) => number.map_or(Value::NULL, Value::Int),
        Param::OptionalText(text) => text.as_deref().map_or(Value::NULL, Value::from),
        // These servers have no lists; the statements name each value.
        Param::Texts(_) | Param::Ints(_) => Value::NULL,
    }
}

fn cells(row: Row) -> Cells {
    let columns = row.columns();
    let cell = |(value, column): (Value, &Column)| match value {
        Value::Int(number) => Cell::Int(number),
        Value::UInt(number) => Cell::Int(i64::try_from(number).unwrap_or(i64::MAX)),
        // Of several statements in one request the numbers come as texts, too.
        Value::Bytes(bytes) if is_whole(column) => {
            std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).map_or(Cell::Null, Cell::Int)
        }
        // These servers do not tell our texts from bytes.
        Value::Bytes(bytes) => {
            String::from_utf8(bytes).map_or_else(|other| Cell::Bytes(other.into_bytes()), Cell::Text)
        }
        _ => Cell::Null,
    };
    Cells(row.unwrap().into_iter().zip(&*columns).map(cell).collect())
}

fn is_whole(column: &Column) -> bool {
    use ColumnType::{
        MYSQL_TYPE_INT24, MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_SHORT, MYSQL_TYPE_TINY,
    };
    [MYSQL_TYPE_TINY, MYSQL_TYPE_SHORT, MYSQL_TYPE_INT24, MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG]
        .contains(&column.column_type())
}
