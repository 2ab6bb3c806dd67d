//! The judgement, on facts made up.

use std::time::Duration;

use crate::backend::consul::doctor::checks::judge;
use crate::backend::consul::doctor::facts::{Agent, Facts, Transport, Trial};
use crate::backend::consul::transport::api::SessionInfo;
use crate::snapshot::{CheckSeverity, Holds};

fn good() -> Facts {
    let session = SessionInfo {
        id: "s".into(),
        name: "n".into(),
        node: "web-1".into(),
        ttl: "15s".into(),
        lock_delay: 15_000_000_000,
        behavior: "delete".into(),
        checks: None,
    };
    Facts {
        place: "127.0.0.1:8500".into(),
        transport: Transport::Plain { host: "127.0.0.1".into(), loopback: true },
        has_token: true,
        prefix: "polylatch".into(),
        lease: Duration::from_secs(15),
        lock_delay: Duration::from_secs(15),
        datacenter: None,
        node: None,
        checks: vec![],
        agent: Some(Agent {
            version: "1.8.7".into(),
            acls: Some(true),
            connections: Some(1000),
            ..Agent::default()
        }),
        leader: Some("10.0.0.1:8300".into()),
        servers: vec!["a".into(), "b".into(), "c".into()],
        session: Trial::Did(session),
        write: Trial::Did(()),
        delayed: Trial::Did(true),
        push: Trial::Did(Duration::from_millis(1)),
        trips: vec![Duration::from_millis(1); 8],
    }
}

#[test]
fn a_good_set_up_needs_no_action() {
    let examination = judge(&good());
    assert_eq!(examination.worst(), CheckSeverity::Ok, "{:?}", examination.findings);
    let no: Vec<_> =
        examination.promises.iter().filter(|one| one.holds != Holds::Yes).map(|one| one.id).collect();
    assert_eq!(no, ["exclusion-after-wipe"]);
    assert_eq!(examination.version.as_deref(), Some("Consul 1.8.7"));
}

#[test]
fn each_flaw_is_found_and_told_with_a_way_out() {
    type Spoil = fn(&mut Facts);
    let cases: [(&str, CheckSeverity, Spoil); 11] = [
        ("leader", CheckSeverity::Problem, |facts| facts.leader = None),
        ("servers", CheckSeverity::Warning, |facts| facts.servers.truncate(2)),
        ("session-ttl", CheckSeverity::Problem, |facts| facts.session = Trial::Refused("denied".into())),
        ("permissions", CheckSeverity::Problem, |facts| facts.write = Trial::Refused("denied".into())),
        ("lock-delay", CheckSeverity::Notice, |facts| facts.lock_delay = Duration::ZERO),
        ("lock-delay", CheckSeverity::Warning, |facts| facts.lease = Duration::from_secs(16)),
        ("health-checks", CheckSeverity::Notice, |facts| facts.checks = vec!["serfHealth".into()]),
        ("push", CheckSeverity::Warning, |facts| facts.push = Trial::Refused("silent".into())),
        ("connections", CheckSeverity::Notice, |facts| {
            facts.agent.as_mut().unwrap().connections = Some(200);
        }),
        ("encryption", CheckSeverity::Warning, |facts| {
            facts.transport = Transport::Plain { host: "far".into(), loopback: false };
        }),
        ("storage", CheckSeverity::Warning, |facts| facts.agent.as_mut().unwrap().dev_mode = true),
    ];
    for (id, severity, spoil) in cases {
        let mut facts = good();
        spoil(&mut facts);
        let examination = judge(&facts);
        let check = examination.finding(id).unwrap();
        assert_eq!(check.severity, severity, "{id}");
        assert!(!check.fix.is_empty() && !check.consequence.is_empty(), "{id}");
        if severity == CheckSeverity::Problem {
            assert!(examination.promises.iter().all(|promise| promise.holds == Holds::No), "{id}");
        }
    }
}

#[test]
fn what_may_not_be_seen_is_unknown() {
    let examination = judge(&Facts { agent: None, ..good() });
    for id in ["agent", "connections", "access-control", "storage"] {
        assert_eq!(examination.finding(id).unwrap().severity, CheckSeverity::Unknown, "{id}");
    }
}

#[test]
fn exclusion_holds_only_as_far_as_lock_delay_covers_the_lease() {
    let seconds = Duration::from_secs;
    for (lease, lock_delay, delayed, holds, part) in [
        (15, 15, true, Holds::Yes, "covers the lease"),
        (60, 60, true, Holds::Yes, "covers the lease"),
        (15, 15, false, Holds::No, "did not keep"),
        (15, 0, true, Holds::No, "without lock-delay"),
        (30, 15, true, Holds::No, "shorter than the lease"),
        (61, 60, true, Holds::No, "shorter than the lease"),
    ] {
        let (lease, lock_delay) = (seconds(lease), seconds(lock_delay));
        let examination = judge(&Facts { lease, lock_delay, delayed: Trial::Did(delayed), ..good() });
        let exclusion = examination.promises.iter().find(|promise| promise.id == "exclusion").unwrap();
        assert_eq!(exclusion.holds, holds, "{exclusion:?}");
        assert!(exclusion.because.contains(part), "{exclusion:?}");
        let fix = &examination.finding("lock-delay").unwrap().fix;
        assert!(lease <= seconds(60) || fix.contains("lease=60s"), "{fix:?}");
    }
}
