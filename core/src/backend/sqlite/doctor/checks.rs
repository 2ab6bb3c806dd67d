//! From what was seen to what it means.

use std::time::Duration;

use crate::backend::sqlite::doctor::{Access, Facts, FileSystem, Writing};
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH, size,
};
use crate::snapshot::{Check, Examination, Promise};

/// Below this, the next locks may be refused; below a tenth of it, they will be soon.
const ROOM: u64 = 256 << 20;

/// The log is cut to 8 MiB whenever nobody reads. One this large has not been cut for long.
const LONG_LOG: u64 = 64 << 20;

/// Makes the examination, in the order in which a person would look.
pub(crate) fn judge(facts: &Facts, writing: &Writing) -> Examination {
    let findings = vec![
        writer(facts, writing),
        integrity(facts),
        file_system(facts),
        log_mode(facts),
        space(facts),
        folder(facts),
        file(facts),
        beside(facts),
        log_size(facts),
        counter(facts),
        boot(facts),
        Check::ok("schema", "schema is known", schema(facts)),
        Check::ok("clock", "time is the boot clock", clock(facts)),
        Check::ok("scope", "for the processes of this host", "hosts do not see each other's locks here"),
    ];
    let version = format!("SQLite {}", rusqlite::version());
    Examination::new("sqlite", Some(version), findings, promises(facts, writing))
}

