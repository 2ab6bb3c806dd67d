//! The filter language: free text, `state:deadlock`, `held>10m`, `-label:nightly`.
//!
//! Parts stand beside each other and must all pass. `-` before a part turns it round, quotes keep spaces
//! together, `a,b` behind a colon means either. Letters' case does not matter.

use std::fmt;

use super::connection::ConnectionId;
use super::rows::{LockState, Row};
use super::verdict::Severity;

/// A filter, ready to be asked. The empty one lets everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    text: String,
    parts: Vec<Part>,
}

/// Why a filter is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// Where the part that is wrong begins, in bytes of the text.
    pub at: usize,
    /// The part that is wrong.
    pub part: String,
    /// What is wrong with it, and what can be written instead.
    pub message: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", super::text::sanitized(&self.part), self.message)
    }
}

impl std::error::Error for FilterError {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// Any text of the row has this in it.
    Anywhere(String),
    /// This field has one of these in it.
    Has(Field, Vec<String>),
    /// It is in one of these states.
    State(Vec<StateWord>),
    /// This number is above, below or equal to a bound.
    Number(Number, Comparison, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Lock,
    Connection,
    Backend,
    Holder,
    Program,
    Language,
    Label,
    Mode,
    Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateWord {
    Is(LockState),
    /// Something needs attention.
    Stuck,
    /// Held in any way.
    Held,
    /// Just went.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Held,
    Left,
    Lease,
    Renewed,
    Waited,
    Waiters,
    Holders,
    Missed,
    HandOffs,
    Fence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
}

/// What can stand before a colon, with what it means; for help texts.
pub const FIELDS: [(&str, &str); 10] = [
    ("state", "what it is: deadlock, stopped, no-expiry, gone, stuck, held …"),
    ("lock", "the lock's name"),
    ("connection", "the connection's name"),
    ("backend", "the kind of store: redis, sqlite …"),
    ("holder", "host:pid of the holder"),
    ("program", "the holder's program"),
    ("language", "the language of its binding"),
    ("label", "what it says it is doing"),
    ("mode", "read, write or 3/5"),
    ("rule", "the finding: RENEWALS-STOPPED …"),
];

/// What can stand before `<`, `<=`, `=`, `>=` or `>`, with what it means; for help texts.
pub const NUMBERS: [(&str, &str); 10] = [
    ("held", "how long it is held, such as 10m"),
    ("ttl", "what is left of the lease, such as 5s"),
    ("lease", "the lease's length"),
    ("renewed", "since the latest renewal"),
    ("waited", "how long the first in the queue waits"),
    ("waiters", "how many wait"),
    ("holders", "how many hold it"),
    ("missed", "renewals that are missing"),
    ("handoffs", "hand-offs during the last minute"),
    ("fence", "the fencing token"),
];

impl Filter {
    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let parts = words(text)?
            .into_iter()
            .map(|word| part(&word).map_err(|message| FilterError { at: word.at, part: word.raw, message }))
            .collect::<Result<_, _>>()?;
        Ok(Self { text: text.trim().to_owned(), parts })
    }

    /// Returns the filter as it was typed, trimmed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Says whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Says whether a row passes that is shown in this state, with its ages as of `now_ms`, the viewer's
    /// time. A number that is not known passes no comparison, turned round or not.
    pub fn matches(&self, row: &Row, state: LockState, now_ms: u64) -> bool {
        self.parts.iter().all(|part| {
            match &part.test {
                Test::Anywhere(text) => Some(anywhere(row, text)),
                Test::Has(field, texts) => Some(texts.iter().any(|text| has(row, *field, text))),
                Test::State(words) => Some(words.iter().any(|word| word.fits(row, state))),
                Test::Number(number, comparison, bound) => {
                    number.of(row, now_ms).map(|value| comparison.holds(value, *bound))
                }
            }
            .is_some_and(|passes| passes != part.negated)
        })
    }
}

/// A word with its place; a quoted one has lost its quotes.
struct Word {
    at: usize,
    raw: String,
    negated: bool,
    text: String,
    /// Something in it was quoted, so it is not looked at for `:` and `<` before that.
    plain_until: usize,
}

fn words(text: &str) -> Result<Vec<Word>, FilterError> {
    let mut found = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some(&(at, first)) = chars.peek() {
        if first.is_whitespace() {
            chars.next();
            continue;
        }
        let (mut word, mut quoted, mut plain_until) = (String::new(), false, None);
        let mut end = text.len();
        for (place, c) in chars.by_ref() {
            match c {
                '"' => {
                    plain_until.get_or_insert(word.len());
                    quoted = !quoted;
                }
                c if c.is_whitespace() && !quoted => {
                    end = place;
                    break;
                }
                c => word.push(c),
            }
        }
        let raw = text[at..end].to_owned();
        if quoted {
            let message = "the quote is not closed; write another \" at its end".into();
            return Err(FilterError { at, part: raw, message });
        }
        let plain_until = plain_until.unwrap_or(word.len());
        let negated = word.starts_with('-') && plain_until > 0;
        let text = if negated { word.split_off(1) } else { word };
        found.push(Word { at, raw, negated, plain_until: plain_until - usize::from(negated), text });
    }
    Ok(found)
}

fn part(word: &Word) -> Result<Part, String> {
    if word.text.is_empty() {
        return Err("there is nothing behind it; write -text, or leave it out".into());
    }
    let done = |test| Ok(Part { negated: word.negated, test });
    let plain = &word.text[..word.plain_until];
    let key_end = plain.find([':', '<', '>', '=']).filter(|end| *end > 0);
    // Names of locks have colons and equals signs, too: what stands before must look like a field's name.
    let Some(end) = key_end.filter(|end| plain[..*end].chars().all(|c| c.is_ascii_alphabetic())) else {
        return done(Test::Anywhere(word.text.to_lowercase()));
    };
    let key = plain[..end].to_ascii_lowercase();
    let rest = &word.text[end..];
    if let Some(value) = rest.strip_prefix(':') {
        return match field(&key) {
            Some(_) if value.is_empty() => Err(format!("a text is missing behind {key}:")),
            Some(field) => done(Test::Has(field, value.split(',').map(str::to_lowercase).collect())),
            None if key == "state" => {
                done(Test::State(value.split(',').map(state_word).collect::<Result<_, _>>()?))
            }
            None if Number::named(&key).is_some() => Err(format!("write {key}>{value} or {key}<{value}")),
            // A name such as `orders:42`.
            None if value.is_empty() || !is_near(&key) => done(Test::Anywhere(word.text.to_lowercase())),
            None => Err(format!(
                "there is no {key}: to look in; there are {}. Put a name with a colon into quotes",
                FIELDS.map(|(name, _)| name).join(", ")
            )),
        };
    }
    let Some(number) = Number::named(&key) else {
        return Err(match field(&key) {
            Some(_) => format!("{key} is a text; write {key}:…"),
            None => format!(
                "there is no number {key}; there are {}. Put a name with this sign into quotes",
                NUMBERS.map(|(name, _)| name).join(", ")
            ),
        });
    };
    let signs = [
        (">=", Comparison::AtLeast),
        ("<=", Comparison::AtMost),
        (">", Comparison::Above),
        ("<", Comparison::Below),
        ("=", Comparison::Equal),
    ];
    for (sign, comparison) in signs {
        if let Some(value) = rest.strip_prefix(sign) {
            return done(Test::Number(number, comparison, number.bound(&key, value)?));
        }
    }
    Err("write one of < <= = >= >".into())
}

fn field(key: &str) -> Option<Field> {
    Some(match key {
        "lock" | "name" => Field::Lock,
        "connection" | "conn" => Field::Connection,
        "backend" | "store" => Field::Backend,
        "holder" | "host" => Field::Holder,
        "program" => Field::Program,
        "language" | "lang" => Field::Language,
        "label" | "task" => Field::Label,
        "mode" => Field::Mode,
        "rule" | "finding" => Field::Rule,
        _ => return None,
    })
}

/// Says whether a word looks like one of the fields misspelled, rather than like the name of a lock.
fn is_near(key: &str) -> bool {
    let near = |name: &str| {
        let common = name.bytes().zip(key.bytes()).take_while(|(a, b)| a == b).count();
        common >= 3 && name.len().abs_diff(key.len()) <= 2
    };
    FIELDS.iter().any(|(name, _)| near(name))
}

fn state_word(word: &str) -> Result<StateWord, String> {
    let wanted = word.to_lowercase().replace([' ', '_'], "-");
    match wanted.as_str() {
        "stuck" | "attention" => return Ok(StateWord::Stuck),
        "taken" => return Ok(StateWord::Held),
        "gone" => return Ok(StateWord::Gone),
        "orphan" => return Ok(StateWord::Is(LockState::Gone)),
        _ => {}
    }
    let codes = LockState::ALL.map(|state| state.word().replace(' ', "-"));
    match codes.iter().position(|code| *code == wanted) {
        Some(at) => Ok(StateWord::Is(LockState::ALL[at])),
        None => {
            Err(format!("there is no state {word:?}; there are {}, and stuck, taken, gone", codes.join(", ")))
        }
    }
}

impl StateWord {
    fn fits(self, row: &Row, state: LockState) -> bool {
        match self {
            Self::Is(LockState::Deadlock) => matches!(state, LockState::Deadlock | LockState::MayDeadlock),
            Self::Is(wanted) => state == wanted,
            Self::Stuck => row.severity() >= Severity::Warning,
            Self::Held => row.holders > 0,
            Self::Gone => row.gone_at_ms.is_some(),
        }
    }
}

impl Number {
    fn named(key: &str) -> Option<Self> {
        Some(match key {
            "held" => Self::Held,
            "ttl" | "left" => Self::Left,
            "lease" => Self::Lease,
            "renewed" => Self::Renewed,
            "waited" => Self::Waited,
            "waiters" | "waiting" => Self::Waiters,
            "holders" => Self::Holders,
            "missed" => Self::Missed,
            "handoffs" => Self::HandOffs,
            "fence" | "token" => Self::Fence,
            _ => return None,
        })
    }

