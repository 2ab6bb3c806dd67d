//! `polylatch idem ls`, `show` and `forget`.

use std::time::{SystemTime, UNIX_EPOCH};

use host::ThisHost;
use polylatch::idempotency::{Forgotten, RecordState, RecordView};
use serde::Serialize;

use super::{ForgetArgs, LsArgs, ShowArgs};
use crate::exit;
use crate::paint::{Cell, Column, Paint, table, wrap};
use crate::store::{Failure, JSON_VERSION, Store, json, print_line};
use model::text::{count, sanitized, short_span};
use model::{Next, Records, Rule, Severity};

const COLUMNS: [Column; 8] = [
    Column { title: "STATE", shrinks_to: None, leaves: None },
    Column { title: "SCOPE", shrinks_to: Some(12), leaves: None },
    Column { title: "KEY", shrinks_to: Some(12), leaves: None },
    Column { title: "CLIENT", shrinks_to: Some(12), leaves: Some(1) },
    Column { title: "RUNS", shrinks_to: None, leaves: Some(0) },
    Column { title: "WRITTEN", shrinks_to: None, leaves: Some(2) },
    Column { title: "KEPT", shrinks_to: None, leaves: None },
    Column { title: "FOUND", shrinks_to: None, leaves: None },
];

/// So many records tell how long work usually takes.
const MOST_AROUND: usize = 1_000;

/// What is found about a key, as JSON and for what `polylatch check` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    pub scope: String,
    pub key: String,
    #[serde(rename = "code", serialize_with = "as_code")]
    pub rule: Rule,
    pub severity: Severity,
    pub sentence: String,
    pub next: Vec<Next>,
}

fn as_code<S: serde::Serializer>(rule: &Rule, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(rule.code())
}

#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    records: &'a [RecordView],
    findings: Vec<Found>,
}

/// Everything that is found about records, in their order.
pub(crate) fn found(store: &Store, records: &Records) -> Vec<Found> {
    records.all().iter().filter_map(|record| found_of(store, records, record)).collect()
}

fn found_of(store: &Store, records: &Records, record: &RecordView) -> Option<Found> {
    let finding = records.finding(record, &store.command, wall_ms())?;
    let (scope, key) = (sanitized(&record.scope), sanitized(&record.key));
    let (rule, severity) = (finding.rule, finding.severity);
    Some(Found { scope, key, rule, severity, sentence: finding.sentence, next: finding.next })
}

/// Reads the records of the scopes that begin with `prefix`.
pub(crate) async fn read(store: &Store, prefix: &str, most: usize) -> Result<Records, Failure> {
    let records = store.client.idempotency_records().list(prefix, most).await?;
    Ok(Records::new(records, &ThisHost::new()))
}

