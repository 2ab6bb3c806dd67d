//! Several leases of one name, in one file and by several clients.

use super::sharing::within;
use super::{Client, SOON, WAIT, held};
use crate::backend::{Answer, Ask, Conversion, Released, RenewItem, Renewal};
use crate::mode::{Kind, Mode};
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest, Query};

#[test]
fn readers_let_in_together_by_another_client_are_all_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two, three) = (Client::open(&path), Client::open(&path), Client::open(&path));
    for _ in 0..10 {
        let writer = one.wants("orders", Mode::Write);
        let wrote = held(one.ask(&writer, Ask::Try).unwrap());
        let line: Vec<_> = [&two, &three, &two, &two]
            .into_iter()
            .map(|client| {
                let reader = client.wants("orders", Mode::Read);
                let place = client.wakeups.register(reader.owner);
                let Answer::Wait { answer, .. } = client.ask(&reader, WAIT).unwrap() else { panic!() };
                (client, reader, place, answer)
            })
            .collect();
        assert_eq!(pollster::block_on(one.backend.release(&writer, wrote)).unwrap(), Released::Released);
        let mut last = wrote.get();
        for (client, reader, place, answer) in line {
            assert!(within(SOON, place.changed()), "the grant is noticed");
            let fence = place.take().grant.expect("as a grant");
            assert!(fence > answer.fence && fence > last, "in the order of the line");
            last = fence;
            assert_eq!(held(client.ask(&reader, WAIT).unwrap()).get(), fence);
            let released = client.backend.release(&reader, FencingToken::new(fence));
            assert_eq!(pollster::block_on(released).unwrap(), Released::Released);
        }
    }
}

#[test]
fn several_leases_of_one_client_are_renewed_converted_and_broken_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two) = (Client::open(&path), Client::open(&path));
    let read = || {
        let reader = one.wants("orders", Mode::Read);
        let fence = held(one.ask(&reader, Ask::Try).unwrap());
        (reader, fence)
    };
    let (first, second) = (read(), read());
    let convert =
        |(reader, fence): &(_, _), to| pollster::block_on(one.backend.convert(reader, *fence, to)).unwrap();
    assert_eq!(convert(&first, Mode::Write), Conversion::Refused);
    let order = BreakRequest {
        name: "orders".into(),
        expected: first.1,
        by: "ops@desk".into(),
        reason: "stuck".into(),
    };
    let broken = pollster::block_on(two.backend.break_lease(&order)).unwrap();
    assert_eq!(broken, BreakOutcome::Broken { holder: one.id.clone(), next: None });
    let items = [&first, &second].map(|(reader, fence)| RenewItem {
        contender: reader.clone(),
        fence: *fence,
        lease: reader.lease,
        length: reader.lease,
        renewals: 1,
    });
    let renewed = pollster::block_on(one.backend.renew(items.into())).unwrap();
    assert_eq!(renewed, [Renewal::NotYours, Renewal::Extended]);
    assert_eq!(convert(&first, Mode::Write), Conversion::NotHeld);
    let Conversion::Done { fence } = convert(&second, Mode::Write) else { panic!("the only reader") };
    assert!(fence > second.1);
    assert_eq!(pollster::block_on(one.backend.release(&second.0, second.1)).unwrap(), Released::NotHeld);
    assert_eq!(pollster::block_on(one.backend.release(&second.0, fence)).unwrap(), Released::Released);
}

#[test]
fn a_name_in_use_as_another_kind_is_told_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (one, two) = (Client::open(&path), Client::open(&path));
    let permits = |count| Mode::Permits { count, capacity: 3 };
    let semaphore = one.wants("orders", permits(2));
    held(one.ask(&semaphore, Ask::Try).unwrap());
    let before = pollster::block_on(one.backend.snapshot(&Query::default())).unwrap().locks;
    let present = Answer::OtherKind { present: Kind::Semaphore { capacity: 3 } };
    for mode in [Mode::Mutex, Mode::Read, Mode::Write, Mode::Permits { count: 1, capacity: 4 }] {
        assert_eq!(two.ask(&two.wants("orders", mode), WAIT).unwrap(), present);
    }
    let after = pollster::block_on(one.backend.snapshot(&Query::default())).unwrap().locks;
    assert_eq!((after.len(), after[0].holders.len(), after[0].waiters.len()), (1, 1, 0));
    assert_eq!(after[0].holders[0].owner_digest, before[0].holders[0].owner_digest);
    held(two.ask(&two.wants("orders", permits(1)), Ask::Try).unwrap());
}

#[test]
fn what_cannot_be_is_not_accepted_by_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let client = Client::open(&path);
    client.hold("orders");
    let conn = rusqlite::Connection::open(&path).unwrap();
    for sql in [
        "UPDATE lease SET mode = 'shared'",
        "UPDATE lease SET mode = 'permits'",
        "UPDATE lease SET capacity = 3",
        "UPDATE lease SET permits = 2",
        "UPDATE lease SET permits = 4, capacity = 3, mode = 'permits'",
    ] {
        let error = conn.execute_batch(sql).unwrap_err();
        assert!(error.to_string().contains("CHECK"), "{sql}: {error}");
    }
    conn.execute_batch("PRAGMA ignore_check_constraints = 1; UPDATE lease SET mode = 'shared'").unwrap();
    // Not understood, so it excludes.
    assert!(matches!(client.ask(&client.contender("orders"), Ask::Try), Ok(Answer::Wait { .. })));
}
