use std::collections::HashMap;
use std::time::Duration;

use crate::backend::redis::config::AckRule;
use crate::backend::redis::doctor::facts::{Counter, Facts, Locks, ServerClock, parse_info};
use crate::backend::redis::doctor::server::{Durability, durability};
use crate::backend::redis::doctor::sharers::Sharers;
use crate::backend::redis::doctor::trials::{COMMANDS, Outcome, Push, Trial, called_by_scripts};
use crate::backend::redis::doctor::{Transport, judge};
use crate::backend::redis::protocol::sentinels::Word;
use crate::snapshot::{CheckSeverity, Examination, Holds};

const INFO: &str = "# Server\r\nredis_version:7.4.2\r\nredis_mode:standalone\r\n# Clients\r\n\
    connected_clients:3\r\nmaxclients:10000\r\n# Memory\r\nused_memory:1000000\r\n\
    total_system_memory:8000000000\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\n\
    rdb_last_bgsave_status:ok\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
    aof_last_bgrewrite_status:ok\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

fn healthy() -> Facts {
    let settings = [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("save", ""),
        ("min-replicas-to-write", "0"),
        ("timeout", "0"),
        ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
    ];
    Facts {
        strict: false,
        ack: None,
        max_lease: Duration::from_secs(60),
        transport: Transport::Unix,
        user: Some("app".into()),
        has_password: true,
        cli: "redis-cli -p 7000".into(),
        keys_start: "polylatch:".into(),
        channels_start: "polylatch:inbox:".into(),
        counter_key: "polylatch:fence".into(),
        in_cluster: false,
        sentinels: None,
        info: Some(parse_info(INFO)),
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        clock: Some(ServerClock { now_us: 1_000_000, ahead_ms: 3, within_ms: 1 }),
        trips: vec![Duration::from_micros(90); 8],
        trials: vec![Trial { command: "set", outcome: Outcome::Allowed }],
        wrote: true,
        write_refused: None,
        push: Push::Heard(Duration::from_micros(200)),
        counter: Counter::At(1_000_000),
        locks: Locks::Read { count: 2, foreign: vec![], unreadable: vec![] },
        sharers: Sharers::default(),
    }
}

fn set(facts: &mut Facts, name: &str, value: &str) {
    facts.info.as_mut().unwrap().insert(name.into(), value.into());
}

fn setting(facts: &mut Facts, name: &str, value: &str) {
    facts.settings.insert(name.into(), value.into());
}

fn with_replica(facts: &mut Facts) {
    set(facts, "connected_slaves", "1");
    set(facts, "slave0", "ip=10.0.0.2,port=6379,state=online,offset=42,lag=0");
}

fn examined(change: impl FnOnce(&mut Facts)) -> Examination {
    let mut facts = healthy();
    change(&mut facts);
    judge(&facts)
}

fn holds(examination: &Examination, id: &str) -> Holds {
    examination.promises.iter().find(|promise| promise.id == id).unwrap().holds
}

#[test]
fn a_healthy_server_has_nothing_to_mend() {
    let examination = examined(|_| {});
    assert_eq!(examination.worst(), CheckSeverity::Ok, "{examination:#?}");
    assert_eq!(examination.version.as_deref(), Some("Redis 7.4.2"));
    for id in ["exclusion", "exclusion-after-restart", "fencing-order", "push", "fifo"] {
        assert_eq!(holds(&examination, id), Holds::Yes, "{id}");
    }
}

