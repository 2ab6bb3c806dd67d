use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{Detail, Snapshot, Trouble, TroubleKind, VoteView};

use super::super::fixture::{Host, clients, held, lock, read_write, semaphore, snapshot, waiting, with};
use super::super::{HostFacts, Process};
use super::*;

/// What is found about the first lock.
fn about(locks: Vec<LockView>, facts: &Host) -> Vec<Finding> {
    about_clients("worker", locks, facts)
}

/// The same, where all clients are this program. The store was read before, and showed the same.
fn about_clients(program: &str, locks: Vec<LockView>, facts: &Host) -> Vec<Finding> {
    let mut reading = snapshot(locks);
    reading.clients.iter_mut().for_each(|client| client.program = program.into());
    let before = with(reading.clone(), |before| before.taken_at_ms -= 300);
    findings(&reading.locks[0], &Evidence::new(&reading, facts, "polylatch").since(&before))
}

fn rules(locks: Vec<LockView>, facts: &Host) -> Vec<Rule> {
    about(locks, facts).into_iter().map(|finding| finding.rule).collect()
}

fn host_where(pid: u32, process: Process) -> Host {
    Host(HashMap::from([(pid, process)]), HashMap::new())
}

/// A lease of 15 s whose latest renewal is `ago_ms` old.
fn renewed(client: &ClientId, ago_ms: u64) -> HolderView {
    let mut holder = held(client, 60_000);
    holder.renewals = Some(12);
    holder.renewed_ago_ms = Some(ago_ms);
    holder.remaining_ms = Some(15_000 - ago_ms);
    holder
}

#[test]
fn a_healthy_lock_is_said_to_be_healthy() {
    let [a, b] = clients();
    let found = about(vec![lock("x", vec![renewed(a, 1_000)], vec![waiting(b, 4_100)])], &Host::default());
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].rule, found[0].severity), (Rule::Legit, Severity::Fine));
    assert_eq!(
        found[0].sentence,
        "Held for 1 min 0 s by web-1 pid 100 (worker), renewed 1.0 s ago. 1 client waits, the first for 4.1 s. \
         Nothing wrong was found."
    );
    assert_eq!(rules(vec![lock("x", vec![], vec![])], &Host::default()), [Rule::Free]);
}

#[test]
fn a_shared_lock_is_told_with_how_and_by_how_many() {
    let [a, b, c] = clients();
    let sentence = |lock| about(vec![lock], &Host::default())[0].sentence.clone();
    let shared = lock("x", vec![renewed(a, 1_000), renewed(b, 500)], vec![waiting(c, 4_100)]);
    assert_eq!(
        sentence(read_write(shared.clone(), "read", "write")),
        "Held for reading by web-1 pid 100 (worker) for 1 min 0 s, renewed 1.0 s ago, and by 1 other. \
         1 client waits, the first to write for 4.1 s. Nothing wrong was found."
    );
    assert!(
        sentence(semaphore(shared.clone(), 5, &[2, 1], &[3]))
            .starts_with("3 of 5 permits held by web-1 pid 100")
    );
    // Nobody is free while another still holds.
    let half = lock("x", vec![renewed(a, 12_000), renewed(b, 500)], vec![]);
    let told = sentence(read_write(half, "read", ""));
    assert!(told.ends_with("Its lease ends in 3.0 s unless it renews."), "{told}");
}

#[test]
fn who_waits_beside_holders_that_would_let_it_in_is_told() {
    let [a, b, c] = clients();
    let shared = || lock("x", vec![renewed(a, 1_000), renewed(b, 500)], vec![waiting(c, 4_100)]);
    let rule = |lock| rules(vec![lock], &Host::default())[0];
    assert_eq!(rule(read_write(shared(), "read", "read")), Rule::LostWake);
    assert_eq!(rule(read_write(shared(), "read", "write")), Rule::Legit);
    assert_eq!(rule(semaphore(shared(), 5, &[2, 1], &[2])), Rule::LostWake);
    assert_eq!(rule(semaphore(shared(), 5, &[2, 1], &[3])), Rule::Legit);
}

