//! Shared locks: readers and writers, permits, several locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use polylatch::inspect::{BreakOutcome, BreakRequest};
use polylatch::{Converted, ErrorKind, Guard, LostReason, Polylatch};

use super::{Store, block_on, eventually, eventually_within, millis, poll_at_most, seen, stands_in_line};

fn read(client: &Polylatch) -> Option<Guard> {
    block_on(client.rw_lock("a").read().try_acquire()).unwrap()
}

fn write(client: &Polylatch) -> Option<Guard> {
    block_on(client.rw_lock("a").write().try_acquire()).unwrap()
}

pub fn readers_share_and_a_writer_is_alone(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let first = read(&one).unwrap();
    let second = read(&two).unwrap();
    let third = read(&one).expect("a client may read twice");
    assert!(first.fencing_token() < second.fencing_token() && second.fencing_token() < third.fencing_token());
    assert!(write(&two).is_none());
    for reader in [&first, &second, &third] {
        block_on(reader.release()).unwrap();
    }
    let writer = write(&two).expect("all readers are gone");
    assert!(writer.fencing_token() > third.fencing_token());
    assert!(read(&one).is_none() && write(&one).is_none());
    block_on(writer.release()).unwrap();
    assert!(read(&one).is_some());
}

pub fn one_readers_end_does_not_touch_another(store: &impl Store) {
    let client = store.connect();
    let short = client.rw_lock("a").read().lease(store.time(250)).renew(false);
    let gone = block_on(short.acquire()).unwrap();
    let kept = block_on(client.rw_lock("a").read().lease(store.safe()).acquire()).unwrap();
    assert_eq!(block_on(gone.lost()), LostReason::Expired);
    thread::sleep(store.time(800));
    kept.check().unwrap();
    assert_eq!(seen(&client, "a").holders.len(), 1);
    assert!(write(&client).is_none());
    block_on(kept.release()).unwrap();
    assert!(write(&client).is_some());
}

pub fn a_reader_that_comes_after_a_waiting_writer_enters_after_it(store: &impl Store) {
    let (holder, others) = (store.connect(), store.connect());
    let first = read(&holder).unwrap();
    let lock = others.rw_lock("a").write().wait(millis(10_000));
    let writer = thread::spawn(move || {
        let guard = block_on(lock.acquire()).unwrap();
        let token = guard.fencing_token();
        block_on(guard.release()).unwrap();
        token
    });
    eventually("the writer waits", || seen(&holder, "a").waiters.len() == 1);
    assert!(read(&others).is_none(), "a stream of readers would starve the writer");
    let lock = others.rw_lock("a").read().wait(millis(10_000));
    let late = thread::spawn(move || block_on(lock.acquire()).unwrap().fencing_token());
    eventually("the late reader waits", || seen(&holder, "a").waiters.len() == 2);
    block_on(first.release()).unwrap();
    let (wrote, read) = (writer.join().unwrap(), late.join().unwrap());
    assert!(first.fencing_token() < wrote && wrote < read);
}

pub fn readers_that_stand_together_enter_together(store: &impl Store) {
    let (holder, others) = (store.connect(), store.connect());
    let writer = write(&holder).unwrap();
    let threads: Vec<_> = (0..5)
        .map(|number| {
            let lock = others.rw_lock("a").read().wait(millis(10_000));
            let thread = thread::spawn(move || block_on(lock.acquire()).unwrap());
            eventually("it waits", || seen(&holder, "a").waiters.len() == number + 1);
            thread
        })
        .collect();
    let started = Instant::now();
    block_on(writer.release()).unwrap();
    let readers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(started.elapsed() < store.time(700), "they entered one by one: {:?}", started.elapsed());
    assert_eq!(seen(&holder, "a").holders.len(), 5);
    for reader in &readers {
        reader.check().unwrap();
    }
}