#[test]
fn what_is_wrong_is_found_with_its_weight_meaning_and_fix() {
    use CheckSeverity::{Notice, Problem, Unknown, Warning};
    type Change = fn(&mut Facts);
    let cases: Vec<(&str, CheckSeverity, Change)> = vec![
        ("mode", Problem, |f| set(f, "redis_mode", "cluster")),
        ("role", Problem, |f| set(f, "role", "slave")),
        ("eviction", Notice, |f| set(f, "maxmemory_policy", "allkeys-lru")),
        ("eviction", Problem, |f| {
            set(f, "maxmemory", "8388608");
            set(f, "maxmemory_policy", "volatile-ttl");
        }),
        ("persistence", Notice, |f| setting(f, "appendfsync", "everysec")),
        ("persistence", Warning, |f| setting(f, "appendfsync", "no")),
        ("persistence", Warning, |f| setting(f, "appendonly", "no")),
        ("persistence", Unknown, |f| f.settings.clear()),
        ("replicas", Warning, with_replica),
        ("replicas", Problem, |f| {
            f.strict = true;
            with_replica(f);
        }),
        ("replicas", Problem, |f| f.ack = Some(AckRule::Any)),
        ("replicas", Problem, |f| setting(f, "min-replicas-to-write", "1")),
        ("replicas", Notice, |f| {
            f.ack = Some(AckRule::Majority);
            with_replica(f);
        }),
        ("replicas", Warning, |f| {
            f.ack = Some(AckRule::Majority);
            with_replica(f);
            set(f, "slave0", "ip=10.0.0.2,port=6379,state=online,offset=42,lag=30");
        }),
        ("saving", Problem, |f| set(f, "rdb_last_bgsave_status", "err")),
        ("memory", Problem, |f| f.write_refused = Some("OOM".into())),
        ("memory", Warning, |f| set(f, "maxmemory", "1050000")),
        ("writes", Problem, |f| f.write_refused = Some("STRANGE".into())),
        ("writes", Problem, |f| {
            f.info = None;
            f.write_refused = Some("NOREPLICAS".into());
        }),
        ("mode", Problem, |f| {
            f.info = None;
            f.write_refused = Some("MOVED".into());
        }),
        ("connections", Warning, |f| set(f, "connected_clients", "9500")),
        ("version", Notice, |f| set(f, "redis_version", "7.0.15")),
        ("version", Warning, |f| set(f, "redis_version", "6.0.16")),
        ("version", Problem, |f| set(f, "redis_version", "4.0.14")),
        ("info", Unknown, |f| f.info = None),
        ("permissions", Problem, |f| f.trials[0].outcome = Outcome::NoCommand),
        ("permissions", Problem, |f| f.trials[0].outcome = Outcome::NoKeys),
        ("permissions", Problem, |f| f.trials[0].outcome = Outcome::Missing),
        ("permissions", Warning, |f| {
            f.trials.push(Trial { command: "publish", outcome: Outcome::NoChannels });
        }),
        ("push", Warning, |f| f.push = Push::Silent),
        ("push", Warning, |f| f.push = Push::NotSubscribed),
        ("fencing-counter", Problem, |f| f.counter = Counter::Foreign),
        ("fencing-counter", Problem, |f| f.counter = Counter::At(1 << 60)),
        ("fencing-counter", Warning, |f| f.counter = Counter::At(3_600_000_000)),
        ("keys", Warning, |f| {
            f.locks = Locks::Read { count: 2, foreign: vec!["a".into()], unreadable: vec![] }
        }),
        ("records", Warning, |f| {
            f.locks = Locks::Read { count: 2, foreign: vec![], unreadable: vec!["waiter 1".into()] };
        }),
        ("records", Warning, |f| f.sharers.unreadable.push("polylatch:audit".into())),
        ("guarantee", Warning, |f| f.sharers.guarantees.push(("h:1:x".into(), "strict".into()))),
        ("guarantee", Warning, |f| {
            f.strict = true;
            f.sharers.guarantees.push(("h:1:x".into(), "best-effort".into()));
        }),
        ("keys", Problem, |f| f.locks = Locks::Foreign("a list".into())),
        ("clock", Notice, |f| f.clock.as_mut().unwrap().ahead_ms = -5_000),
        ("clock", Warning, |f| f.clock.as_mut().unwrap().ahead_ms = 120_000),
        ("latency", Warning, |f| f.trips[0] = Duration::from_secs(2)),
        ("encryption", Warning, |f| f.transport = Transport::Plain { host: "db".into(), loopback: false }),
        ("login", Warning, |f| {
            f.has_password = false;
            f.transport = Transport::Plain { host: "db".into(), loopback: false };
        }),
        ("idle-limit", Notice, |f| setting(f, "timeout", "5")),
        ("push-buffer", Notice, |f| setting(f, "client-output-buffer-limit", "pubsub 1000 0 0")),
    ];
    for (id, severity, change) in cases {
        let examination = examined(change);
        let check = examination.finding(id).unwrap();
        assert_eq!(check.severity, severity, "{check:?}");
        assert!(!check.consequence.is_empty() && !check.fix.is_empty(), "{check:?}");
    }
}

