//! Which rows are shown, in which order, under which headings.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::fleet::{Fleet, RowRef};
use super::rows::{LockState, Row, by_attention, earlier_first};
use super::text::sanitized;
use super::verdict::Severity;

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// Severity, then waiters, then how long it is held.
    #[default]
    Attention,
    /// State.
    State,
    /// Name of the lock.
    Lock,
    /// Connection.
    Connection,
    /// Kind of store.
    Backend,
    /// In which way it is held.
    Mode,
    /// Host and process.
    Holder,
    /// Program.
    Program,
    /// Language of the binding.
    Language,
    /// What the holder says it is doing.
    Label,
    /// Fencing token.
    Fence,
    /// What is left of the lease.
    Left,
    /// Since the latest renewal.
    Renewed,
    /// Missed beats.
    Missed,
    /// How many wait.
    Waiters,
    /// How long it is held.
    Held,
    /// Hand-offs a minute.
    HandOffs,
}

/// An order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Sort {
    /// By what.
    pub column: Column,
    /// The other way round. The natural way is problems, most and longest first, and texts from A to Z.
    pub reversed: bool,
}

/// What rows are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Nothing.
    #[default]
    None,
    /// The name up to and with its first `/` or `:`.
    Prefix,
    /// The process that holds.
    Holder,
    /// The host of the holder.
    Host,
    /// The holder's program.
    Program,
    /// The connection.
    Connection,
    /// The state.
    State,
}

/// A way to look at the locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// What passes.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// Under which headings.
    pub group: Group,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A heading.
    Heading {
        /// Sanitized.
        title: String,
        /// How many rows stand below it.
        rows: usize,
        /// How many of them need attention.
        attention: usize,
    },
    /// A lock.
    Row(RowRef),
}

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines {
    /// Headings and rows, in order.
    pub lines: Vec<Line>,
    /// How many rows pass the filter.
    pub matching: usize,
    /// How many rows there are.
    pub all: usize,
}

impl View {
    /// Selects, orders and groups the rows, with ages as of `now_ms`, the viewer's time.
    pub fn lines(&self, fleet: &Fleet, now_ms: u64) -> Lines {
        let (mut all, mut rows) = (0, Vec::new());
        for (store, fresh) in fleet.stores().iter().map(|store| store.is_fresh(now_ms)).enumerate() {
            for place in fleet.row_refs_of(store) {
                all += 1;
                let row = fleet.at(place);
                let state = if fresh { row.state } else { LockState::Unknown };
                if self.filter.matches(row, state, now_ms) {
                    rows.push((place, row, state));
                }
            }
        }
        rows.sort_by(|(_, a, a_state), (_, b, b_state)| {
            let order = self.sort.column.compare(a, *a_state, b, *b_state);
            let order = if self.sort.reversed { order.reverse() } else { order };
            // Equals always stand in the same order, or rows would swap places at every snapshot.
            order.then_with(|| a.key.cmp(&b.key))
        });
        let matching = rows.len();
        let lines = match self.group {
            Group::None => rows.into_iter().map(|(place, ..)| Line::Row(place)).collect(),
            group => grouped(group, &rows),
        };
        Lines { lines, matching, all }
    }
}

/// Puts rows under headings; the groups are in the order of their first rows.
fn grouped(group: Group, rows: &[(RowRef, &Row, LockState)]) -> Vec<Line> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<(String, Vec<RowRef>, usize)> = Vec::new();
    for (place, row, state) in rows {
        let title = group.title(row, *state);
        let at = *places.entry(title.clone()).or_insert_with(|| {
            groups.push((title, Vec::new(), 0));
            groups.len() - 1
        });
        groups[at].1.push(*place);
        groups[at].2 += usize::from(row.severity() >= Severity::Warning);
    }
    let mut lines = Vec::with_capacity(rows.len() + groups.len());
    for (title, rows, attention) in groups {
        lines.push(Line::Heading { title, rows: rows.len(), attention });
        lines.extend(rows.into_iter().map(Line::Row));
    }
    lines
}

impl Group {
    /// All, as they are offered.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Prefix, Self::Holder, Self::Host, Self::Program, Self::Connection, Self::State];