pub(super) async fn ls(url: Option<&str>, args: &LsArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let records = read(&store, args.prefix.as_deref().unwrap_or_default(), args.most).await?;
    if args.json {
        let findings = found(&store, &records);
        print_line(&json(&Told { version: JSON_VERSION, records: records.all(), findings }, true)?)?;
        return Ok(0);
    }
    if records.all().is_empty() {
        print_line("No key is running or stored.")?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    let rows: Vec<_> = records.all().iter().map(|record| row(&records, record)).collect();
    for line in table(&paint, &COLUMNS, &rows) {
        print_line(&line)?;
    }
    if records.all().len() == args.most {
        print_line(&format!("The first {}; --most shows more.", count(args.most, "record", "records")))?;
    }
    let abandoned = records.all().iter().filter(|record| record.state == RecordState::Abandoned).count();
    if abandoned > 0 {
        let text = format!(
            "{} abandoned: the client ended or lost its claim before an answer was stored, so its work may have been done. \
             The next run does it again.",
            count(abandoned, "key is", "keys are")
        );
        for line in wrap(&text, paint.columns) {
            print_line(&line)?;
        }
    }
    Ok(0)
}

fn row(records: &Records, record: &RecordView) -> Vec<Cell> {
    let sgr = match record.state {
        RecordState::Abandoned => "1;33",
        RecordState::Failed | RecordState::TooLarge => "33",
        RecordState::Running => "36",
        _ => "",
    };
    let plain = |text: String| Cell { text, sgr: "" };
    let (found, of_found) = match records.judge(record) {
        Some((rule, Severity::Warning | Severity::Problem)) => (rule.code(), "1;33"),
        Some((rule, _)) => (rule.code(), ""),
        None => ("", ""),
    };
    vec![
        Cell { text: record.state.code().to_owned(), sgr },
        plain(sanitized(&record.scope)),
        plain(if record.is_token {
            format!("token {}", sanitized(&record.key))
        } else {
            sanitized(&record.key)
        }),
        plain(sanitized(&format!("{}:{}", record.client.host(), record.client.pid().unwrap_or_default()))),
        plain(record.runs.to_string()),
        plain(format!("{} ago", short_span(wall_ms().saturating_sub(record.written_at_ms)))),
        plain(record.keep_left_ms.map_or_else(|| "for ever".to_owned(), short_span)),
        Cell { text: found.to_owned(), sgr: of_found },
    ]
}

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn show(url: Option<&str>, args: &ShowArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let inspector = store.client.idempotency_records();
    let record = inspector.show(&args.scope, &args.key).await?;
    // The other records of the scope tell how long its work usually takes.
    let mut around = match &record {
        Some(record) if record.state == RecordState::Running => {
            inspector.list(&args.scope, MOST_AROUND).await?
        }
        _ => Vec::new(),
    };
    around.extend(record.clone());
    let records = Records::new(around, &ThisHost::new());
    if args.json {
        let found = record.as_ref().and_then(|record| found_of(&store, &records, record));
        let findings = found.into_iter().collect();
        print_line(&json(&Told { version: JSON_VERSION, records: record.as_slice(), findings }, true)?)?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    let Some(record) = record else {
        for line in wrap(&unknown(args), paint.columns) {
            print_line(&line)?;
        }
        return Ok(0);
    };
    let mut texts = records.told(&record, wall_ms());
    if let Some(finding) = records.finding(&record, &store.command, wall_ms()) {
        texts.push(format!("{}: {}", finding.rule.code(), finding.sentence));
        texts.extend(finding.next.into_iter().map(|next| match next {
            Next::Run(command) => format!("Next: {command}"),
            Next::Do(advice) => format!("Next: {advice}."),
        }));
    }
    for line in texts.iter().flat_map(|text| wrap(text, paint.columns)) {
        print_line(&line)?;
    }
    Ok(0)
}

fn unknown(args: &ShowArgs) -> String {
    let (scope, key) = (sanitized(&args.scope), sanitized(&args.key));
    format!("{key} in {scope} is free: nothing is stored or running. The next run does the work.")
}

pub(super) async fn forget(url: Option<&str>, args: &ForgetArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let (scope, key) = (sanitized(&args.scope), sanitized(&args.key));
    let records = store.client.idempotency_records();
    let (code, text) = match records.forget(&args.scope, &args.key, args.even_if_running).await? {
        Forgotten::Forgotten => {
            (0, format!("Forgotten: the next run of {key} in {scope} does the work again."))
        }
        Forgotten::Absent => (exit::NOTHING_DONE, format!("Nothing to forget: {key} in {scope} is free.")),
        Forgotten::Running(record) => {
            let host = sanitized(record.client.host());
            let text = format!(
                "Nothing forgotten: {key} in {scope} is running on host {host} pid {}. Wait for it, or use \
                 --even-if-running.",
                record.client.pid().unwrap_or_default()
            );
            (exit::NOTHING_DONE, text)
        }
    };
    for line in wrap(&text, Paint::for_stdout().columns) {
        print_line(&line)?;
    }
    Ok(code)
}
