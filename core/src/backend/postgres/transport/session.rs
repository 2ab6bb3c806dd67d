//! One connection.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode as WireMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Row};

use crate::address::bracketed;
use crate::backend::postgres::config::PostgresConfig;
use crate::backend::postgres::protocol::messages::notifies;
use crate::backend::postgres::protocol::statements::with_commits;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::login::SslMode;
use crate::backend::rows::server::value::{Cell, Cells, Param, Statement};
use crate::caller_driven::socket::notice_loss;
use crate::error::{Error, ErrorKind, Result};
use crate::tls::{self, Tls};
use crate::wakeups::unpoisoned;

use super::errors::{failure, is_of_a_plan, with_causes};
use super::tls::Connector;

/// Opens connections.
pub(crate) struct Opener {
    pub config: PostgresConfig,
    tls: Option<Tls>,
    /// Whether the server keeps statements prepared for a connection. Not behind a pooler: there the next transaction may
    /// have another connection to the server.
    prepares: Arc<AtomicBool>,
}

/// A message that a session listened for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub channel: String,
    pub payload: String,
}

/// An open connection. Requests on it are sent in the order in which they are made.
pub(crate) struct Session {
    client: Client,
    /// Reads and writes; ends with this value, also if the server does not answer.
    driver: AbortHandle,
    /// Closed at the end of the connection.
    ended: Arc<Semaphore>,
    place: String,
    /// What is set for each commit.
    commits: Option<&'static str>,
    prepares: Arc<AtomicBool>,
    /// By their texts.
    prepared: Mutex<HashMap<String, Preparing>>,
    /// A pipeline goes out as a whole.
    sending: Mutex<()>,
}

/// A statement of which the server may keep the plan.
#[derive(Clone)]
enum Preparing {
    /// It was sent so often as it is.
    Sent(u32),
    Prepared(tokio_postgres::Statement),
    /// It cannot be prepared: it begins or ends a transaction.
    Never,
}

/// The server plans a statement anew each time, which takes longer than to carry it out. One that was sent so often is
/// prepared; others are not worth a round trip.
const SENT_BEFORE: u32 = 2;