    /// Returns the word that is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Prefix => "prefix",
            Self::Holder => "holder",
            Self::Host => "host",
            Self::Program => "program",
            Self::Connection => "connection",
            Self::State => "state",
        }
    }

    fn title(self, row: &Row, state: LockState) -> String {
        let or =
            |text: &str, without: &str| if text.is_empty() { without.to_owned() } else { text.to_owned() };
        match self {
            Self::None => String::new(),
            Self::Prefix => match row.name.find(['/', ':']) {
                Some(at) => row.name[..=at].to_owned(),
                None => "(no prefix)".into(),
            },
            Self::Holder => or(&row.place, "(not held)"),
            Self::Host => or(row.place.rsplit_once(':').map_or(&*row.place, |(host, _)| host), "(not held)"),
            Self::Program => or(&row.program, "(not known)"),
            Self::Connection => sanitized(row.key.connection.as_str()),
            Self::State => state.word().into(),
        }
    }
}

impl Column {
    /// Compares two rows in the natural way of the column: problems, most and longest first; texts from A
    /// to Z, empty ones last.
    fn compare(self, a: &Row, a_state: LockState, b: &Row, b_state: LockState) -> Ordering {
        let texts = |a: &str, b: &str| (a.is_empty(), a).cmp(&(b.is_empty(), b));
        let place = |state: LockState| LockState::ALL.iter().position(|known| *known == state);
        match self {
            Self::Attention => by_attention(a, b),
            Self::State => place(a_state).cmp(&place(b_state)),
            Self::Lock => a.name.cmp(&b.name),
            Self::Connection => a.key.connection.cmp(&b.key.connection),
            Self::Backend => a.backend.cmp(&b.backend),
            Self::Mode => texts(&a.mode, &b.mode),
            Self::Holder => texts(&a.place, &b.place),
            Self::Program => texts(&a.program, &b.program),
            Self::Language => texts(&a.language, &b.language),
            Self::Label => texts(&a.label, &b.label),
            Self::Fence => b.fencing_token.cmp(&a.fencing_token),
            // What ends first comes first, what never ends before all: it is the worse.
            Self::Left => (a.holders == 0, a.remaining_ms).cmp(&(b.holders == 0, b.remaining_ms)),
            Self::Renewed => b.since_renewal_ms.cmp(&a.since_renewal_ms),
            Self::Missed => b.missed.cmp(&a.missed),
            Self::Waiters => {
                b.waiters.cmp(&a.waiters).then_with(|| earlier_first(a.since_ms[1], b.since_ms[1]))
            }
            Self::Held => earlier_first(a.since_ms[0], b.since_ms[0]),
            Self::HandOffs => b.hand_offs.cmp(&a.hand_offs),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fixture::{clients, held, lock, snapshot, waiting};
    use super::super::report::{Polled, Report, Update};
    use super::super::{Connection, ConnectionId, Environment, LocalFacts};
    use super::*;

    fn fleet() -> Fleet {
        let [a, b, c] = clients();
        let mut fleet = Fleet::default();
        let mut overdue = held(c, 12_000);
        overdue.remaining_ms = Some(3_000);
        let locks = [
            vec![
                lock("jobs/1", vec![held(a, 2_000)], vec![]),
                lock("jobs/2", vec![held(b, 3_000)], vec![waiting(c, 10)]),
                lock("mail:out", vec![held(a, 4_000)], vec![]),
            ],
            vec![lock("jobs/3", vec![overdue], vec![]), lock("solo", vec![], vec![])],
        ];
        for (name, locks) in ["one", "two"].into_iter().zip(locks) {
            let id = ConnectionId::new(name);
            fleet.connect(Connection {
                id: id.clone(),
                shown_url: format!("memory:{name}"),
                command: "polylatch".into(),
                environment: Environment::Development,
                read_only: false,
            });
            let snapshot = Arc::new(snapshot(locks));
            // Twice, so that what has to stand stands.
            for at_ms in [1_000, 2_000] {
                let polled = Polled {
                    snapshot: Arc::clone(&snapshot),
                    events: vec![],
                    local: LocalFacts::default(),
                    every_ms: 1_000,
                };
                fleet.ingest(Update { connection: id.clone(), at_ms, report: Report::Polled(polled) });
            }
        }
        fleet
    }

    fn shown(fleet: &Fleet, view: &View) -> Vec<String> {
        let text = |line: &Line| match line {
            Line::Row(place) => fleet.at(*place).name.clone(),
            Line::Heading { title, rows, attention } => format!("# {title} {rows} {attention}"),
        };
        view.lines(fleet, 2_000).lines.iter().map(text).collect()
    }

    #[test]
    fn rows_of_all_connections_stand_in_one_table_problems_first() {
        let fleet = fleet();
        let view = View::default();
        assert_eq!(shown(&fleet, &view), ["jobs/3", "jobs/2", "mail:out", "jobs/1", "solo"]);
        let lines = view.lines(&fleet, 2_000);
        assert_eq!((lines.matching, lines.all), (5, 5));
    }

    #[test]
    fn rows_of_two_stores_do_not_swap_places_because_one_was_read_later() {
        let [a] = clients();
        let mut fleet = Fleet::default();
        let mut read = |name: &str, held_ms: u64, later_ms: u64| {
            let mut holder = held(a, held_ms);
            holder.acquired_at_ms = Some(1_000_000 + later_ms - held_ms);
            let mut reading = snapshot(vec![lock(name, vec![holder], vec![])]);
            reading.taken_at_ms += later_ms;
            let id = ConnectionId::new(name);
            fleet.connect(Connection {
                id: id.clone(),
                shown_url: format!("memory:{name}"),
                command: "polylatch".into(),
                environment: Environment::Development,
                read_only: false,
            });
            let (snapshot, local) = (Arc::new(reading), LocalFacts::default());
            let polled = Polled { snapshot, events: vec![], local, every_ms: 1_000 };
            fleet.ingest(Update { connection: id, at_ms: later_ms, report: Report::Polled(polled) });
            [Column::Attention, Column::Held, Column::Waiters].map(|column| {
                shown(&fleet, &View { sort: Sort { column, reversed: false }, ..View::default() })
            })
        };
        read("first", 3_000, 0);
        let before = read("second", 3_400, 500);
        assert_eq!(before[0], ["first", "second"]);
        assert_eq!(read("first", 4_000, 1_000), before);
        assert_eq!(read("second", 4_400, 1_500), before);
    }

    #[test]
    fn every_column_orders_and_reversing_reverses() {
        let fleet = fleet();
        let by =
            |column, reversed| shown(&fleet, &View { sort: Sort { column, reversed }, ..View::default() });
        assert_eq!(by(Column::Lock, false), ["jobs/1", "jobs/2", "jobs/3", "mail:out", "solo"]);
        assert_eq!(by(Column::Lock, true)[0], "solo");
        assert_eq!(by(Column::Held, false)[0], "jobs/3");
        assert_eq!(by(Column::Left, false), ["jobs/3", "mail:out", "jobs/2", "jobs/1", "solo"]);
        assert_eq!(by(Column::Waiters, false)[0], "jobs/2");
        assert_eq!(by(Column::Holder, false)[4], "solo");
        assert_eq!(by(Column::State, false)[0], "jobs/3");
    }

    #[test]
    fn groups_stand_in_the_order_of_their_worst_and_tell_how_many_need_attention() {
        let fleet = fleet();
        let by = |group| shown(&fleet, &View { group, ..View::default() });
        assert_eq!(
            by(Group::Prefix),
            [
                "# jobs/ 3 1",
                "jobs/3",
                "jobs/2",
                "jobs/1",
                "# mail: 1 0",
                "mail:out",
                "# (no prefix) 1 0",
                "solo"
            ]
        );
        assert_eq!(by(Group::Holder)[0], "# web-1:300 1 1");
        assert_eq!(by(Group::Connection)[0], "# two 2 1");
    }

    #[test]
    fn a_connection_that_is_late_has_unknown_rows_that_stay_where_they_are() {
        let fleet = fleet();
        let late = View { filter: Filter::parse("state:unknown").unwrap(), ..View::default() };
        assert_eq!(late.lines(&fleet, 2_000).matching, 0);
        assert_eq!(late.lines(&fleet, 60_000).matching, 5);
        assert_eq!(fleet.summary(60_000).unknown, 5);
    }
}
