//! What happens to a client's locks. A host asks for events on a thread or in a task of its own, so no thread of ours
//! waits for a host, and a listener may itself call.

use std::sync::Arc;

use polylatch_bridge::events::Value;
use polylatch_bridge::{Event, Inbox};

use crate::fault::NativeError;
use crate::handed::handed;

/// Where the events of one client come in. It does not keep the client.
#[derive(Debug, uniffi::Object)]
pub struct NativeEvents(pub(crate) Arc<Inbox>);

#[uniffi::export]
impl NativeEvents {
    /// Waits for events, and returns them in their order; nothing after the last one of a client that was closed or is
    /// gone. For one that asks at a time.
    pub async fn next_events(self: Arc<Self>) -> Result<Option<Vec<LockEvent>>, NativeError> {
        handed(async move {
            let events = self.0.next().await;
            Ok(events.map(|events| events.into_iter().map(LockEvent::from).collect()))
        })
        .await
    }
}

/// What happened to a lock or to its store. The names and the fields are those of the Rust module
/// `polylatch::observe`; a field that the event does not have is missing.
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct LockEvent {
    /// `waiting`, `acquired`, `released`, `renewal_failed`, `endangered`, `lost`, `store_unreachable`,
    /// `store_reachable`, `setup_warning`, `notice` and others.
    pub event: String,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// A sentence to read.
    pub message: String,
    /// The message and all fields in one line, for a log.
    pub line: String,
    /// The client's id.
    pub client: Option<String>,
    /// The name of the lock.
    pub lock: Option<String>,
    /// Kind of store, such as `redis`.
    pub backend: Option<String>,
    /// The fencing token of the lease.
    pub fencing_token: Option<i64>,
    /// Position in the queue, 0 for the next.
    pub position: Option<i64>,
    /// How long the acquisition waited.
    pub waited_ms: Option<i64>,
    /// How long the lock was held.
    pub held_ms: Option<i64>,
    /// How often the lease was renewed.
    pub renewals: Option<i64>,
    /// Whether the store pushed the grant.
    pub pushed: Option<bool>,
    /// Why a lease was lost, such as `expired`.
    pub reason: Option<String>,
    /// The text of the error.
    pub error: Option<String>,
    /// How many leases a renewal was for.
    pub leases: Option<i64>,
    /// Of a `setup_warning`: what it is about.
    pub which: Option<String>,
    /// Of a `setup_warning`: what was found.
    pub findings: Option<String>,
    /// Of `events_dropped`: how many came faster than they were taken.
    pub dropped: Option<i64>,
}

impl From<Event> for LockEvent {
    fn from(event: Event) -> Self {
        let mut made = Self {
            line: event.line(),
            event: event.name,
            level: event.level.word().to_owned(),
            message: event.message,
            client: event.client,
            ..Self::default()
        };
        for (name, value) in event.fields {
            match (name, value) {
                ("lock", Value::Text(text)) => made.lock = Some(text),
                ("backend", Value::Text(text)) => made.backend = Some(text),
                ("reason", Value::Text(text)) => made.reason = Some(text),
                ("error", Value::Text(text)) => made.error = Some(text),
                ("which", Value::Text(text)) => made.which = Some(text),
                ("findings", Value::Text(text)) => made.findings = Some(text),
                ("fencing_token", Value::Number(number)) => made.fencing_token = Some(number),
                ("position", Value::Number(number)) => made.position = Some(number),
                ("waited_ms", Value::Number(number)) => made.waited_ms = Some(number),
                ("held_ms", Value::Number(number)) => made.held_ms = Some(number),
                ("renewals", Value::Number(number)) => made.renewals = Some(number),
                ("leases", Value::Number(number)) => made.leases = Some(number),
                ("dropped", Value::Number(number)) => made.dropped = Some(number),
                ("pushed", Value::Flag(flag)) => made.pushed = Some(flag),
                // Only in the line.
                _ => {}
            }
        }
        made
    }
}
