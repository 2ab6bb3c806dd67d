//! Looks at the lock file, its disk and this host as a careful operator would.
//!
//! [`look`] reads, on the database thread; [`checks`] are pure.

mod checks;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::backend::rows::Now;
use crate::backend::sqlite::transport::host::network_file_system;

pub(crate) use checks::judge;

/// Larger files are not checked page by page: that would hold up the locks of this client.
const CHECKED_BYTES: i64 = 256 << 20;

/// Everything that the judgement rests on; `None` where the system or the file does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub path: PathBuf,
    pub file_system: Option<FileSystem>,
    pub log_mode: Option<String>,
    /// `ok`, or what is wrong.
    pub integrity: Option<String>,
    pub page_size: Option<i64>,
    pub schema_version: Option<i64>,
    pub counter: Option<i64>,
    pub boot: Option<String>,
    pub wall_us: i64,
    pub free_bytes: Option<u64>,
    pub free_files: Option<u64>,
    pub log_bytes: Option<u64>,
    pub file: Option<Access>,
    pub folder: Option<Access>,
    /// The files beside it, `-wal` and `-shm`.
    pub beside: Vec<(String, Access)>,
    pub clock_source: Option<String>,
}

/// What a file is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Local(&'static str),
    Network(&'static str),
    Other(u32),
}

/// Owner and permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub owner: u32,
    pub mode: u32,
}

/// What came of getting the write lock once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writing {
    Took(Duration),
    /// Why not; names the process that is in the way, where the system tells.
    Failed(String),
}

/// Reads what can be read. Never opens the file: closing it again would drop SQLite's locks on it.
pub(crate) fn look(conn: &Connection, now: Now) -> Facts {
    let given = PathBuf::from(conn.path().unwrap_or_default());
    let path = fs::canonicalize(&given).unwrap_or(given);
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).ok();
    let text = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0));
    let page_size = number("PRAGMA page_size");
    let bytes = page_size.unwrap_or(0).saturating_mul(number("PRAGMA page_count").unwrap_or(0));
    let integrity = (bytes <= CHECKED_BYTES)
        .then(|| text("PRAGMA quick_check(1)").unwrap_or_else(|error| error.to_string()));
    let beside = |suffix: &str| {
        let mut beside = path.clone().into_os_string();
        beside.push(suffix);
        PathBuf::from(beside)
    };
    let (free_bytes, free_files) = free(&path);
    Facts {
        file_system: file_system(&path),
        log_mode: text("PRAGMA journal_mode").ok(),
        integrity,
        page_size,
        schema_version: number("PRAGMA user_version"),
        counter: number("SELECT counter FROM store"),
        boot: text("SELECT boot FROM store").ok(),
        wall_us: now.wall_us,
        free_bytes,
        free_files,
        log_bytes: fs::metadata(beside("-wal")).ok().map(|found| found.len()),
        file: access(&path),
        folder: path.parent().and_then(access),
        beside: ["-wal", "-shm"]
            .into_iter()
            .filter_map(|suffix| Some((suffix.to_owned(), access(&beside(suffix))?)))
            .collect(),
        clock_source: fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .ok()
            .map(|name| name.trim().to_owned()),
        path,
    }
}

#[cfg(unix)]
fn access(path: &Path) -> Option<Access> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    Some(Access { owner: found.uid(), mode: found.mode() & 0o7777 })
}

#[cfg(not(unix))]
fn access(_: &Path) -> Option<Access> {
    None
}

/// Free bytes and free places for files, for users without privileges.
#[cfg(unix)]
fn free(path: &Path) -> (Option<u64>, Option<u64>) {
    let Ok(found) = rustix::fs::statvfs(path) else { return (None, None) };
    // Some file systems have no fixed number of files and say 0 of 0.
    let files = (found.f_files > 0).then_some(found.f_favail);
    (Some(found.f_bavail.saturating_mul(found.f_frsize)), files)
}

#[cfg(not(unix))]
fn free(_: &Path) -> (Option<u64>, Option<u64>) {
    (None, None)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn file_system(path: &Path) -> Option<FileSystem> {
    let magic = rustix::fs::statfs(path).ok()?.f_type as u32;
    Some(match (network_file_system(magic), local_file_system(magic)) {
        (Some(network), _) => FileSystem::Network(network),
        (None, Some(local)) => FileSystem::Local(local),
        (None, None) => FileSystem::Other(magic),
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn file_system(path: &Path) -> Option<FileSystem> {
    // Used on Linux only.
    let _ = (path, network_file_system, local_file_system);
    None
}

/// Source: statfs(2) and linux/magic.h.
fn local_file_system(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0xef53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683e => "Btrfs",
        0x2fc1_2fc1 => "ZFS",
        0xf2f5_2010 => "F2FS",
        0xca45_1a4e => "bcachefs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlayfs",
        0x4d44 => "FAT",
        0x2011_bab0 => "exFAT",
        _ => return None,
    })
}