#[test]
fn missing_renewals_are_told_by_how_many_are_missing() {
    let [a] = clients();
    let rule = |ago_ms| rules(vec![lock("x", vec![renewed(a, ago_ms)], vec![])], &Host::default())[0];
    assert_eq!(rule(7_400), Rule::Legit);
    assert_eq!(rule(7_600), Rule::LateRenewal);
    assert_eq!(rule(9_900), Rule::LateRenewal);
    assert_eq!(rule(10_100), Rule::RenewalsStopped);
    let found = about(vec![lock("x y", vec![renewed(a, 12_000)], vec![])], &Host::default());
    assert!(found[0].sentence.contains("has not renewed for 12.0 s, one was due every 5.0 s"), "{found:?}");
    assert!(found[0].sentence.ends_with("Free in 3.0 s unless it renews."), "{found:?}");
    let command = "polylatch break 'x y' --token 7 --reason '...'";
    assert_eq!(found[0].next, [Next::Do("wait 3.0 s".into()), Next::Run(command.into())]);
}

#[test]
fn a_short_first_lease_is_not_late_while_its_own_term_lasts() {
    let [a] = clients();
    let first = |held_ms| {
        let mut holder = held(a, held_ms);
        holder.remaining_ms = Some(3_000 - held_ms);
        vec![lock("x", vec![holder], vec![])]
    };
    assert_eq!(rules(first(1_400), &Host::default()), [Rule::Legit]);
    assert_eq!(rules(first(1_600), &Host::default()), [Rule::LateRenewal]);
    assert_eq!(rules(first(2_100), &Host::default()), [Rule::RenewalsStopped]);
}

#[test]
fn a_stopped_holder_is_named_with_the_way_to_resume_it() {
    let [a] = clients();
    let stopped = Process::Present { stopped: true, started_at_ms: Some(500_000) };
    let found = about(vec![lock("x", vec![renewed(a, 2_000)], vec![])], &host_where(100, stopped));
    assert_eq!((found[0].rule, found[0].severity), (Rule::Stopped, Severity::Problem));
    assert_eq!(found[0].next[0], Next::Run("kill -CONT 100".into()));
}

#[test]
fn a_process_that_is_gone_is_a_warning_only_when_its_beats_are_gone_too() {
    let [a] = clients();
    let gone = host_where(100, Process::Gone);
    let severity = |ago_ms| {
        let found = about(vec![lock("x", vec![renewed(a, ago_ms)], vec![])], &gone);
        assert_eq!(found[0].rule, Rule::HolderGone);
        found[0].severity
    };
    assert_eq!(severity(1_000), Severity::Notice);
    assert_eq!(severity(8_000), Severity::Warning);
}

#[test]
fn a_reused_process_number_is_not_the_holder() {
    let [a] = clients();
    let locks = || vec![lock("x", vec![renewed(a, 8_000)], vec![])];
    let started = |at| Process::Present { stopped: true, started_at_ms: Some(at) };
    assert_eq!(rules(locks(), &host_where(100, started(900_000))), [Rule::HolderGone]);
    assert_eq!(rules(locks(), &host_where(100, started(501_000))), [Rule::Stopped]);
}

#[test]
fn processes_of_other_hosts_are_never_judged() {
    let [a] = clients();
    let mut reading = snapshot(vec![lock("x", vec![renewed(a, 1_000)], vec![])]);
    for client in &mut reading.clients {
        client.host = "elsewhere".into();
    }
    let gone = host_where(100, Process::Gone);
    let found = findings(&reading.locks[0], &Evidence::new(&reading, &gone, "polylatch"));
    assert_eq!(found[0].rule, Rule::Legit);
}