/// The path as a word for a shell.
fn word(path: &std::path::Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

fn writer(facts: &Facts, writing: &Writing) -> Check {
    const ID: &str = "writer";
    match writing {
        Writing::Failed(why) => Check::problem(ID, "The file cannot be written", why.clone())
            .means("No lock can be acquired, renewed or released, so holders lose theirs.")
            .fix(format!("fuser -v {}   # and end or resume the process that holds it", word(&facts.path))),
        Writing::Took(time) if *time > Duration::from_millis(250) => {
            Check::warning(ID, "Writers block each other", format!("getting the write lock took {time:.1?}"))
                .means("Taking a lock costs this much, and short leases are renewed late.")
                .fix(format!("fuser -v {}   # a backup, a database shell, a slow disk?", word(&facts.path)))
        }
        Writing::Took(time) => {
            Check::ok(ID, "no program blocks writing", format!("the write lock took {time:.1?}"))
        }
    }
}

fn integrity(facts: &Facts) -> Check {
    const ID: &str = "integrity";
    match facts.integrity.as_deref() {
        Some("ok") => Check::ok(ID, "the file is intact", "PRAGMA quick_check says ok"),
        Some(wrong) => Check::problem(ID, "The file is damaged", wrong.to_owned())
            .means("Who holds what cannot be relied on.")
            .fix(format!(
                "Stop all programs that use it, then: mv {0} {0}.damaged   # a new one is made",
                word(&facts.path)
            )),
        None => Check::unknown(ID, "The file was not checked", "it is larger than 256 MiB")
            .fix(format!("sqlite3 {} 'PRAGMA quick_check'", word(&facts.path))),
    }
}

fn file_system(facts: &Facts) -> Check {
    const ID: &str = "file-system";
    let elsewhere = "Put the file on a local disk: sqlite:/var/lib/NAME/locks.db";
    match facts.file_system {
        Some(FileSystem::Network(name)) => Check::problem(ID, "On a network or shared file system", name)
            .means("File locks do not work reliably there: one lock can get two holders.")
            .fix(format!("{elsewhere}; between hosts use redis://HOST")),
        Some(FileSystem::Local(name @ ("tmpfs" | "ramfs"))) => Check::notice(ID, "Kept in memory only", name)
            .means("The file is gone after a reboot. Leases are void then anyway, and fencing tokens go on above the clock.")
            .fix(elsewhere),
        Some(FileSystem::Local(name @ "overlayfs")) => Check::notice(ID, "Probably inside a container's own layer", name)
            .means("Other containers and the host do not see this file, so they do not see these locks.")
            .fix("Mount one folder into all of them: docker run -v /var/lib/NAME:/var/lib/NAME …"),
        Some(FileSystem::Local(name)) => Check::ok(ID, "on a local disk", name),
        Some(FileSystem::Other(magic)) => Check::unknown(ID, "The file system is not known", format!("type {magic:#x}"))
            .means("If it is shared between hosts, one lock can get two holders.")
            .fix(format!("stat -f {}", word(&facts.path))),
        None => Check::unknown(ID, "The file system cannot be seen", "this system does not tell")
            .means("If it is shared between hosts, one lock can get two holders."),
    }
}

fn log_mode(facts: &Facts) -> Check {
    const ID: &str = "log-mode";
    match facts.log_mode.as_deref() {
        Some("wal") => {
            let page = facts.page_size.map(|size| format!(", pages of {size} bytes")).unwrap_or_default();
            Check::ok(ID, "write-ahead log", format!("journal_mode wal{page}"))
        }
        Some(other) => Check::problem(ID, "Not in write-ahead mode", format!("journal_mode {other}"))
            .means("Readers and writers block each other, and reading the locks delays renewals.")
            .fix(format!(
                "Stop all programs that use it, then: sqlite3 {} 'PRAGMA journal_mode=WAL'",
                word(&facts.path)
            )),
        None => Check::unknown(ID, "The log mode cannot be seen", "PRAGMA journal_mode failed"),
    }
}

fn space(facts: &Facts) -> Check {
    const ID: &str = "disk-space";
    let means =
        "With a full disk no lock can be granted; what is held is renewed as long as the log has room.";
    let fix = format!("df -h {}   # and free some", word(&facts.path));
    match (facts.free_bytes, facts.free_files) {
        (None, _) => {
            Check::unknown(ID, "Free space cannot be seen", "this system does not tell").means(means)
        }
        (_, Some(files)) if files < 100 => {
            Check::warning(ID, "The disk has no room for more files", format!("{files} left"))
                .means(means)
                .fix(fix)
        }
        (Some(free), _) if free < ROOM / 10 => {
            Check::problem(ID, "The disk is full", format!("{} free", size(free))).means(means).fix(fix)
        }
        (Some(free), _) if free < ROOM => {
            Check::warning(ID, "The disk is nearly full", format!("{} free", size(free)))
                .means(means)
                .fix(fix)
        }
        (Some(free), _) => Check::ok(ID, "disk space to spare", format!("{} free", size(free))),
    }
}

fn folder(facts: &Facts) -> Check {
    const ID: &str = "folder-permissions";
    let Some(access) = facts.folder else {
        return Check::unknown(ID, "The folder's permissions cannot be seen", "this system does not tell");
    };
    let folder = facts.path.parent().unwrap_or(&facts.path);
    let seen = format!("{} has mode {:04o}", folder.display(), access.mode);
    match (access.mode & 0o002 != 0, access.mode & 0o1000 != 0) {
        (false, _) => Check::ok(ID, "no other user can replace the file", seen),
        (true, false) => Check::problem(ID, "Every user can replace the file", seen)
            .means("Any user of this host can remove or swap it, and every lock with it.")
            .fix(format!("chmod o-w {}", word(folder))),
        (true, true) => Check::notice(ID, "In a folder that every user can write to", seen)
            .means("Other users cannot remove the file, but can put one there before you, and cleaners of /tmp remove it.")
            .fix("Use a folder of its own: sqlite:/var/lib/NAME/locks.db"),
    }
}

fn file(facts: &Facts) -> Check {
    const ID: &str = "file-permissions";
    let Some(Access { owner, mode }) = facts.file else {
        return Check::unknown(ID, "The file's permissions cannot be seen", "this system does not tell");
    };
    let seen = format!("mode {mode:04o}, owner {owner}");
    if mode & 0o002 != 0 {
        return Check::warning(ID, "Every user can write the file", seen)
            .means("Any user of this host can take, end or forge locks.")
            .fix(format!("chmod o-w {}   # give those who need it a group", word(&facts.path)));
    }
    Check::ok(ID, "only owner and group write the file", seen)
}

fn beside(facts: &Facts) -> Check {
    const ID: &str = "log-permissions";
    let Some(file) = facts.file else {
        return Check::unknown(ID, "The log's permissions cannot be seen", "this system does not tell");
    };
    // SQLite gives its log the owner and mode of the file, unless another user made it first.
    let other = facts
        .beside
        .iter()
        .find(|(_, access)| access.owner != file.owner || access.mode & 0o666 != file.mode & 0o666);
    match other {
        None => Check::ok(ID, "the log belongs to the same users", "-wal and -shm are as the file"),
        Some((suffix, access)) => Check::warning(
            ID,
            "The log belongs to other users than the file",
            format!(
                "the file: mode {:04o}, owner {}; {suffix}: mode {:04o}, owner {}",
                file.mode, file.owner, access.mode, access.owner
            ),
        )
        .means("Users who may write the file but not the log are refused every lock.")
        .fix(format!(
            "chown --reference={0} {0}{suffix} && chmod --reference={0} {0}{suffix}",
            word(&facts.path)
        )),
    }
}

fn log_size(facts: &Facts) -> Check {
    const ID: &str = "log-size";
    match facts.log_bytes {
        Some(bytes @ LONG_LOG..) => Check::warning(
            ID,
            "The log grows without end",
            format!("{} in -wal", size(bytes)),
        )
        .means(
            "A program keeps a reading transaction open, so the log cannot be folded back; it fills the disk.",
        )
        .fix(format!("fuser -v {}   # close the database shell or the backup", word(&facts.path))),
        Some(bytes) => Check::ok(ID, "the log is short", size(bytes)),
        None => Check::ok(ID, "the log is empty", "there is no -wal"),
    }
}

fn is_ahead(facts: &Facts) -> bool {
    facts.counter.is_some_and(|counter| counter > facts.wall_us + 60_000_000)
}

fn counter(facts: &Facts) -> Check {
    const ID: &str = "fencing-counter";
    match facts.counter {
        None => Check::problem(ID, "The fencing counter cannot be read", "the table store has no row")
            .means("No fencing token can be drawn, so no lock can be granted.")
            .fix(format!("Stop all programs that use it, then: mv {0} {0}.damaged", word(&facts.path))),
        Some(counter) if is_ahead(facts) => {
            let ahead = Duration::from_micros(counter.abs_diff(facts.wall_us));
            Check::notice(ID, "The fencing counter is ahead of the clock", format!("by {ahead:.0?}"))
                .means("The wall clock was set back. Tokens go on growing, unless the file is lost before the clock catches up.")
                .fix("chronyc tracking   # or: timedatectl")
        }
        Some(counter) => Check::ok(ID, "fencing counter is sane", counter.to_string()),
    }
}

fn boot(facts: &Facts) -> Check {
    match facts.boot.as_deref() {
        Some(boot) if !boot.is_empty() => {
            Check::ok("boot", "leases end with the boot they are from", format!("boot {boot}"))
        }
        _ => Check::problem(
            "boot",
            "The file does not say which boot it is from",
            "the table store has no boot",
        )
        .means("Leases from before a reboot cannot be distinguished.")
        .fix(format!("Stop all programs that use it, then: mv {0} {0}.damaged", word(&facts.path))),
    }
}

fn schema(facts: &Facts) -> String {
    format!("version {}", facts.schema_version.map_or("unknown".into(), |version| version.to_string()))
}

fn clock(facts: &Facts) -> String {
    let source = facts.clock_source.as_ref().map(|name| format!(", source {name}")).unwrap_or_default();
    format!("runs during sleep, no wall-clock step touches it{source}")
}

fn promises(facts: &Facts, writing: &Writing) -> Vec<Promise> {
    let blocked = match (writing, facts.integrity.as_deref()) {
        (Writing::Failed(_), _) => Some("the file cannot be written"),
        (_, Some(wrong)) if wrong != "ok" => Some("the file is damaged"),
        _ => None,
    };
    if let Some(why) = blocked {
        let all = [EXCLUSION, AFTER_RESTART, AFTER_FAILOVER, AFTER_WIPE, FENCING_ORDER, PUSH, FIFO];
        return all.map(|id| Promise::no(id, format!("no lock can be taken here: {why}"))).to_vec();
    }
    let among = |id, yes: &str| match facts.file_system {
        Some(FileSystem::Network(name)) => {
            Promise::no(id, format!("file locks cannot be relied on over {name}"))
        }
        Some(FileSystem::Other(_)) => Promise::unknown(id, "only if the file system is of this host alone"),
        _ => Promise::yes(id, yes),
    };
    vec![
        among(EXCLUSION, "among the processes of this host that use this file, and no others"),
        among(
            AFTER_RESTART,
            "a reboot voids all leases, and their holders with them; processes may come and go",
        ),
        Promise::no(AFTER_FAILOVER, "there is no second copy that could take over"),
        Promise::no(
            AFTER_WIPE,
            "a new file grants at once; holders in the old one learn it at their next renewal",
        ),
        if is_ahead(facts) {
            Promise::no(
                FENCING_ORDER,
                "the clock was set back: if the file is lost now, tokens fall back too",
            )
        } else {
            Promise::yes(FENCING_ORDER, "the counter is on disk ahead of use, and never behind the clock")
        },
        Promise::yes(PUSH, "within a process; other processes look every 1 to 8 ms while they wait"),
        Promise::yes(FIFO, "one line per lock in the file; a waiter that fell silent is skipped"),
    ]
}
