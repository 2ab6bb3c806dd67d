//! What stands in a database, and who may do what with it, whichever the server is.

#![cfg(all(any(feature = "postgres", feature = "mysql"), unix))]

use std::sync::{Arc, Barrier};
use std::thread;

use crate::contract::{Store, block_on};
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{Effect, ErrorKind, FencingToken, Polylatch};

#[track_caller]
pub fn refused(url: &str, kind: ErrorKind, part: &str) {
    let Err(error) = block_on(Polylatch::connect(url)) else { panic!("{url} was accepted") };
    assert_eq!(error.kind(), kind, "{url}: {error:?}");
    assert!(error.to_string().contains(part), "{url} should be told {part:?}: {error}");
    assert_eq!(error.effect(), Effect::None, "{url}: {error:?}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}

/// A break of the lock `name`.
pub fn break_of(name: &str, expected: FencingToken) -> BreakRequest {
    BreakRequest { name: name.into(), expected, by: "operator".into(), reason: "test".into() }
}

/// `url` is that of an inspector of the store, once `grant` was called; `owners` is what it reads of the owner tokens.
pub fn an_inspector_reads_and_neither_breaks_nor_sees_owner_tokens(
    store: &impl Store,
    url: &str,
    grant: impl Fn(),
    clients: &str,
    owners: impl Fn(&str) -> Result<String, String>,
) {
    let client = store.connect();
    let guard = block_on(client.lock("a").label("mine").acquire()).unwrap();
    let reader = block_on(client.rw_lock("b").read().acquire()).unwrap();
    grant();
    let eyes = block_on(Polylatch::builder().url(url).connect_to_look()).unwrap();
    let seen = block_on(eyes.inspect().list(&Query::default())).unwrap();
    assert_eq!(seen.locks.len(), 2, "{seen:?}");
    assert_eq!(seen.locks[0].holders[0].label, "mine");
    let digests: Vec<_> = seen.locks.iter().map(|lock| &lock.holders[0].owner_digest).collect();
    assert!(digests[0].len() == 8 && digests[1].len() == 8 && digests[0] != digests[1], "{digests:?}");
    let error = block_on(eyes.inspect().break_lease(&break_of("a", guard.fencing_token()))).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::BackendRejected, Effect::None), "{error:?}");
    assert!(error.to_string().contains("rights of a client"), "{error}");
    guard.check().unwrap();
    // With an owner token it could act as the holder.
    for table in ["locks", "leases", "waiters", "audit", "idempotency"] {
        let error = owners(table).unwrap_err();
        assert!(error.contains("denied"), "{table}: {error}");
    }
    refused(url, ErrorKind::BackendRejected, clients);
    block_on(reader.release()).unwrap();
}

pub fn many_clients_make_the_tables_at_once(store: &impl Store) {
    let begin = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (url, begin) = (store.url("timeout=30s"), Arc::clone(&begin));
            thread::spawn(move || {
                begin.wait();
                block_on(Polylatch::connect(&url)).map(drop)
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}
