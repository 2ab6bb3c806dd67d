//! `polylatch idem ls`, `show` and `forget`.

use std::time::{SystemTime, UNIX_EPOCH};

use polylatch::idempotency::{Forgotten, RecordState, RecordView};
use serde::Serialize;

use super::{ForgetArgs, LsArgs, ShowArgs};
use crate::exit;
use crate::paint::{Cell, Column, Paint, table, wrap};
use crate::store::{Failure, JSON_VERSION, Store, json, print_line};
use model::text::{count, harmless, short_span, span};

const COLUMNS: [Column; 7] = [
    Column { title: "STATE", shrinks_to: None, leaves: None },
    Column { title: "SCOPE", shrinks_to: Some(12), leaves: None },
    Column { title: "KEY", shrinks_to: Some(12), leaves: None },
    Column { title: "CLIENT", shrinks_to: Some(12), leaves: Some(1) },
    Column { title: "RUNS", shrinks_to: None, leaves: Some(0) },
    Column { title: "WRITTEN", shrinks_to: None, leaves: Some(2) },
    Column { title: "KEPT", shrinks_to: None, leaves: None },
];

#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    records: &'a [RecordView],
}

pub(super) async fn ls(url: Option<&str>, args: &LsArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let records = store.client.idempotency_records().list(prefix, args.most).await?;
    if args.json {
        print_line(&json(&Told { version: JSON_VERSION, records: &records }, true)?)?;
        return Ok(0);
    }
    if records.is_empty() {
        print_line("No key is running or stored.")?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    let rows: Vec<_> = records.iter().map(row).collect();
    for line in table(&paint, &COLUMNS, &rows) {
        print_line(&line)?;
    }
    if records.len() == args.most {
        print_line(&format!("The first {}; --most shows more.", count(args.most, "record", "records")))?;
    }
    let abandoned = records.iter().filter(|record| record.state == RecordState::Abandoned).count();
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

fn row(record: &RecordView) -> Vec<Cell> {
    let sgr = match record.state {
        RecordState::Abandoned => "1;33",
        RecordState::Failed | RecordState::TooLarge => "33",
        RecordState::Running => "36",
        _ => "",
    };
    let plain = |text: String| Cell { text, sgr: "" };
    vec![
        Cell { text: record.state.code().to_owned(), sgr },
        plain(harmless(&record.scope)),
        plain(if record.is_token {
            format!("token {}", harmless(&record.key))
        } else {
            harmless(&record.key)
        }),
        plain(harmless(&format!("{}:{}", record.client.host(), record.client.pid().unwrap_or_default()))),
        plain(record.runs.to_string()),
        plain(format!("{} ago", short_span(age_ms(record)))),
        plain(record.keep_left_ms.map_or_else(|| "for ever".to_owned(), short_span)),
    ]
}

fn age_ms(record: &RecordView) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_sub(record.written_at_ms)
}

pub(super) async fn show(url: Option<&str>, args: &ShowArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let record = store.client.idempotency_records().show(&args.scope, &args.key).await?;
    if args.json {
        print_line(&json(&Told { version: JSON_VERSION, records: record.as_slice() }, true)?)?;
        return Ok(0);
    }
    let paint = Paint::for_stdout();
    for text in record.as_ref().map_or_else(|| vec![unknown(args)], sentences) {
        for line in wrap(&text, paint.columns) {
            print_line(&line)?;
        }
    }
    Ok(0)
}

fn unknown(args: &ShowArgs) -> String {
    let (scope, key) = (harmless(&args.scope), harmless(&args.key));
    format!("{key} in {scope} is free: nothing is stored or running. The next run does the work.")
}

fn sentences(record: &RecordView) -> Vec<String> {
    let (scope, key) = (harmless(&record.scope), harmless(&record.key));
    let host = harmless(record.client.host());
    let by = format!("host {host} pid {}", record.client.pid().unwrap_or_default());
    let ago = span(age_ms(record));
    let answer = format!(
        "{}, {}",
        count(record.result_bytes as usize, "byte", "bytes"),
        match record.keep_left_ms {
            Some(left) => format!("kept for another {}", span(left)),
            None => "kept for ever".to_owned(),
        }
    );
    let first = match record.state {
        RecordState::Running => format!(
            "{key} in {scope} is running on {by}; its lease ends in {} unless renewed. Another run waits for it.",
            span(record.lease_left_ms)
        ),
        RecordState::Abandoned => format!(
            "{key} in {scope} is abandoned: {by} claimed it and wrote last {ago} ago, then ended or lost its claim. Its \
             work may have been done. The next run does it again."
        ),
        RecordState::Done => {
            format!("{key} in {scope} is done by {by}, {ago} ago ({answer}). Every run gets that answer.")
        }
        RecordState::Failed => {
            format!("{key} in {scope} failed on {by}, {ago} ago ({answer}). Every run gets that failure.")
        }
        RecordState::TooLarge => format!(
            "{key} in {scope} is done by {by}, {ago} ago. Its answer was too large to be stored, so every run fails \
             without doing the work."
        ),
        _ => format!("{key} in {scope} is {}.", record.state.code()),
    };
    let mut sentences = vec![first];
    if record.runs > 1 {
        sentences.push(format!("It was begun {} times: earlier runs ended without an answer.", record.runs));
    }
    if !record.fingerprint.is_empty() {
        sentences.push(format!("Fingerprint of its payload: {}", harmless(&record.fingerprint)));
    }
    sentences.push(format!("Fencing token of its claim: {}", record.fence));
    sentences
}

pub(super) async fn forget(url: Option<&str>, args: &ForgetArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let (scope, key) = (harmless(&args.scope), harmless(&args.key));
    let records = store.client.idempotency_records();
    let (code, text) = match records.forget(&args.scope, &args.key, args.even_if_running).await? {
        Forgotten::Forgotten => {
            (0, format!("Forgotten: the next run of {key} in {scope} does the work again."))
        }
        Forgotten::Absent => (exit::NOTHING_DONE, format!("Nothing to forget: {key} in {scope} is free.")),
        Forgotten::Running(record) => {
            let host = harmless(record.client.host());
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