    fn is_time(self) -> bool {
        matches!(self, Self::Held | Self::Left | Self::Lease | Self::Renewed | Self::Waited)
    }

    fn bound(self, key: &str, text: &str) -> Result<u64, String> {
        if self.is_time() {
            return time_ms(text)
                .ok_or_else(|| format!("{text:?} is no time; write it like {key}>10m, 1h30m, 5s or 250ms"));
        }
        text.parse().map_err(|_| format!("{text:?} is no number; write it like {key}>3"))
    }

    fn of(self, row: &Row, now_ms: u64) -> Option<u64> {
        match self {
            Self::Held => row.held_now_ms(now_ms),
            Self::Left => row.left_now_ms(now_ms),
            Self::Lease => row.lease_ms,
            Self::Renewed => row.since_renewal_now_ms(now_ms),
            Self::Waited => row.waited_now_ms(now_ms),
            Self::Waiters => Some(row.waiters as u64),
            Self::Holders => Some(row.holders as u64),
            Self::Missed => Some(u64::from(row.missed)),
            Self::HandOffs => Some(u64::from(row.hand_offs)),
            Self::Fence => row.fencing_token,
        }
    }
}

impl Comparison {
    fn holds(self, value: u64, bound: u64) -> bool {
        match self {
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Equal => value == bound,
        }
    }
}

/// Reads `250ms`, `5s`, `1h30m`, `2d`; a number alone is seconds.
pub fn time_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if let Ok(secs) = rest.parse::<u64>() {
        return secs.checked_mul(1_000);
    }
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let number: u64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..unit_end] {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[unit_end..];
    }
    (!text.trim().is_empty()).then_some(sum)
}

