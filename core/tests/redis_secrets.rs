//! Passwords and owner tokens appear in nothing that a program prints or logs.

#![cfg(all(feature = "redis", unix))]

#[path = "it/contract/mod.rs"]
mod contract;

use std::fmt::{self, Debug, Write};
use std::sync::Mutex;

use contract::{block_on, eventually, millis};
use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const CANARY: &str = "canary 4f1d/6c:7e@9a%";
const CANARY_IN_URL: &str = "canary%204f1d%2F6c%3A7e%409a%25";

/// Everything that is logged, of every level.
static LOG: Mutex<String> = Mutex::new(String::new());

struct Recorder;

struct Fields;

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(LOG.lock().unwrap(), "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields);
        LOG.lock().unwrap().push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Said(String);

impl Said {
    fn debug(&mut self, what: impl Debug) {
        writeln!(self.0, "{what:?} {what:#?}").unwrap();
    }

    fn error(&mut self, error: polylatch::Error) {
        writeln!(self.0, "{error} {error:?} {error:#?} {:?}", error.context()).unwrap();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            writeln!(self.0, "{cause} {cause:?}").unwrap();
            source = cause.source();
        }
    }

    #[track_caller]
    fn contains_none_of(&self, secrets: &[&str]) {
        for secret in secrets {
            for (place, text) in [("output", &self.0), ("log", &*LOG.lock().unwrap())] {
                if let Some(at) = text.find(secret) {
                    let around = text[..at].rfind('\n').map_or(0, |start| start + 1);
                    panic!("a secret stands in the {place}: {}", &text[around..at + secret.len()]);
                }
            }
        }
    }
}

struct Shown<'a>(&'a str);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[test]
fn secrets_stay_out_of_errors_debug_output_and_logs() {
    tracing::subscriber::set_global_default(Recorder).unwrap();
    let server = RedisServer::builder()
        .password("right")
        .acl_user(&format!("\"alice\" on \">{CANARY}\" ~* &* +@all"))
        .acl_user(&format!("\"carol\" on \">{CANARY}\" ~none &* +@all"))
        .start();
    let place = server.address();
    let mut said = Said::default();

    // Errors of every stage: parsing, login, permission, conflict.
    for url in [
        format!("redis://:{CANARY_IN_URL}@{place}"),
        format!("redis://bob:{CANARY_IN_URL}@{place}"),
        format!("rediss://:{CANARY_IN_URL}@{place}?ca=/no/such/file"),
        format!("redis://:{CANARY_IN_URL}@localhost:port"),
        format!("redis://:{CANARY_IN_URL}@localhost/two"),
        format!("redis://:{CANARY_IN_URL}@localhost:1?nonsense=1"),
        format!("redis:/:{CANARY_IN_URL}@localhost"),
        format!("redis://:{CANARY_IN_URL}@localhost\n"),
        format!("reddis://:{CANARY_IN_URL}@localhost"),
        format!("redis://:{CANARY_IN_URL}%FF@localhost"),
        format!("redis://[::1:{CANARY_IN_URL}@localhost"),
    ] {
        let builder = Polylatch::builder().url(&url);
        said.debug(&builder);
        said.error(block_on(builder.connect()).expect_err(&url));
    }
    let carol = block_on(Polylatch::connect(&server.url_as("carol", CANARY))).unwrap();
    said.error(block_on(carol.lock("a").try_acquire()).unwrap_err());

    let client = block_on(Polylatch::connect(&server.url_as("alice", CANARY))).unwrap();
    said.debug(&client);
    said.debug(Shown(client.url_for_display()));
    assert!(client.url_for_display().contains("alice@"), "{}", client.url_for_display());
    let lock = client.lock("a").lease(millis(600)).wait(millis(300)).label("import");
    said.debug(&lock);
    let guard = block_on(lock.acquire()).unwrap();
    said.debug(&guard);
    let value = server.command(&["GET", "polylatch:{a}:lock"]);
    let owner = value.text().unwrap().split('|').next().unwrap().to_owned();
    assert_eq!(owner.len(), 32);
    said.error(block_on(lock.acquire()).unwrap_err());
    said.debug(block_on(client.inspect().list(&Default::default())).unwrap());

    // Failures on the way: renewals and polls without a server, a release that is too late.
    server.kill();
    eventually("the lease is lost", || !guard.is_held());
    said.error(guard.check().unwrap_err());
    said.error(block_on(guard.release()).unwrap_err());
    said.error(block_on(client.lock("b").wait(millis(300)).acquire()).unwrap_err());
    said.debug(&guard);
    block_on(client.close());

    assert!(LOG.lock().unwrap().contains("renewal failed"), "the log is recorded");
    said.contains_none_of(&[CANARY, CANARY_IN_URL, "4f1d", &owner, &owner[..8]]);
}