/// How many statements a connection keeps prepared; there are about as many.
const MOST_PREPARED: usize = 64;

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Opener {
    /// Reads certificates and keys.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(config: PostgresConfig) -> Result<Self> {
        let tls = match config.ssl_mode {
            SslMode::Disable => None,
            SslMode::Prefer | SslMode::Require => Some(Tls::new(&config.host, &config.files)?),
        };
        Ok(Self { config, tls, prepares: Arc::new(AtomicBool::new(true)) })
    }

    pub(crate) fn place(&self) -> String {
        format!("{}:{}", bracketed(&self.config.host), self.config.port)
    }

    /// Connects and logs in. A secret that was rotated is read again once.
    pub(crate) async fn open(
        &self,
        heard: Option<mpsc::UnboundedSender<Heard>>,
    ) -> std::result::Result<Session, Failure> {
        match self.open_once(heard.clone()).await {
            Err(refused)
                if refused.code().starts_with("28")
                    && self
                        .config
                        .password
                        .as_ref()
                        .is_some_and(|password| password.read_again(|_| true)) =>
            {
                self.open_once(heard).await
            }
            other => other,
        }
    }

    async fn open_once(
        &self,
        heard: Option<mpsc::UnboundedSender<Heard>>,
    ) -> std::result::Result<Session, Failure> {
        let place = self.place();
        let refused = |error: std::io::Error| Failure::Lost {
            error: Error::new(
                ErrorKind::BackendUnavailable,
                format!("cannot connect to PostgreSQL at {place}; is it running, and is this its address?"),
            )
            .with_source(error),
            sent: false,
        };
        let stream =
            TcpStream::connect((self.config.host.as_str(), self.config.port)).await.map_err(refused)?;
        // Locks are small messages with a caller waiting for each.
        stream.set_nodelay(true).map_err(refused)?;
        let port = stream.local_addr().map_err(refused)?.port();
        notice_loss(&stream);
        let mut config = Config::new();
        config.user(&self.config.user).dbname(&self.config.database).application_name("polylatch");
        if let Some(password) = &self.config.password {
            config.password(password.latest().0);
        }
        config.ssl_mode(match self.config.ssl_mode {
            SslMode::Disable => WireMode::Disable,
            SslMode::Prefer => WireMode::Prefer,
            SslMode::Require => WireMode::Require,
        });
        let ended = Arc::new(Semaphore::new(0));
        let ends = Ends(Arc::clone(&ended));
        let (client, driver) = match &self.tls {
            None => {
                let (client, connection) =
                    config.connect_raw(stream, NoTls).await.map_err(|error| self.not_opened(&error))?;
                (client, tokio::spawn(drive(connection, heard, ends)).abort_handle())
            }
            Some(tls) => {
                let (connector, name) = tls.now();
                let (client, connection) = config
                    .connect_raw(stream, Connector(connector, name))
                    .await
                    .map_err(|error| self.not_opened(&error))?;
                (client, tokio::spawn(drive(connection, heard, ends)).abort_handle())
            }
        };
        let session = Session {
            client,
            driver,
            ended,
            place,
            commits: self.config.durability.setting(),
            prepares: Arc::clone(&self.prepares),
            prepared: Mutex::default(),
            sending: Mutex::new(()),
        };
        if self.prepares.load(Ordering::Relaxed) && !session.is_direct(port).await? {
            self.prepares.store(false, Ordering::Relaxed);
        }
        Ok(session)
    }

    fn not_opened(&self, error: &tokio_postgres::Error) -> Failure {
        use std::error::Error as _;
        let place = self.place();
        if error.as_db_error().is_some() {
            return failure(error, &place, false);
        }
        let text = with_causes(error);
        let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        let inner = cause.and_then(std::io::Error::get_ref);
        // A server that does not accept this client's certificate says so after the handshake.
        let is_tls = inner.is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>());
        if is_tls || text.contains("TLS") || text.contains("tls") {
            if text.contains("not support") || cause.is_none() {
                return Failure::from(Error::new(
                    ErrorKind::BackendRejected,
                    format!(
                        "PostgreSQL at {place} offers no TLS; turn ssl on there, or write sslmode=disable where the \
                         network is trusted"
                    ),
                ));
            }
            let io = cause.map_or(std::io::ErrorKind::Other, std::io::Error::kind);
            let again = match inner {
                Some(inner) => match inner.downcast_ref::<tokio_rustls::rustls::Error>() {
                    Some(tls) => std::io::Error::new(io, tls.clone()),
                    None => std::io::Error::new(io, inner.to_string()),
                },
                None => std::io::Error::from(io),
            };
            return Failure::from(tls::refused(again, "PostgreSQL", &place, "postgres", "postgres"));
        }
        if text.contains("password") {
            return Failure::from(Error::new(
                ErrorKind::InvalidConfig,
                format!(
                    "PostgreSQL at {place} asks for a password, and none was given; use password_env= or password_file="
                ),
            ));
        }
        failure(error, &place, false)
    }
}

/// Says that a connection has ended, also where its task is aborted.
struct Ends(Arc<Semaphore>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reads and writes a connection until it ends.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    heard: Option<mpsc::UnboundedSender<Heard>>,
    _ends: Ends,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let (AsyncMessage::Notification(message), Some(heard)) = (message, &heard) {
            let message =
                Heard { channel: message.channel().to_owned(), payload: message.payload().to_owned() };
            if heard.send(message).is_err() {
                return;
            }
        }
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

impl crate::backend::rows::server::Session for Session {
    fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.driver.is_finished()
    }

    fn end(&self) {
        self.driver.abort();
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
        match self.commits.and_then(|setting| with_commits(statements, changes, setting)) {
            Some((all, own)) => {
                let mut answers = self.pipeline(&all, changes).await?;
                Ok(own.into_iter().map(|at| std::mem::take(&mut answers[at])).collect())
            }
            None => self.pipeline(statements, changes).await,
        }
    }
}