fn anywhere(row: &Row, text: &str) -> bool {
    let texts = [&row.name, &row.place, &row.program, &row.label, &row.language, &row.mode];
    texts.iter().any(|field| contains(field, text))
        || contains(row.key.connection.as_str(), text)
        || contains(row.state.word(), text)
        || row.fencing_token.is_some_and(|token| token.to_string() == text)
}

fn has(row: &Row, field: Field, text: &str) -> bool {
    match field {
        Field::Lock => contains(&row.name, text),
        Field::Connection => contains(row.key.connection.as_str(), text),
        Field::Backend => contains(&row.backend, text),
        Field::Holder => contains(&row.place, text),
        Field::Program => contains(&row.program, text),
        Field::Language => contains(&row.language, text),
        Field::Label => contains(&row.label, text),
        Field::Mode => contains(&row.mode, text),
        Field::Rule => row.verdicts.iter().any(|verdict| contains(verdict.rule.code(), text)),
    }
}

/// Says whether a text has a lower-case one in it, without regard to case.
fn contains(text: &str, lower: &str) -> bool {
    if text.is_ascii() && lower.is_ascii() {
        let (text, lower) = (text.as_bytes(), lower.as_bytes());
        return lower.is_empty()
            || text.windows(lower.len()).any(|window| window.eq_ignore_ascii_case(lower));
    }
    text.to_lowercase().contains(lower)
}

/// A filter for the rows of one connection, as written by the connection list.
pub fn of_connection(id: &ConnectionId) -> String {
    quoted("connection", id.as_str())
}

/// Writes `field:value` so that it can be read back.
pub fn quoted(field: &str, value: &str) -> String {
    let value = value.replace('"', "");
    let plain = !value.is_empty() && !value.contains([' ', ',', '\t']);
    if plain { format!("{field}:{value}") } else { format!("{field}:\"{value}\"") }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