#[test]
fn strict_waits_restarts_out_and_needs_info() {
    let examination = examined(|f| {
        f.strict = true;
        setting(f, "appendonly", "no");
    });
    assert_eq!(examination.worst(), CheckSeverity::Ok, "{examination:#?}");
    assert_eq!(holds(&examination, "exclusion-after-restart"), Holds::Yes);
    assert_eq!(holds(&examination, "exclusion-after-wipe"), Holds::Yes);
    let beside_others = examined(|f| {
        f.strict = true;
        f.sharers.guarantees.push(("h:1:x".into(), "best-effort".into()));
    });
    assert_eq!(holds(&beside_others, "exclusion-after-restart"), Holds::No);
    let blind = examined(|f| {
        f.strict = true;
        f.info = None;
    });
    assert_eq!(blind.finding("info").unwrap().severity, CheckSeverity::Problem);
    assert_eq!(holds(&blind, "exclusion"), Holds::No);
}

#[test]
fn a_failover_is_survived_only_with_everything_together() {
    let together = |strict: bool, ack: Option<AckRule>, least: &str| {
        let examination = examined(|f| {
            with_replica(f);
            (f.strict, f.ack) = (strict, ack);
            setting(f, "min-replicas-to-write", least);
        });
        holds(&examination, "exclusion-after-failover")
    };
    assert_eq!(together(true, Some(AckRule::Any), "1"), Holds::Yes);
    assert_eq!(together(true, Some(AckRule::Any), "0"), Holds::No);
    assert_eq!(together(false, Some(AckRule::Any), "1"), Holds::No);
    assert_eq!(together(true, None, "1"), Holds::No);
}

