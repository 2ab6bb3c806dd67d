//! Reaching the store, and how a failure is told.

use std::collections::HashSet;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use polylatch::inspect::{Query, Snapshot};
use polylatch::{BootInstant, Clock, Error, Polylatch, Retry, SystemClock};
use serde::Serialize;

use super::exit;
use super::paint::say;
use model::Evidence;
use model::export::sanitized_json;
use model::graph::has_rings;
use model::text::{sanitized, shell_word};
use model::{Finding, HostFacts, LockState, Overview, sharing};

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: u8,
    pub message: String,
    /// The stable code, if a call of the library failed.
    pub error_code: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), error_code: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // Messages quote names and holders from the store.
        let error_code = Some(error.code());
        Self { error_code, ..Self::new(exit::of(&error), sanitized(&error.to_string())) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(exit::SYSTEM, error.to_string())
    }
}

/// Between two snapshots that a ring of waits must outlast.
const BETWEEN_SNAPSHOTS: Duration = Duration::from_millis(250);

/// Version of all JSON objects that this program prints. It is raised when a field goes or changes its meaning, not
/// when one is added.
pub(crate) const JSON_VERSION: u32 = 1;

/// Between the first two tries to connect; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connected client, and how to call this program again for the same store.
#[derive(Debug)]
pub(crate) struct Store {
    pub client: Polylatch,
    pub command: String,
}

impl Store {
    /// Connects to the given store or to the default one. `program` is what people see beside locks.
    pub(crate) async fn open(url: Option<&str>, program: Option<String>) -> Result<Self, Failure> {
        refuse_memory(url)?;
        // Who only looks must not make the file: a mistyped path would look like an empty store.
        if let Some(url) = url.filter(|_| program.is_none()) {
            refuse_missing_file(url)?;
        }
        Ok(Self::connect(url, program).await?)
    }

    /// As `open`; while the store is unavailable, tries again until the deadline (`None`: for ever).
    pub(crate) async fn open_before(
        url: Option<&str>,
        program: Option<String>,
        deadline: Option<BootInstant>,
        what: &str,
    ) -> Result<Self, Failure> {
        refuse_memory(url)?;
        let mut pause = FIRST_PAUSE;
        let mut error = match Self::connect(url, program.clone()).await {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        let mut told = false;
        loop {
            let left = || deadline.map_or(Duration::MAX, |deadline| deadline.since(SystemClock.now()));
            if error.retry() != Retry::AfterBackoff || left() <= pause {
                return Err(error.into());
            }
            if !told {
                let error = sanitized(&error.to_string());
                say(&format!("waiting for {what}: the store is unavailable, trying again: {error}"));
                told = true;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let again = Self::connect(url, program.clone());
            match tokio::time::timeout(left(), again).await {
                Ok(Ok(store)) => {
                    say("the store is available again");
                    return Ok(store);
                }
                Ok(Err(again)) => error = again,
                Err(_) => return Err(error.into()),
            }
        }
    }

    async fn connect(url: Option<&str>, program: Option<String>) -> polylatch::Result<Self> {
        let mut builder = Polylatch::builder();
        if let Some(url) = url {
            builder = builder.url(url);
        }
        let client = match program {
            Some(program) => builder.program(program).connect().await?,
            // It shows what can be read, also where too few nodes answer for a lock.
            None => builder.connect_to_look().await?,
        };
        let env = std::env::var("POLYLATCH_URL").ok();
        let command = command_for(url, env.as_deref(), client.url_for_display());
        Ok(Self { client, command })
    }

    pub(crate) async fn read(&self, query: &Query) -> Result<Snapshot, Failure> {
        Ok(self.client.inspect().list(query).await?)
    }

    /// Reads once, and again if clients seem to wait for each other: a ring is a deadlock only if no lock in it
    /// changes hands. Returns the latest snapshot, and the one before it.
    pub(crate) async fn read_for_rings(
        &self,
        query: &Query,
        facts: &dyn HostFacts,
    ) -> Result<(Snapshot, Option<Snapshot>), Failure> {
        let first = self.read(query).await?;
        if !has_rings(&first, facts) {
            return Ok((first, None));
        }
        tokio::time::sleep(BETWEEN_SNAPSHOTS).await;
        Ok((self.read(query).await?, Some(first)))
    }

    /// Returns the store's URL without secrets, sanitized.
    pub(crate) fn shown_url(&self) -> String {
        sanitized(self.client.url_for_display())
    }
}

/// Refuses a store that would live in this process only.
pub(crate) fn refuse_memory(url: Option<&str>) -> Result<(), Failure> {
    if url.is_some_and(|url| url == "memory" || url.starts_with("memory:")) {
        return Err(Failure::new(
            exit::USAGE,
            "memory: lives inside one process, so no other could see it; use sqlite: or a server",
        ));
    }
    Ok(())
}

/// Refuses the URL of a lock file that is not there.
fn refuse_missing_file(url: &str) -> Result<(), Failure> {
    let Some(target) = url.strip_prefix("sqlite:") else { return Ok(()) };
    let path = target.split('?').next().unwrap_or_default();
    // The store refuses it, and repeats nothing of what may be a password.
    if target.contains('@') {
        return Ok(());
    }
    let path = percent_decode_str(path.strip_prefix("//").unwrap_or(path)).decode_utf8_lossy();
    if path.is_empty() || std::path::Path::new(&*path).exists() {
        return Ok(()); // what is wrong with it otherwise is told by the store
    }
    let path = sanitized(&path);
    Err(Failure::new(
        exit::USAGE,
        format!("there is no lock file {path}; check the path, or make the file with `polylatch run`"),
    ))
}

/// How this program is called for a store, for copyable commands that never show a secret.
fn command_for(url: Option<&str>, env: Option<&str>, display: &str) -> String {
    match url {
        None => "polylatch".into(),
        Some(url) if env == Some(url) => "polylatch".into(),
        Some(url) if url == display || url.starts_with("sqlite:") => {
            format!("polylatch --url {}", shell_word(url))
        }
        Some(_) => "polylatch --url \"$POLYLATCH_URL\"".into(),
    }
}

/// A snapshot with states and findings, as JSON for scripts.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    url: &'a str,
    backend: &'a str,
    taken_at_ms: u64,
    round_trip_ms: u64,
    truncated: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    troubles: &'a [polylatch::inspect::Trouble],
    locks: Vec<ToldLock<'a>>,
    clients: Vec<&'a polylatch::inspect::ClientView>,
    audit: &'a [polylatch::inspect::AuditEntry],
}

#[derive(Serialize)]
struct ToldLock<'a> {
    #[serde(flatten)]
    lock: &'a polylatch::inspect::LockView,
    state: LockState,
    findings: &'a [Finding],
}