#[test]
fn a_lock_without_expiry_needs_its_program() {
    let [a] = clients();
    let mut ours = renewed(a, 1_000);
    ours.remaining_ms = None;
    let gone = host_where(100, Process::Gone);
    assert_eq!(rules(vec![lock("x", vec![ours.clone()], vec![])], &gone), [Rule::NoExpiryDead]);

    let mut theirs = ours;
    theirs.client = None;
    theirs.fencing_token = None;
    let mut foreign = lock("x", vec![theirs.clone()], vec![]);
    foreign.mode = "foreign".into();
    let found = about(vec![foreign.clone()], &Host::default());
    assert_eq!((found[0].rule, found[0].severity), (Rule::NoExpiry, Severity::Problem));
    foreign.holders[0].remaining_ms = Some(4_000);
    let found = about(vec![foreign], &Host::default());
    assert_eq!((found[0].rule, found[0].severity), (Rule::Foreign, Severity::Notice));
    assert!(found[0].sentence.contains("Free in 4.0 s"), "{found:?}");
}

#[test]
fn a_lasting_ring_may_be_a_deadlock_and_a_passing_one_is_not_told() {
    let [a, b] = clients();
    let ring = |waited_ms| {
        vec![
            lock("orders", vec![renewed(a, 100)], vec![waiting(b, waited_ms)]),
            lock("stock", vec![held(b, 5_000)], vec![waiting(a, waited_ms)]),
        ]
    };
    assert_eq!(rules(ring(3_900), &Host::default()), [Rule::Legit]);
    let found = about(ring(4_000), &Host::default());
    assert_eq!((found[0].rule, found[0].severity), (Rule::MayDeadlock, Severity::Warning));
    assert!(
        found[0].sentence.contains(
            "web-1 pid 200 (worker) waits for orders, held by web-1 pid 100 (worker); \
             web-1 pid 100 (worker) waits for stock, held by web-1 pid 200 (worker)"
        ),
        "{found:?}"
    );
    // Nothing is to be broken on suspicion.
    assert!(found[0].next.iter().all(|next| matches!(next, Next::Do(_))), "{found:?}");
    // One snapshot alone says nothing.
    let reading = snapshot(ring(4_000));
    let once = findings(&reading.locks[0], &Evidence::new(&reading, &Host::default(), "polylatch"));
    assert_eq!(once[0].rule, Rule::Legit);
}

#[test]
fn a_command_that_waits_for_a_lock_of_the_program_that_started_it_is_a_deadlock() {
    let [a, b, c] = clients();
    // 100 started 150, which started 200: the shell between two nested runs is no client.
    let family = Host(HashMap::new(), HashMap::from([(150, 100), (200, 150)]));
    let alone = || vec![lock("orders", vec![renewed(a, 100)], vec![waiting(b, 4_000)])];
    assert_eq!(rules(alone(), &Host::default()), [Rule::Legit]);
    let found = about(alone(), &family);
    assert_eq!(found[0].rule, Rule::MayDeadlock, "another task may have started it");
    assert!(
        found[0].sentence.contains(
            "web-1 pid 100 (worker) started web-1 pid 200 (worker), which waits for orders, held by web-1 pid 100"
        ),
        "{found:?}"
    );
    let found = about_clients("sh via polylatch", alone(), &family);
    assert_eq!((found[0].rule, found[0].severity), (Rule::Deadlock, Severity::Problem));
    let command = "polylatch break orders --token 7 --reason 'deadlock: taken last'";
    assert_eq!(found[0].next[0], Next::Run(command.into()));
    let across = vec![
        lock("orders", vec![renewed(a, 100)], vec![waiting(c, 4_000)]),
        lock("stock", vec![renewed(c, 100)], vec![waiting(b, 4_000)]),
    ];
    assert_eq!(rules(across, &family), [Rule::MayDeadlock]);
}