impl Session {
    /// Sends them at once. The first failure counts; later ones follow from it.
    async fn pipeline(
        &self,
        statements: &[Statement],
        changes: bool,
    ) -> std::result::Result<Vec<Vec<Cells>>, Failure> {
        let mut plans = Vec::with_capacity(statements.len());
        for statement in statements {
            plans.push(self.plan(statement).await);
        }
        let mut asked: Vec<Answer<'_>> =
            statements.iter().zip(plans).map(|(statement, plan)| self.request(statement, plan)).collect();
        let mut answers: Vec<Option<Result<Vec<Row>, tokio_postgres::Error>>> =
            statements.iter().map(|_| None).collect();
        let mut first = true;
        poll_fn(|context| {
            // The first poll of a request sends it.
            let _sending = first.then(|| unpoisoned(&self.sending));
            first = false;
            let mut pending = false;
            for (request, answer) in asked.iter_mut().zip(&mut answers) {
                if answer.is_none() {
                    match request.as_mut().poll(context) {
                        Poll::Ready(result) => *answer = Some(result),
                        Poll::Pending => pending = true,
                    }
                }
            }
            if pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let last = statements.len().saturating_sub(1);
        answers
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(at, answer)| match answer {
                Ok(rows) => Ok(rows.iter().map(cells).collect()),
                // A message by itself: what comes before is carried out, and who is not notified asks.
                Err(error) if at == last && at > 0 && notifies(&statements[at]) && error.code().is_some() => {
                    tracing::debug!(%error, "a waiter could not be notified of its grant; it finds it by its next poll");
                    Ok(Vec::new())
                }
                Err(error) => {
                    if is_of_a_plan(&error) {
                        self.prepares.store(false, Ordering::Relaxed);
                    }
                    Err(failure(&error, &self.place, changes))
                }
            })
            .collect()
    }

    /// Whether the server sees this very connection. A pooler, or another kind of proxy, has one of its own to the server.
    async fn is_direct(&self, port: u16) -> std::result::Result<bool, Failure> {
        let asked = self.client.query_typed("SELECT inet_client_port()::bigint", &[]).await;
        let rows = asked.map_err(|error| failure(&error, &self.place, false))?;
        let seen: Option<i64> = rows.first().and_then(|row| row.get(0));
        Ok(seen == Some(i64::from(port)))
    }

    /// The prepared form of a statement that is sent often. Nothing is prepared while a pipeline goes out.
    async fn plan(&self, statement: &Statement) -> Option<tokio_postgres::Statement> {
        if !self.prepares.load(Ordering::Relaxed) {
            return None;
        }
        {
            let mut prepared = unpoisoned(&self.prepared);
            match prepared.get_mut(&statement.sql) {
                Some(Preparing::Prepared(plan)) => return Some(plan.clone()),
                Some(Preparing::Never) => return None,
                Some(Preparing::Sent(times)) if *times < SENT_BEFORE => {
                    *times += 1;
                    return None;
                }
                // Only one of several requests prepares it.
                Some(other) => *other = Preparing::Never,
                None => {
                    if prepared.len() < MOST_PREPARED {
                        let word = statement.sql.split(' ').next().unwrap_or_default();
                        let plans = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].contains(&word);
                        let begun = if plans { Preparing::Sent(1) } else { Preparing::Never };
                        prepared.insert(statement.sql.clone(), begun);
                    }
                    return None;
                }
            }
        }
        let types: Vec<Type> = statement.params.iter().map(|param| typed(param).1).collect();
        // A refusal will be told by the statement itself.
        let plan = self.client.prepare_typed(&statement.sql, &types).await.ok()?;
        unpoisoned(&self.prepared).insert(statement.sql.clone(), Preparing::Prepared(plan.clone()));
        Some(plan)
    }

    fn request<'a>(
        &'a self,
        statement: &'a Statement,
        plan: Option<tokio_postgres::Statement>,
    ) -> Answer<'a> {
        Box::pin(async move {
            let params: Vec<(&(dyn ToSql + Sync), Type)> = statement.params.iter().map(typed).collect();
            match plan {
                Some(plan) => {
                    let params: Vec<_> = params.into_iter().map(|(param, _)| param).collect();
                    self.client.query(&plan, &params).await
                }
                // Without a name.
                None => self.client.query_typed(&statement.sql, &params).await,
            }
        })
    }
}

fn typed(param: &Param) -> (&(dyn ToSql + Sync), Type) {
    match param {
        Param::Text(text) => (text, Type::TEXT),
        Param::OptionalText(text) => (text, Type::TEXT),
        Param::Int(value) => (value, Type::INT8),
        Param::OptionalInt(value) => (value, Type::INT8),
        Param::Texts(texts) => (texts, Type::TEXT_ARRAY),
        Param::Ints(values) => (values, Type::INT8_ARRAY),
        Param::Bytes(bytes) => (bytes, Type::BYTEA),
    }
}

fn cells(row: &Row) -> Cells {
    let cell = |at: usize| {
        if let Ok(value) = row.try_get::<_, Option<i64>>(at) {
            return value.map_or(Cell::Null, Cell::Int);
        }
        if let Ok(bytes) = row.try_get::<_, Option<Vec<u8>>>(at) {
            return bytes.map_or(Cell::Null, Cell::Bytes);
        }
        match row.try_get::<_, Option<String>>(at) {
            Ok(Some(text)) => Cell::Text(text),
            _ => Cell::Null,
        }
    };
    Cells((0..row.len()).map(cell).collect())
}
