//! Who keeps the file locked: a process that was stopped or hangs inside a transaction blocks all
//! others, and only its number helps the person who has to resume it.

use std::path::Path;

/// The byte of the `-shm` file whose lock is the write lock (sqlite.org/walformat.html, section 2.1).
const WRITE_LOCK: u64 = 120;

/// Describes the process that holds the write lock, where the system tells (Linux).
#[cfg(target_os = "linux")]
pub(crate) fn describe(database: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let real = std::fs::canonicalize(database).ok()?;
    let mut shm = real.into_os_string();
    shm.push("-shm");
    let found = std::fs::metadata(shm).ok()?;
    let device = format!("{:02x}:{:02x}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder(&locks, &format!("{device}:{}", found.ino()))?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Some(sentence(pid, &stat))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn describe(_: &Path) -> Option<String> {
    None
}

/// Finds the write lock's holder among lines such as `7: POSIX  ADVISORY  WRITE 4711 fe:00:123 120 120`
/// (proc_locks(5)). A line with `->` is somebody who waits.
fn holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, of, from, to] = fields[..] else { return None };
        let (from, to) = (from.parse::<u64>().ok()?, to.parse().unwrap_or(u64::MAX));
        let pid: u32 = pid.parse().ok()?;
        // Zero is a process that this container cannot see.
        (of == file && (from..=to).contains(&WRITE_LOCK) && pid != 0).then_some(pid)
    })
}

fn sentence(pid: u32, stat: &str) -> String {
    let inside = |from: char, to: char| {
        let (start, end) = (stat.find(from)? + 1, stat.rfind(to)?);
        stat.get(start..end)
    };
    let program = inside('(', ')').unwrap_or("unknown program");
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    match state {
        Some('T' | 't') => {
            format!("pid {pid} ({program}) holds it and is stopped; `kill -CONT {pid}` resumes it")
        }
        _ => format!("pid {pid} ({program}) holds it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_the_write_lock_is_found_and_described() {
        let locks = "1: FLOCK  ADVISORY  WRITE 10 fe:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  READ 11 fe:00:77 120 120\n\
                     3: -> POSIX  ADVISORY  WRITE 12 fe:00:77 120 120\n\
                     4: POSIX  ADVISORY  WRITE 13 fe:00:77 123 123\n\
                     5: POSIX  ADVISORY  WRITE 14 fe:00:78 120 120\n\
                     6: POSIX  ADVISORY  WRITE 15 fe:00:77 120 120\n";
        assert_eq!(holder(locks, "fe:00:77"), Some(15));
        assert_eq!(holder(locks, "fe:00:79"), None);
        assert_eq!(
            sentence(15, "15 (my (odd) job) T 1 15 15 0"),
            "pid 15 (my (odd) job) holds it and is stopped; `kill -CONT 15` resumes it"
        );
        assert_eq!(sentence(15, "15 (job) S 1 15"), "pid 15 (job) holds it");
        assert_eq!(sentence(15, ""), "pid 15 (unknown program) holds it");
    }
}