#[test]
fn a_silent_head_and_a_lost_wake_up_are_told_apart() {
    let [a, b] = clients();
    let mut silent = waiting(b, 9_000);
    silent.silent = true;
    assert_eq!(
        rules(vec![lock("x", vec![renewed(a, 1)], vec![silent.clone()])], &Host::default()),
        [Rule::DeadHead]
    );
    let found = about(vec![lock("x", vec![], vec![silent.clone(), waiting(a, 10)])], &Host::default());
    assert_eq!((found[0].rule, found[0].severity), (Rule::DeadHead, Severity::Warning));
    // Nobody is hurt by records that nobody cleaned up.
    let found = about(vec![lock("x", vec![], vec![silent])], &Host::default());
    assert_eq!((found[0].rule, found[0].severity), (Rule::Free, Severity::Fine));
    assert_eq!(rules(vec![lock("x", vec![], vec![waiting(b, 10)])], &Host::default()), [Rule::LostWake]);
}

#[test]
fn a_command_with_an_invisible_name_is_not_offered() {
    let [a] = clients();
    let found = about(vec![lock("x\u{200b}", vec![renewed(a, 12_000)], vec![])], &Host::default());
    assert!(found[0].next.iter().all(|next| matches!(next, Next::Do(_))), "{found:?}");
    assert!(found[0].sentence.is_ascii());
}

fn vote(node: &str, client: Option<&'static ClientId>, left_ms: Option<u64>) -> VoteView {
    with(VoteView::new(node), |vote| {
        vote.reached = true;
        vote.owner_digest = client.map(|id| format!("owner-{id}"));
        vote.client = client.cloned();
        vote.remaining_ms = left_ms.filter(|_| client.is_some());
    })
}

fn voted(holders: Vec<HolderView>, votes: Vec<VoteView>) -> LockView {
    with(lock("x", holders, vec![]), |lock| lock.votes = votes)
}