/// What a Sentinel says of a service with so many replicas.
fn word(replicas: &str, quorum: &str) -> Word {
    let fields = [
        ("name", "locks"),
        ("flags", "master"),
        ("num-other-sentinels", "2"),
        ("num-slaves", replicas),
        ("quorum", quorum),
        ("down-after-milliseconds", "30000"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Word { master: ("10.0.0.1".into(), 6379), fields }
}

#[test]
fn a_primary_that_keeps_a_part_of_its_replicas_must_not_go_on() {
    let with = |replicas: &str, least: &str| {
        examined(|f| {
            with_replica(f);
            (f.strict, f.ack) = (true, Some(AckRule::Majority));
            // The others are down at the moment, and come back to one side or the other.
            f.sentinels = Some(vec![("10.0.0.7:26379".into(), Ok(word(replicas, "2"))); 3]);
            setting(f, "min-replicas-to-write", least);
        })
    };
    for (replicas, least, kept) in [
        ("1", "1", true),
        ("2", "1", true),
        ("3", "1", false),
        ("3", "2", true),
        ("5", "2", false),
        ("5", "3", true),
    ] {
        let examination = with(replicas, least);
        let told = if kept { Holds::Yes } else { Holds::No };
        assert_eq!(
            holds(&examination, "exclusion-after-failover"),
            told,
            "{replicas} replicas, {least} wanted"
        );
        if !kept {
            let because =
                &examination.promises.iter().find(|promise| promise.holds == Holds::No).unwrap().because;
            assert!(because.contains("min-replicas-to-write"), "{because}");
        }
    }
}

#[test]
fn what_the_sentinels_are_set_to_is_told() {
    let of = |quorum: &str| {
        let examination = examined(|f| {
            with_replica(f);
            f.sentinels = Some(vec![("10.0.0.7:26379".into(), Ok(word("1", quorum))); 3]);
        });
        examination.finding("sentinels").unwrap().clone()
    };
    let good = of("2");
    assert_eq!(good.severity, CheckSeverity::Ok, "{good:?}");
    assert!(good.detail.contains("silent for 30s is replaced"), "{good:?}");
    let never = of("4");
    assert_eq!(never.severity, CheckSeverity::Problem, "{never:?}");
    assert!(never.fix.contains("SENTINEL SET locks quorum 2"), "{never:?}");
}

#[test]
fn what_cannot_be_seen_is_unknown_and_never_invented() {
    let examination = examined(|f| {
        f.info = None;
        f.settings = HashMap::new();
    });
    for id in ["exclusion", "exclusion-after-restart", "exclusion-after-failover"] {
        assert_eq!(holds(&examination, id), Holds::Unknown, "{id}");
    }
    assert!(!examination.worst().needs_action(), "{examination:#?}");
    assert_eq!(examination.version, None);
    assert_eq!(examination.finding("mode").unwrap().severity, CheckSeverity::Unknown);
}

#[test]
fn an_evicting_server_and_a_replica_promise_no_exclusion() {
    let evicting = examined(|f| {
        set(f, "maxmemory", "8388608");
        set(f, "maxmemory_policy", "allkeys-lru");
    });
    assert_eq!(holds(&evicting, "exclusion"), Holds::No);
    assert_eq!(evicting.findings[0].id, "eviction");
    let replica = examined(|f| f.write_refused = Some("READONLY".into()));
    assert!(replica.promises.iter().all(|promise| promise.holds == Holds::No));
    assert_eq!(replica.finding("writes"), None, "told once, by the role");
    let full = examined(|f| {
        f.write_refused = Some("OOM".into());
        f.trials.push(Trial { command: "zadd", outcome: Outcome::NotTried });
    });
    assert!(full.promises[0].because.contains("OOM"), "{:?}", full.promises[0]);
}

#[test]
fn the_fix_for_permissions_names_exactly_what_is_missing() {
    let examination = examined(|f| {
        f.trials = ["set", "zadd"].map(|command| Trial { command, outcome: Outcome::NoCommand }).to_vec();
        f.trials.push(Trial { command: "publish", outcome: Outcome::NoChannels });
    });
    let fix = &examination.finding("permissions").unwrap().fix;
    assert_eq!(fix, "redis-cli -p 7000 ACL SETUSER app +set +zadd '&polylatch:inbox:*'");
}

#[test]
fn persistence_is_told_from_settings_or_not_at_all() {
    let of = |pairs: &[(&str, &str)]| {
        let mut facts = healthy();
        facts.settings = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        durability(&facts)
    };
    assert_eq!(of(&[("appendonly", "yes"), ("appendfsync", "no")]), Durability::WhenItSuits);
    assert_eq!(of(&[("appendonly", "no"), ("save", "3600 1")]), Durability::Snapshots);
    assert_eq!(of(&[("appendonly", "no"), ("save", "")]), Durability::Nothing);
    assert_eq!(of(&[]), Durability::Unknown);
}

#[test]
fn every_command_of_the_scripts_can_be_tried() {
    let called = called_by_scripts();
    assert!(called.len() > 15, "{called:?}");
    for command in called {
        assert!(COMMANDS.iter().any(|(known, _)| *known == command), "no harmless way to try {command}");
    }
}
