//! Hurting processes and disks: pause, resume, kill, a disk that is soon full.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};

use crate::wait_until;

/// Stops the process where it stands (SIGSTOP): when this returns, no code runs, no socket answers, time goes on.
#[track_caller]
pub fn pause(pid: u32) {
    signal(pid, Signal::STOP);
    wait_until_stopped(pid);
}

/// Pauses a client between two writes to an SQLite file. One that stops within a write keeps everybody else out of the
/// file, and what others can do then is tried elsewhere.
#[track_caller]
pub fn pause_between_writes(pid: u32) {
    wait_until(&format!("process {pid} to be between two writes"), Duration::from_secs(10), || {
        pause(pid);
        let writes = writes_to_sqlite(pid);
        if writes {
            resume(pid);
        }
        !writes
    });
}

/// Lets a paused process continue (SIGCONT).
#[track_caller]
pub fn resume(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Kills the process at once (SIGKILL); it cannot clean up. Its parent still has to wait for it.
#[track_caller]
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Asks the process to end (SIGTERM).
#[track_caller]
pub fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

/// Pauses, resumes or kills the children of a server. One that has ended by itself meanwhile needs no signal.
#[track_caller]
pub fn pause_children(pids: &[u32]) {
    signal_each(pids, Signal::STOP);
    pids.iter().for_each(|pid| wait_until_stopped(*pid));
}

#[track_caller]
pub fn resume_children(pids: &[u32]) {
    signal_each(pids, Signal::CONT);
}

#[track_caller]
pub fn kill_children(pids: &[u32]) {
    signal_each(pids, Signal::KILL);
}

/// Whether a process with this id exists. On Linux one that has ended and only waits for its
/// parent to notice (a zombie) does not count.
pub fn exists(pid: u32) -> bool {
    let exists = match test_kill_process(checked(pid)) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    };
    exists && !is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    state(Path::new(&format!("/proc/{pid}"))) == Some('Z')
}

/// The state of a process or thread by its folder in /proc (proc(5)); `None` if it has ended.
fn state(folder: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The state follows the program's name, which stands in parentheses and may contain some.
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// A signal is on its way when kill(2) returns. On a busy machine the other threads of the process run on for
/// milliseconds, and what a test does next would meet a process that still works.
#[track_caller]
fn wait_until_stopped(pid: u32) {
    let all_stopped = || {
        // No such folder: it has ended, or this is not Linux.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        threads.flatten().all(|thread| matches!(state(&thread.path()), None | Some('T' | 't' | 'Z' | 'X')))
    };
    wait_until(&format!("process {pid} to stop"), Duration::from_secs(10), all_stopped);
}

/// Whether the process is within a write to an SQLite file in WAL mode: it has the lock of byte 120 of the file's `-shm`
/// (`WAL_WRITE_LOCK` in SQLite's wal.c) from the first to the last statement, and everybody else waits for it.
pub fn writes_to_sqlite(pid: u32) -> bool {
    std::fs::read_to_string("/proc/locks")
        .unwrap_or_default()
        .lines()
        .any(|line| is_write_to_sqlite(line, pid))
}

/// A line of proc_locks(5): number, kind, mode, type, process, file, first byte, last byte.
fn is_write_to_sqlite(line: &str, pid: u32) -> bool {
    let pid = pid.to_string();
    matches!(
        line.split_whitespace().collect::<Vec<_>>()[..],
        [_, "POSIX", _, "WRITE", owner, _, "120", _] if owner == pid
    )
}

#[track_caller]
fn signal(pid: u32, signal: Signal) {
    if let Err(error) = kill_process(checked(pid), signal) {
        panic!("no {signal:?} to process {pid}: {error}");
    }
}

#[track_caller]
fn signal_each(pids: &[u32], signal: Signal) {
    for pid in pids {
        match kill_process(checked(*pid), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("no {signal:?} to process {pid}: {error}"),
        }
    }
}

/// Process ids 0 and -1 mean "the group" and "everyone": never send those a signal.
#[track_caller]
fn checked(pid: u32) -> Pid {
    i32::try_from(pid)
        .ok()
        .filter(|&raw| raw > 1)
        .and_then(Pid::from_raw)
        .unwrap_or_else(|| panic!("{pid} is not the id of a process to send signals to"))
}

/// A small file system of its own, unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Mounts an in-memory disk of `bytes` on the existing folder `dir`.
///
/// Answers `Err` with the reason where that is not possible (not root, no permission inside a
/// container); a test then says so and counts as skipped, not as passed.
#[cfg(target_os = "linux")]
pub fn small_disk(dir: &Path, bytes: u64) -> Result<SmallDisk, String> {
    use rustix::mount::{MountFlags, mount};
    if !geteuid().is_root() {
        return Err("mounting a small disk needs root".into());
    }
    let options =
        std::ffi::CString::new(format!("size={bytes},mode=0700")).expect("a formatted number has no NUL");
    mount("polylatch-test", dir, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, Some(options.as_c_str()))
        .map_err(|error| format!("mounting a small disk failed: {}", io::Error::from(error)))?;
    Ok(SmallDisk { path: dir.to_owned() })
}

#[cfg(not(target_os = "linux"))]
pub fn small_disk(_: &Path, _: u64) -> Result<SmallDisk, String> {
    Err("a small disk is only made on Linux".into())
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        // DETACH: the mount goes from the tree even if a server that is about to end has files open.
        if let Err(error) = unmount(&self.path, UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;
    use std::process::Command;

    #[test]
    fn a_small_disk_fills_up_and_goes_away() {
        let dir = TempDir::new();
        let disk = match small_disk(dir.path(), 64 * 1024) {
            Ok(disk) => disk,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let full = std::fs::write(disk.path().join("big"), vec![0; 1024 * 1024])
            .expect_err("1 MiB does not fit into 64 KiB");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        drop(disk);
        assert!(!dir.join("big").exists());
    }

    #[test]
    fn a_killed_child_is_gone_once_waited_for() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut child = crate::child::spawn(command).expect("sleep is everywhere");
        assert!(exists(child.id()));
        pause(child.id());
        resume(child.id());
        kill(child.id());
        child.wait().expect("it is our child");
        assert!(!exists(child.id()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_busy_process_has_stopped_when_pause_returns() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let mut child = crate::child::spawn(command).expect("a shell is everywhere");
        for _ in 0..100 {
            pause(child.id());
            assert_eq!(state(Path::new(&format!("/proc/{}", child.id()))), Some('T'));
            resume(child.id());
        }
        kill(child.id());
        child.wait().expect("it is our child");
    }

    #[test]
    fn a_write_to_an_sqlite_file_is_told_from_other_locks() {
        assert!(is_write_to_sqlite("1: POSIX  ADVISORY  WRITE 4711 fe:00:262148 120 120", 4711));
        for other in [
            "1: POSIX  ADVISORY  WRITE 4712 fe:00:262148 120 120",
            "1: POSIX  ADVISORY  READ 4711 fe:00:262148 120 120",
            // It waits.
            "1: -> POSIX  ADVISORY  WRITE 4711 fe:00:262148 120 120",
            // Of a JVM, as long as it runs.
            "1: FLOCK  ADVISORY  WRITE 4711 fe:00:262148 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4711 fe:00:262148 0 EOF",
        ] {
            assert!(!is_write_to_sqlite(other, 4711), "{other}");
        }
    }

    #[test]
    #[should_panic(expected = "not the id of a process")]
    fn everyone_is_not_a_process() {
        kill(0);
    }
}