/// Prints a snapshot as one JSON object: locks in their order on the screen, with the clients they name.
pub(crate) fn print_json(url: &str, snapshot: &Snapshot, overview: &Overview) -> Result<(), Failure> {
    let locks: Vec<ToldLock<'_>> = overview
        .rows
        .iter()
        .zip(&overview.findings)
        .map(|(row, findings)| ToldLock { lock: &snapshot.locks[row.index], state: row.state, findings })
        .collect();
    let named: HashSet<&polylatch::ClientId> = locks
        .iter()
        .flat_map(|told| {
            let holders = told.lock.holders.iter().filter_map(|holder| holder.client.as_ref());
            holders.chain(told.lock.waiters.iter().map(|waiter| &waiter.client))
        })
        .collect();
    let told = Told {
        version: JSON_VERSION,
        url,
        backend: &snapshot.backend,
        taken_at_ms: snapshot.taken_at_ms,
        round_trip_ms: u64::try_from(snapshot.round_trip.as_millis()).unwrap_or(u64::MAX),
        truncated: snapshot.truncated,
        troubles: &snapshot.troubles,
        clients: snapshot.clients.iter().filter(|client| named.contains(&client.id)).collect(),
        locks,
        audit: &snapshot.audit,
    };
    print_line(&json(&told, true)?)
}

/// Writes JSON whose characters are all safe in a terminal; for a parser nothing changes.
pub(crate) fn json(value: &impl Serialize, pretty: bool) -> Result<String, Failure> {
    sanitized_json(value, pretty).map_err(|error| Failure::new(exit::INTERNAL, format!("no JSON: {error}")))
}

/// Prints a line; a reader that went away (`| head`) ends the program quietly.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::new(SILENT, "")),
        other => Ok(other?),
    }
}

/// Prints a whole text; a reader that went away ends the program quietly.
pub(crate) fn print_text(text: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::new(SILENT, "")),
        other => Ok(other?),
    }
}

/// Code of a failure that needs no words: 128+13, as if SIGPIPE had ended the program.
pub(crate) const SILENT: u8 = exit::SIGNAL_BASE + 13;

/// One sentence on who holds a lock and who waits, for messages.
pub(crate) fn held_by(snapshot: &Snapshot, name: &str, facts: &dyn HostFacts) -> Option<String> {
    use model::text::span;
    let lock = snapshot.locks.iter().find(|lock| lock.name == name)?;
    let holder = lock.holders.first()?;
    let evidence = Evidence::new(snapshot, facts, "");
    let who = holder.client.as_ref().map_or_else(|| "another program".into(), |id| evidence.who(id));
    let label =
        if holder.label.is_empty() { String::new() } else { format!(", \"{}\"", sanitized(&holder.label)) };
    let since = holder.held_for_ms.map(|ms| format!(", for {}", span(ms))).unwrap_or_default();
    let (held, others) = (sharing::held(lock), sharing::and_others(lock));
    Some(format!("{held} by {who}{label}{since}{others}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::text::is_treacherous;

    #[test]
    fn a_copyable_command_never_shows_a_secret() {
        let secret = "redis://:pa55@cache";
        assert_eq!(command_for(None, None, "sqlite:/x"), "polylatch");
        assert_eq!(command_for(Some(secret), Some(secret), "redis://cache"), "polylatch");
        assert_eq!(command_for(Some("sqlite:a b"), None, "sqlite:/t/a b"), "polylatch --url 'sqlite:a b'");
        assert_eq!(command_for(Some("redis://c"), None, "redis://c"), "polylatch --url redis://c");
        assert_eq!(command_for(Some(secret), None, "redis://cache"), "polylatch --url \"$POLYLATCH_URL\"");
    }

    #[test]
    fn json_is_harmless_and_means_the_same() {
        let hostile = "a\u{9b}2J\u{202e}\u{e0041}ü\n";
        let text = json(&[hostile], false).unwrap();
        assert!(!text.chars().any(is_treacherous), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [hostile]);
    }
}