#[test]
fn votes_without_a_majority_are_told_apart_from_a_free_lock() {
    let [a, b] = clients();
    let told = |lock: LockView| {
        let found = about(vec![lock], &Host::default()).remove(0);
        (found.rule, found.severity, found.sentence)
    };
    let left = Some(3_000);

    let split = vec![vote("n1", Some(a), left), vote("n2", Some(b), left), vote("n3", None, None)];
    let (rule, severity, sentence) = told(voted(vec![], split));
    assert_eq!((rule, severity), (Rule::SplitVote, Severity::Warning));
    assert!(sentence.contains("has 1 of 3 nodes") && sentence.contains("2 are needed"), "{sentence}");

    let away = |node: &str| with(vote(node, None, None), |vote| vote.reached = false);
    let free = |node: &str| vote(node, None, None);
    let rest = vec![vote("n1", Some(a), left), free("n2"), free("n3"), free("n4"), away("n5")];
    let (rule, severity, sentence) = told(voted(vec![], rest));
    assert_eq!((rule, severity), (Rule::Quorum, Severity::Notice));
    for part in ["1 of 5 nodes still name", "3 have to", "ends in 3.0 s", "1 node is not answering"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }

    // With the silent ones it may have a majority: neither free nor, for certain, held.
    let maybe = || vec![vote("n1", Some(a), left), free("n2"), free("n3"), away("n4"), away("n5")];
    for holders in [vec![], vec![held(a, 1_000)]] {
        let (rule, severity, sentence) = told(voted(holders, maybe()));
        assert_eq!((rule, severity), (Rule::Undecided, Severity::Notice));
        for part in
            ["Not known", "n4, n5", "2 of 5 nodes do not answer", "has 1 node", "the 3 that are needed"]
        {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        let reading = snapshot(vec![voted(vec![], maybe())]);
        let shown = crate::overview(&reading, &Host::default(), "polylatch");
        assert_eq!(shown.rows[0].state, crate::LockState::Unknown);
    }

    // A holder is not harmed by a minority that lags behind.
    let won = vec![vote("n1", Some(a), left), vote("n2", Some(a), left), vote("n3", Some(b), left)];
    assert_eq!(told(voted(vec![held(a, 1_000)], won)).0, Rule::Legit);
    let free = (1..=3).map(|node| vote(&format!("n{node}"), None, None)).collect();
    assert_eq!(told(voted(vec![], free)).0, Rule::Free);
}

#[test]
fn a_lease_that_hangs_on_a_session_ends_with_it() {
    let [a] = clients();
    let session = |ttl: Option<&str>| {
        let mut holder = held(a, 2_000);
        holder.remaining_ms = None;
        holder.details.push(Detail::new("session", "5f2c"));
        holder.details.extend(ttl.map(|ttl| Detail::new("session TTL", ttl)));
        holder
    };
    let told = |lock: LockView, host: &Host| {
        let found = about(vec![lock], host).remove(0);
        (found.rule, found.sentence)
    };
    let gone = host_where(100, Process::Gone);
    let (rule, sentence) = told(lock("x", vec![session(Some("15s"))], vec![]), &gone);
    assert_eq!(rule, Rule::HolderGone);
    assert!(sentence.contains("within twice its time to live, 15s"), "{sentence}");
    let (_, sentence) = told(lock("x", vec![session(Some("none"))], vec![]), &gone);
    assert!(sentence.contains("its node's health checks"), "{sentence}");
    let without = with(held(a, 2_000), |holder| holder.remaining_ms = None);
    assert_eq!(told(lock("x", vec![without.clone()], vec![]), &gone).0, Rule::NoExpiryDead);

    let theirs = |holder: HolderView| {
        let holder = with(holder, |holder| holder.client = None);
        with(lock("x", vec![holder], vec![]), |lock| lock.mode = "foreign".into())
    };
    let (rule, sentence) = told(theirs(session(Some("10s"))), &Host::default());
    assert_eq!(rule, Rule::Foreign);
    assert!(sentence.contains("as long as its session"), "{sentence}");
    assert_eq!(told(theirs(without), &Host::default()).0, Rule::NoExpiry);
}

fn troubled(locks: Vec<LockView>, kind: TroubleKind) -> Snapshot {
    with(snapshot(locks), |reading| reading.troubles.push(Trouble::new(kind, "1 of 3 nodes answer")))
}

#[test]
fn nothing_is_judged_from_silence_while_the_store_does_not_work() {
    let [a, b] = clients();
    let silent = with(waiting(b, 9_000), |waiter| waiter.silent = true);
    for lock in [
        lock("x", vec![], vec![]),
        lock("x", vec![], vec![waiting(b, 4_000)]),
        lock("x", vec![], vec![silent.clone()]),
        lock("x", vec![renewed(a, 14_000)], vec![silent]),
    ] {
        for (kind, rule) in
            [(TroubleKind::ReadOnly, Rule::WritesRefused), (TroubleKind::NoQuorum, Rule::NoQuorum)]
        {
            let shown = crate::overview(&troubled(vec![lock.clone()], kind), &Host::default(), "polylatch");
            let rules: Vec<_> = shown.findings[0].iter().map(|finding| finding.rule).collect();
            assert_eq!(rules, [rule]);
            assert_eq!(shown.rows[0].severity(), Severity::Problem);
            assert_ne!(shown.rows[0].state, crate::LockState::Free);
        }
    }
    // What the host knows of its own processes is no silence.
    let stopped = host_where(100, Process::Present { stopped: true, started_at_ms: Some(500_000) });
    let reading = troubled(vec![lock("x", vec![renewed(a, 1)], vec![])], TroubleKind::OutOfMemory);
    let shown = crate::overview(&reading, &stopped, "polylatch");
    assert_eq!(shown.findings[0][1].rule, Rule::Stopped);
    // A node is not the store.
    let mut reading = troubled(vec![lock("x", vec![renewed(a, 1_000)], vec![])], TroubleKind::NodeSilent);
    reading.troubles[0].node = Some("n1".into());
    assert_eq!(crate::overview(&reading, &Host::default(), "polylatch").findings[0][0].rule, Rule::Legit);
}

#[test]
fn long_and_many_waits_are_told() {
    let [a, b] = clients();
    let waiters = |many: usize, longest_ms: u64| {
        let waiters = (0..many).map(|at| waiting(b, if at == 0 { longest_ms } else { 10 })).collect();
        let found = about(vec![lock("x", vec![renewed(a, 1_000)], waiters)], &Host::default());
        found.into_iter().map(|finding| (finding.rule, finding.severity)).collect::<Vec<_>>()
    };
    let (fine, notice, warning) = (Severity::Fine, Severity::Notice, Severity::Warning);
    assert_eq!(waiters(19, 59_000), [(Rule::Legit, fine)]);
    assert_eq!(waiters(1, 60_000), [(Rule::LongWait, notice)]);
    assert_eq!(waiters(1, 600_000), [(Rule::LongWait, warning)]);
    assert_eq!(waiters(20, 10), [(Rule::ManyWaiters, notice)]);
    assert_eq!(waiters(500, 61_000), [(Rule::ManyWaiters, warning), (Rule::LongWait, notice)]);
    let found = about(vec![lock("x", vec![renewed(a, 1_000)], vec![waiting(b, 60_000)])], &Host::default());
    assert!(found[0].sentence.contains("has waited for 1 min 0 s"), "{found:?}");
}

#[test]
fn what_a_store_cannot_tell_of_renewals_is_told_as_not_known() {
    let [a] = clients();
    let mut holder = with(held(a, 9_000), |holder| (holder.remaining_ms, holder.renewals) = (None, None));
    holder.details.push(Detail::new("session", "5f2c"));
    let found = about(vec![lock("x", vec![holder], vec![])], &Host::default());
    assert_eq!(found[0].rule, Rule::Legit);
    for part in ["last heartbeat 0.1 s ago", "cannot be observed", "Nothing wrong was found"] {
        assert!(found[0].sentence.contains(part), "{part}: {found:?}");
    }
}

#[test]
fn lock_delay_comes_before_the_waiting_process() {
    let [a] = clients();
    let mut free = lock("x", vec![], vec![waiting(a, 4_000)]);
    let consul = |lock: LockView| {
        let reading = with(snapshot(vec![lock]), |reading| reading.backend = "consul".into());
        findings(&reading.locks[0], &Evidence::new(&reading, &Host::default(), "polylatch")).remove(0)
    };
    let found = consul(free.clone());
    assert_eq!(found.rule, Rule::LostWake);
    assert!(found.sentence.contains("lock-delay") && !format!("{found:?}").contains("hangs"), "{found:?}");
    free.details.push(Detail::new("lock-delay", "at most 9.0 s left"));
    let found = consul(free);
    assert_eq!(found.rule, Rule::LockDelay);
    assert!(
        found.sentence.contains("at most 9.0 s left") && found.sentence.contains("not at fault"),
        "{found:?}"
    );
}

#[test]
fn a_number_in_another_pid_namespace_is_marked_and_not_looked_up() {
    struct Outside(Host);
    impl HostFacts for Outside {
        fn host_name(&self) -> &str {
            self.0.host_name()
        }
        fn pid_namespace(&self) -> Option<&str> {
            Some("pid:[1]")
        }
        fn process(&self, pid: u32) -> Process {
            self.0.process(pid)
        }
        fn parent(&self, pid: u32) -> Option<u32> {
            self.0.parent(pid)
        }
    }
    let [a] = clients();
    let here = Outside(Host::default());
    for (namespace, is_apart) in [(None, false), (Some("pid:[1]"), false), (Some("pid:[2]"), true)] {
        let mut reading = snapshot(vec![lock("x", vec![held(a, 10)], vec![])]);
        reading.clients[0].pid_namespace = namespace.map(str::to_owned);
        let evidence = Evidence::new(&reading, &here, "polylatch");
        assert_eq!(evidence.is_apart(a), is_apart, "{namespace:?}");
        assert_eq!(evidence.process_of(a) == Process::Unknown, is_apart, "{namespace:?}");
        reading.clients[0].host = "elsewhere".into();
        assert!(!Evidence::new(&reading, &here, "polylatch").is_apart(a), "another host");
    }
}