pub fn permits_are_granted_up_to_the_capacity(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let of = |client: &Polylatch, count| block_on(client.semaphore("a", 5).try_acquire(count)).unwrap();
    let two_of_five = of(&one, 2).unwrap();
    let four = of(&two, 2).unwrap();
    assert!(of(&one, 2).is_none(), "one is left");
    let five = of(&one, 1).unwrap();
    assert!(of(&two, 1).is_none());
    let view = seen(&one, "a");
    assert_eq!((&*view.mode, view.capacity), ("semaphore", Some(5)));
    assert_eq!(view.holders.iter().map(|holder| holder.permits).sum::<u32>(), 5);
    block_on(four.release()).unwrap();
    assert!(of(&one, 3).is_none());
    let again = of(&one, 2).unwrap();
    assert!(again.fencing_token() > five.fencing_token());
    drop((two_of_five, five, again));
}

pub fn permits_of_a_dead_holder_come_back(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let lock = one.semaphore("a", 2).permits(2).lease(store.time(300)).renew(false);
    std::mem::forget(block_on(lock.acquire()).unwrap());
    let kept = two.semaphore("a", 2).permits(1).wait(store.time(5_000));
    let guard = block_on(kept.acquire()).unwrap();
    assert!(guard.is_held());
}

pub fn a_large_request_is_not_overtaken_by_small_ones(store: &impl Store) {
    let (holder, others) = (store.connect(), store.connect());
    let held = block_on(holder.semaphore("a", 3).acquire(2)).unwrap();
    let lock = others.semaphore("a", 3).permits(3).wait(millis(10_000));
    let large = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&holder, "a").waiters.len() == 1);
    assert!(
        block_on(others.semaphore("a", 3).try_acquire(1)).unwrap().is_none(),
        "one permit is free, but it is kept for the one in line"
    );
    block_on(held.release()).unwrap();
    large.join().unwrap().check().unwrap();
}

pub fn a_writer_that_gives_up_lets_the_readers_behind_it_in(store: &impl Store) {
    let (holder, others) = (store.connect(), store.connect());
    let first = read(&holder).unwrap();
    let giving_up = others.rw_lock("a").write().wait(store.time(400));
    let writer = thread::spawn(move || block_on(giving_up.acquire()).unwrap_err());
    eventually("the writer waits", || seen(&holder, "a").waiters.len() == 1);
    let lock = others.rw_lock("a").read().wait(millis(10_000));
    let reader = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("the reader waits", || seen(&holder, "a").waiters.len() == 2);
    assert_eq!(writer.join().unwrap().kind(), ErrorKind::WaitTimeout);
    let started = Instant::now();
    reader.join().unwrap().check().unwrap();
    assert!(started.elapsed() < store.time(700), "nobody let it in: {:?}", started.elapsed());
    first.check().unwrap();
}

pub fn mixing_kinds_or_capacities_on_one_name_is_refused(store: &impl Store) {
    let client = store.connect();
    let conflict = |result: polylatch::Result<Option<Guard>>, part: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let mutex = block_on(client.lock("a").acquire()).unwrap();
    conflict(block_on(client.rw_lock("a").read().try_acquire()), "a mutex");
    conflict(block_on(client.semaphore("a", 2).try_acquire(1)), "a mutex");
    mutex.check().unwrap();
    block_on(mutex.release()).unwrap();

    let reader = read(&client).unwrap();
    conflict(block_on(client.lock("a").try_acquire()), "a read-write lock");
    conflict(block_on(client.semaphore("a", 2).try_acquire(1)), "a read-write lock");
    reader.check().unwrap();
    block_on(reader.release()).unwrap();

    let permit = block_on(client.semaphore("a", 2).acquire(1)).unwrap();
    conflict(block_on(client.semaphore("a", 3).try_acquire(1)), "a semaphore of 2 permits");
    conflict(block_on(client.lock("a").try_acquire()), "a semaphore of 2 permits");
    permit.check().unwrap();
    block_on(permit.release()).unwrap();
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_some(), "free again, it may be anything");
}

