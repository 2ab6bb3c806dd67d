use crate::backend::sqlite::doctor::*;
use crate::snapshot::{CheckSeverity, Examination, Holds};

fn healthy() -> Facts {
    let access = |mode| Access { owner: 1000, mode };
    Facts {
        path: PathBuf::from("/var/lib/app/locks.db"),
        file_system: Some(FileSystem::Local("ext4")),
        log_mode: Some("wal".into()),
        integrity: Some("ok".into()),
        page_size: Some(4096),
        schema_version: Some(1),
        counter: Some(1_000_000),
        boot: Some("c0ffee".into()),
        wall_us: 1_000_000,
        free_bytes: Some(10 << 30),
        free_files: Some(100_000),
        log_bytes: Some(4096),
        file: Some(access(0o640)),
        folder: Some(access(0o750)),
        beside: vec![("-wal".into(), access(0o640))],
        clock_source: Some("tsc".into()),
    }
}

fn examined(change: impl FnOnce(&mut Facts)) -> Examination {
    let mut facts = healthy();
    change(&mut facts);
    judge(&facts, &Writing::Took(Duration::from_micros(80)))
}

fn holds(examination: &Examination, id: &str) -> Holds {
    examination.promises.iter().find(|promise| promise.id == id).unwrap().holds
}

#[test]
fn a_healthy_file_has_nothing_to_mend() {
    let examination = examined(|_| {});
    assert_eq!(examination.worst(), CheckSeverity::Ok, "{examination:#?}");
    assert_eq!(holds(&examination, "exclusion"), Holds::Yes);
    assert_eq!(holds(&examination, "exclusion-after-failover"), Holds::No);
}

#[test]
fn what_is_wrong_is_found_with_its_weight_meaning_and_fix() {
    use CheckSeverity::{Notice, Problem, Unknown, Warning};
    type Change = fn(&mut Facts);
    let cases: [(&str, CheckSeverity, Change); 15] = [
        ("file-system", Problem, |f| f.file_system = Some(FileSystem::Network("NFS"))),
        ("file-system", Notice, |f| f.file_system = Some(FileSystem::Local("tmpfs"))),
        ("file-system", Notice, |f| f.file_system = Some(FileSystem::Local("overlayfs"))),
        ("file-system", Unknown, |f| f.file_system = Some(FileSystem::Other(7))),
        ("integrity", Problem, |f| f.integrity = Some("row 3 missing from index".into())),
        ("log-mode", Problem, |f| f.log_mode = Some("delete".into())),
        ("disk-space", Problem, |f| f.free_bytes = Some(1 << 20)),
        ("disk-space", Warning, |f| f.free_bytes = Some(100 << 20)),
        ("disk-space", Warning, |f| f.free_files = Some(3)),
        ("folder-permissions", Problem, |f| f.folder = Some(Access { owner: 0, mode: 0o777 })),
        ("folder-permissions", Notice, |f| f.folder = Some(Access { owner: 0, mode: 0o1777 })),
        ("file-permissions", Warning, |f| f.file = Some(Access { owner: 1000, mode: 0o666 })),
        ("log-permissions", Warning, |f| f.beside[0].1.owner = 0),
        ("log-size", Warning, |f| f.log_bytes = Some(100 << 20)),
        ("fencing-counter", Notice, |f| f.counter = Some(3_600_000_000)),
    ];
    for (id, severity, change) in cases {
        let examination = examined(change);
        let check = examination.finding(id).unwrap();
        assert_eq!(check.severity, severity, "{check:?}");
        assert!(!check.consequence.is_empty() && !check.fix.is_empty(), "{check:?}");
    }
}

#[test]
fn a_blocked_file_promises_nothing() {
    let why = "pid 15 (job) holds it and is stopped; `kill -CONT 15` resumes it";
    let examination = judge(&healthy(), &Writing::Failed(why.into()));
    assert_eq!(examination.findings[0].id, "writer");
    assert!(examination.promises.iter().all(|promise| promise.holds == Holds::No));
    let slow = judge(&healthy(), &Writing::Took(Duration::from_secs(1)));
    assert_eq!(slow.worst(), CheckSeverity::Warning);
}

#[test]
fn a_network_file_system_breaks_exclusion_and_a_clock_set_back_the_order() {
    let examination = examined(|f| f.file_system = Some(FileSystem::Network("NFS")));
    assert_eq!(holds(&examination, "exclusion"), Holds::No);
    let examination = examined(|f| f.counter = Some(3_600_000_000));
    assert_eq!(holds(&examination, "fencing-order"), Holds::No);
}

#[test]
fn a_path_with_a_quote_stays_one_word() {
    let examination = examined(|f| {
        f.path = PathBuf::from("/tmp/it's here.db");
        f.file = Some(Access { owner: 1, mode: 0o666 });
    });
    let fix = &examination.finding("file-permissions").unwrap().fix;
    assert!(fix.starts_with("chmod o-w '/tmp/it'\\''s here.db'"), "{fix}");
}
