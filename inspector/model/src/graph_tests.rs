use super::super::NoHostFacts;
use super::super::fixture::{clients, held, lock, read_write, semaphore, snapshot, waiting, with};
use super::*;

fn rings(snapshot: &Snapshot) -> Vec<Cycle> {
    let connection = ConnectionId::new("here");
    cycles(&[Source { connection: &connection, snapshot, facts: &NoHostFacts }])
}

fn locks_of(cycle: &Cycle) -> Vec<&str> {
    cycle.waits.iter().map(|wait| wait.lock.as_str()).collect()
}

#[test]
fn two_clients_that_wait_for_each_other_are_one_ring() {
    let [a, b, c] = clients();
    let found = rings(&snapshot(vec![
        lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000), waiting(c, 9_000)]),
        lock("stock", vec![held(b, 4_500)], vec![waiting(a, 3_000)]),
    ]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(locks_of(&found[0]), ["orders", "stock"]);
    assert_eq!(found[0].age_ms(), 3_000);
    assert_eq!(found[0].cheapest().unwrap().lock, "stock");
    for (wait, next) in found[0].waits.iter().zip(found[0].waits.iter().cycle().skip(1)) {
        assert_eq!(wait.holder, next.waiter);
    }
}

#[test]
fn a_ring_of_three_is_found_once() {
    let [a, b, c] = clients();
    let found = rings(&snapshot(vec![
        lock("x", vec![held(a, 1)], vec![waiting(c, 1)]),
        lock("y", vec![held(b, 1)], vec![waiting(a, 1)]),
        lock("z", vec![held(c, 1)], vec![waiting(b, 1)]),
    ]));
    assert_eq!(found.len(), 1);
    assert_eq!(locks_of(&found[0]), ["x", "y", "z"]);
}

#[test]
fn a_lock_that_was_taken_while_its_client_waited_is_held_by_another_task_of_it() {
    let [a, b, _] = clients();
    let found = |taken_ms_ago: u64| {
        rings(&snapshot(vec![
            lock("carrier", vec![held(a, taken_ms_ago)], vec![waiting(b, 2_000)]),
            lock("stock", vec![held(b, 50_000)], vec![waiting(a, 40_000)]),
        ]))
    };
    assert_eq!(found(3_000), [], "a waits for stock in one task and goes on in another");
    assert_eq!(found(45_000).len(), 1);
    // The other ring of the same clients is one all the same.
    let both = rings(&snapshot(vec![
        lock("carrier", vec![held(a, 3_000)], vec![waiting(b, 2_000)]),
        lock("orders", vec![held(a, 50_000)], vec![waiting(b, 41_000)]),
        lock("stock", vec![held(b, 50_000)], vec![waiting(a, 40_000)]),
    ]));
    assert_eq!(both.len(), 1, "{both:?}");
    assert_eq!(locks_of(&both[0]), ["orders", "stock"]);
}

#[test]
fn queues_chains_and_a_client_that_waits_for_itself_are_no_rings() {
    let [a, b, c] = clients();
    let chain = snapshot(vec![
        lock("x", vec![held(a, 1)], vec![waiting(a, 1), waiting(b, 1)]),
        lock("y", vec![held(b, 1)], vec![waiting(c, 1)]),
    ]);
    assert_eq!(rings(&chain), []);
}

#[test]
fn a_writer_waits_for_every_reader() {
    let [a, b, c] = clients();
    let shared = lock("x", vec![held(c, 1), held(a, 1), held(a, 2)], vec![waiting(b, 1)]);
    let locks = vec![read_write(shared, "read", "write"), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
    let found = rings(&snapshot(locks));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].waits.iter().map(|wait| &wait.holder).collect::<Vec<_>>(), [a, b]);
}

#[test]
fn for_permits_that_others_can_give_back_nobody_waits_in_a_ring() {
    let [a, b, c] = clients();
    let number = |wanted: &[u32]| {
        let line = [b, c].map(|client| waiting(client, 1)).into_iter().take(wanted.len()).collect();
        let permits = lock("x", vec![held(a, 1), held(c, 1), held(a, 1)], line);
        let locks =
            vec![semaphore(permits, 5, &[1, 2, 1], wanted), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
        rings(&snapshot(locks)).len()
    };
    assert_eq!(number(&[3]), 0, "c can give them back");
    assert_eq!(number(&[4]), 1, "without a there are only 3");
    assert_eq!(number(&[2, 4]), 0, "who stands behind is not waited for");
}

#[test]
fn a_silent_waiter_no_longer_waits() {
    let [a, b, _] = clients();
    let mut gone = waiting(b, 1);
    gone.silent = true;
    let locks =
        vec![lock("x", vec![held(a, 1)], vec![gone]), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
    assert_eq!(rings(&snapshot(locks)), []);
}

#[test]
fn a_ring_through_two_stores_is_found_by_the_processes_in_it() {
    let [a, b, c, d] = clients();
    // a and c are one process, b and d another; each pair is connected to both stores.
    let same = |mut reading: Snapshot| {
        for client in &mut reading.clients {
            client.pid = if client.id == *a || client.id == *c { 100 } else { 200 };
        }
        reading
    };
    let one = same(snapshot(vec![lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000)])]));
    let two = same(snapshot(vec![lock("stock", vec![held(d, 5_000)], vec![waiting(c, 3_000)])]));
    let (first, second) = (ConnectionId::new("first"), ConnectionId::new("second"));
    let reading = |connection, snapshot| Source { connection, snapshot, facts: &NoHostFacts };
    let found = cycles(&[reading(&first, &one), reading(&second, &two)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(locks_of(&found[0]), ["orders", "stock"]);
    assert_eq!([&found[0].waits[0].connection, &found[0].waits[1].connection], [&first, &second]);
    assert_eq!(rings(&one), [], "one store alone shows no ring");
    // Two clients of one process in one store are tasks of their own.
    let both = same(snapshot(vec![
        lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000)]),
        lock("stock", vec![held(b, 5_000)], vec![waiting(c, 3_000)]),
    ]));
    assert_eq!(rings(&both), []);
}

#[test]
fn a_ring_in_which_a_lock_changed_hands_begins_again() {
    let [a, b, _] = clients();
    let reading = |taken_at_ms, owner: &str| {
        let mut orders = held(a, 5_000);
        orders.owner_digest = owner.into();
        let locks = vec![
            lock("orders", vec![orders], vec![waiting(b, 4_500)]),
            lock("stock", vec![held(b, 5_000)], vec![waiting(a, 4_500)]),
        ];
        with(snapshot(locks), |reading| reading.taken_at_ms = taken_at_ms)
    };
    let first = rings(&reading(1_000_000, "one"));
    assert!(!first[0].stands(), "seen once");
    let second = lasting(rings(&reading(1_000_300, "one")), &first);
    assert!(second[0].stands());
    let other = lasting(rings(&reading(1_000_600, "two")), &second);
    assert!(!other[0].stands(), "another acquisition holds it now");
}

#[test]
fn a_client_that_waits_for_several_locks_is_suspected_late_unless_its_labels_agree() {
    let [a, b, c] = clients();
    let certainty = |label: &str| {
        let mut wanted = waiting(a, 4_000);
        wanted.label = label.into();
        let found = rings(&snapshot(vec![
            lock("mail", vec![held(c, 5_000)], vec![waiting(a, 1_000)]),
            lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000)]),
            lock("stock", vec![held(b, 5_000)], vec![wanted]),
        ]));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].certainty()
    };
    assert_eq!(certainty("another job"), Certainty::Faint);
    assert_eq!(certainty("job"), Certainty::Likely);
}