pub fn impossible_permits_are_errors_before_anything_is_sent(store: &impl Store) {
    let client = store.connect();
    for (count, capacity, part) in
        [(1, 0, "1 to 1000"), (1, 1001, "1 to 1000"), (0, 5, "0 permits"), (6, 5, "6 permits")]
    {
        let error = block_on(client.semaphore("a", capacity).try_acquire(count)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
    }
}

pub fn a_writer_steps_down_without_letting_a_writer_in(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let writer = write(&one).unwrap();
    let waiting = two.rw_lock("a").read().wait(millis(10_000));
    let waiting = thread::spawn(move || block_on(waiting.acquire()).unwrap());
    eventually("a reader waits", || seen(&one, "a").waiters.len() == 1);
    let token = writer.fencing_token();
    let reader = block_on(writer.downgrade()).unwrap();
    assert_eq!((reader.fencing_token(), reader.mode().code()), (token, "read"));
    let other = waiting.join().unwrap();
    assert!(write(&two).is_none());
    assert_eq!(seen(&one, "a").holders.len(), 2);
    block_on(reader.release()).unwrap();
    block_on(other.release()).unwrap();
    assert!(write(&two).is_some());
}

pub fn only_the_only_reader_steps_up(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let (mine, other) = (read(&one).unwrap(), read(&two).unwrap());
    let other_token = other.fencing_token();
    let Converted::Refused(mine) = block_on(mine.try_upgrade()).unwrap() else { panic!("two readers") };
    let Converted::Refused(other) = block_on(other.try_upgrade()).unwrap() else { panic!("two readers") };
    mine.check().unwrap();
    block_on(other.release()).unwrap();
    let Converted::Done(writer) = block_on(mine.try_upgrade()).unwrap() else { panic!("the only reader") };
    assert!(writer.fencing_token() > other_token, "newer than every reader before");
    assert_eq!(writer.mode().code(), "write");
    assert!(read(&two).is_none());
    block_on(writer.release()).unwrap();
    assert!(seen(&one, "a").holders.is_empty());
    let mutex = block_on(one.lock("b").acquire()).unwrap();
    assert_eq!(block_on(mutex.try_upgrade()).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

pub fn a_converted_guard_is_renewed(store: &impl Store) {
    let client = store.connect();
    let writer = block_on(client.rw_lock("a").write().lease(store.safe()).acquire()).unwrap();
    let reader = block_on(writer.downgrade()).unwrap();
    let before = reader.renewals();
    eventually("the reader is renewed", || reader.renewals() > before);
    reader.check().unwrap();
    let Converted::Done(writer) = block_on(reader.try_upgrade()).unwrap() else { panic!("the only reader") };
    let before = writer.renewals();
    eventually("the writer is renewed", || writer.renewals() > before);
    writer.check().unwrap();
    block_on(writer.release()).unwrap();
}

pub fn a_conversion_cancelled_at_any_point_leaves_nothing(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let cancel = |times, upgrades: bool| {
        let lock = client.rw_lock("a");
        let lock = if upgrades { lock.read() } else { lock.write() };
        let guard = block_on(lock.lease(millis(60_000)).acquire()).unwrap();
        let lost = guard.lost();
        if upgrades {
            drop(poll_at_most(times, guard.try_upgrade()));
        } else {
            drop(poll_at_most(times, guard.downgrade()));
        }
        // Far less than what is left of the lease.
        let next = other.rw_lock("a").write().wait(millis(20_000));
        let next = block_on(next.acquire()).unwrap_or_else(|error| panic!("after {times} polls: {error}"));
        assert!(poll_at_most(1, lost).is_none(), "giving a lock up is no loss");
        block_on(next.release()).unwrap();
    };
    for times in 1..=5 {
        for upgrades in [true, false] {
            for _ in 0..3 {
                cancel(times, upgrades);
            }
        }
    }
}

pub fn an_owner_id_keeps_its_lock_through_a_conversion(store: &impl Store) {
    let client = store.connect();
    let rw = client.rw_lock("a");
    let reader = block_on(rw.read().owner("job-7").acquire()).unwrap();
    let Converted::Done(writer) = block_on(reader.try_upgrade()).unwrap() else { panic!("the only reader") };
    let again = block_on(rw.write().owner("job-7").try_acquire()).unwrap().expect("its own write lock");
    assert_eq!(again.fencing_token(), writer.fencing_token());
    block_on(again.release()).unwrap();
    writer.check().unwrap();

    let reader = block_on(writer.downgrade()).unwrap();
    let again = block_on(rw.read().owner("job-7").try_acquire()).unwrap().expect("it reads");
    assert_eq!(again.fencing_token(), reader.fencing_token());
    assert_eq!(seen(&client, "a").holders.len(), 1, "one lease, entered twice");
    block_on(again.release()).unwrap();

    // One that queues already, behind the same owner id's reading, enters as well.
    let writing = rw.write().owner("job-7").wait(millis(30_000));
    let mut waiting = std::pin::pin!(writing.acquire());
    stands_in_line(waiting.as_mut(), &client, "a", 1);
    let Converted::Done(writer) = block_on(reader.try_upgrade()).unwrap() else { panic!("the only reader") };
    let again = block_on(waiting).unwrap();
    assert_eq!(again.fencing_token(), writer.fencing_token());
    eventually("its place in the queue is given up", || seen(&client, "a").waiters.is_empty());
    block_on(writer.release()).unwrap();
    again.check().unwrap();
    block_on(again.release()).unwrap();
    assert!(seen(&client, "a").holders.is_empty());
}

pub fn one_holder_of_a_shared_lock_can_be_broken(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let (stuck, fine) = (read(&one).unwrap(), read(&two).unwrap());
    let request = BreakRequest {
        name: "a".into(),
        expected: stuck.fencing_token(),
        by: "ann@desk".into(),
        reason: "reader is stuck".into(),
    };
    let outcome = block_on(two.inspect().break_lease(&request)).unwrap();
    assert_eq!(outcome, BreakOutcome::Broken { holder: one.id().clone(), next: None });
    let again = block_on(two.inspect().break_lease(&request)).unwrap();
    assert_eq!(again, BreakOutcome::ChangedHands { present: fine.fencing_token() });
    fine.check().unwrap();
    eventually("the broken reader is gone", || seen(&two, "a").holders.len() == 1);
    drop(stuck);
}

pub fn shared_holders_and_waiters_are_visible(store: &impl Store) {
    let client = store.connect();
    let reader = block_on(client.rw_lock("a").read().label("report").acquire()).unwrap();
    let lock = client.rw_lock("a").write().label("import").wait(millis(10_000));
    let mut waiting = std::pin::pin!(lock.acquire());
    stands_in_line(waiting.as_mut(), &client, "a", 1);
    let view = seen(&client, "a");
    assert_eq!((&*view.mode, view.capacity), ("rw", None));
    let holder = &view.holders[0];
    assert_eq!((&*holder.mode, holder.label.as_str(), holder.permits), ("read", "report", 1));
    assert_eq!(holder.fencing_token, Some(reader.fencing_token()));
    let waiter = &view.waiters[0];
    assert_eq!((&*waiter.mode, waiter.label.as_str(), waiter.position), ("write", "import", 0));
}

pub fn readers_never_meet_a_writer_under_load(store: &impl Store) {
    let inside = Arc::new(AtomicI64::new(0));
    let clients = [store.connect(), store.connect()];
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let inside = Arc::clone(&inside);
            let lock = clients[number % 2].rw_lock("a");
            thread::spawn(move || {
                for round in 0..25 {
                    let writes = (number + round) % 4 == 0;
                    let lock = if writes { lock.write() } else { lock.read() };
                    let guard = block_on(lock.wait(millis(30_000)).acquire()).unwrap();
                    let (enter, leave) = if writes { (-1_000, 1_000) } else { (1, -1) };
                    let before = inside.fetch_add(enter, Ordering::SeqCst);
                    assert!(if writes { before == 0 } else { before >= 0 }, "met at {before}");
                    inside.fetch_add(leave, Ordering::SeqCst);
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

pub fn live_permits_never_exceed_the_capacity_under_load(store: &impl Store) {
    let taken = Arc::new(AtomicU32::new(0));
    let clients = [store.connect(), store.connect()];
    let threads: Vec<_> = (0..8)
        .map(|number: usize| {
            let taken = Arc::clone(&taken);
            let semaphore = clients[number % 2].semaphore("a", 4);
            thread::spawn(move || {
                for round in 0..25 {
                    let count = 1 + (number as u32 + round) % 3;
                    let guard = block_on(semaphore.permits(count).wait(millis(30_000)).acquire()).unwrap();
                    assert!(taken.fetch_add(count, Ordering::SeqCst) + count <= 4);
                    taken.fetch_sub(count, Ordering::SeqCst);
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Many readers and 4 writers. However often the readers come, a writer in the queue lets at most
/// those in who came before it: one section of each reader.
pub fn a_writer_waits_for_the_readers_before_it_and_no_others(store: &impl Store) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 3;
    let crowd = store.crowd(64);
    let clients = [store.connect(), store.connect()];
    let inside = Arc::new(AtomicI64::new(0));
    let writing_goes_on = Arc::new(AtomicU32::new(WRITERS as u32));
    // How many acquisitions each reader has begun.
    let begun: Arc<Vec<AtomicU32>> = Arc::new((0..crowd).map(|_| AtomicU32::new(0)).collect());
    let readers: Vec<_> = (0..crowd)
        .map(|number| {
            let (inside, begun) = (Arc::clone(&inside), Arc::clone(&begun));
            let (writing_goes_on, lock) =
                (Arc::clone(&writing_goes_on), clients[number % 2].rw_lock("a").read());
            thread::spawn(move || {
                let mut tokens = Vec::new();
                while writing_goes_on.load(Ordering::SeqCst) > 0 {
                    begun[number].fetch_add(1, Ordering::SeqCst);
                    let guard = block_on(lock.clone().wait(millis(60_000)).acquire()).unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0, "a reader met a writer");
                    tokens.push(guard.fencing_token());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    block_on(guard.release()).unwrap();
                }
                tokens
            })
        })
        .collect();
    // As long as each of them may wait: on a slow store they get in each other's way.
    eventually_within("every reader has read", millis(60_000), || {
        begun.iter().all(|count| count.load(Ordering::SeqCst) > 1)
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (inside, begun) = (Arc::clone(&inside), Arc::clone(&begun));
            let (writing_goes_on, client) = (Arc::clone(&writing_goes_on), clients[number % 2].clone());
            thread::spawn(move || {
                let mut waits = Vec::new();
                for round in 0..ROUNDS {
                    let label = format!("writer {number}.{round}");
                    let lock = client.rw_lock("a").write().label(&label).wait(millis(60_000));
                    let entering = thread::spawn(move || block_on(lock.acquire()).unwrap());
                    eventually("it stands in line or is in", || {
                        let view = seen(&client, "a");
                        view.waiters.iter().any(|waiter| waiter.label == label)
                            || view.holders.iter().any(|holder| holder.label == label)
                    });
                    // Whatever a reader begins from now on comes after it.
                    let before: Vec<_> = begun.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                    let guard = entering.join().unwrap();
                    assert_eq!(inside.fetch_sub(1_000, Ordering::SeqCst), 0, "a writer was not alone");
                    waits.push((guard.fencing_token(), before));
                    inside.fetch_add(1_000, Ordering::SeqCst);
                    block_on(guard.release()).unwrap();
                }
                writing_goes_on.fetch_sub(1, Ordering::SeqCst);
                waits
            })
        })
        .collect();
    let waits: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    let sections: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    for (writer, before) in &waits {
        for (tokens, begun) in sections.iter().zip(before) {
            let late = tokens.iter().skip(*begun as usize).find(|token| *token < writer);
            assert_eq!(late, None, "a reader that came later entered before the writer {writer}");
        }
    }
    assert_eq!(waits.len(), WRITERS * ROUNDS);
}
