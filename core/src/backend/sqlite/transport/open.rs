//! Opening the file: what it must be, who else may use it, and how it is brought up to date.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use crate::backend::sqlite::SqliteOptions;
use crate::backend::sqlite::backend::RESERVE_US;
use crate::backend::sqlite::transport::errors::{Failure, foreign, moved};
use crate::backend::sqlite::transport::host::{Host, network_file_system_at};
use crate::clock::{BootInstant, Clock, SystemClock};
use crate::error::ErrorKind;

/// "PLLK": written into the file's header, so that other programs and we know whose it is.
const APPLICATION_ID: i32 = 0x504c_4c4b;

/// One script per version of the schema; a file's `user_version` says how many have been run.
const MIGRATIONS: [&str; 2] = [include_str!("../schema/1.sql"), include_str!("../schema/2.sql")];

/// Until when a statement may wait for the locks of other processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct BusyUntil(Arc<AtomicU64>);

impl BusyUntil {
    pub(crate) fn set(&self, at: BootInstant) {
        self.0.store(at.as_nanos(), Ordering::Relaxed);
    }

    fn passed(&self) -> bool {
        SystemClock.now().as_nanos() >= self.0.load(Ordering::Relaxed)
    }
}

/// An opened file.
pub(crate) struct Opened {
    pub conn: Connection,
    pub file: OpenFile,
    pub busy_until: BusyUntil,
}

/// The file as it was when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub path: PathBuf,
    id: (u64, u64),
}

impl OpenFile {
    /// Fails if the path no longer leads to the file that is open: what is written then is lost.
    ///
    /// It must not open the file for this: closing any descriptor of it would drop the locks that
    /// SQLite holds for the whole process (sqlite.org/howtocorrupt.html, section 2.2).
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match fs::metadata(&self.path) {
            Ok(found) if file_id(&found) == self.id => Ok(()),
            _ => Err(moved(&self.path)),
        }
    }
}

#[cfg(unix)]
fn file_id(found: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

#[cfg(not(unix))]
fn file_id(_: &fs::Metadata) -> (u64, u64) {
    // These systems do not let an open file be removed or replaced.
    (0, 0)
}

/// Opens the file, or makes it, and takes it over for this boot.
pub(crate) fn open(path: &Path, options: &SqliteOptions, host: &Host) -> Result<Opened, Failure> {
    let path = check_path(path, options)?;
    let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, &path);

    if !path.exists() {
        // Where this fails, SQLite says why, or makes the file in its own way.
        let _ = make_private_file(&path);
    }
    let before = fs::metadata(&path).ok().map(|found| file_id(&found));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut conn = Connection::open_with_flags(&path, flags).map_err(fail)?;
    let busy_until = wait_for_others(&mut conn).map_err(fail)?;
    let end = SystemClock.now() + options.busy_timeout;
    busy_until.set(end);

    // Until it is known whose database this is, closing it must not tidy it up either.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    let look = conn.unchecked_transaction().map_err(fail)?;
    whose(&look, &path)?;
    look.finish().map_err(fail)?;
    if conn.is_readonly(c"main").map_err(fail)? {
        return Err(read_only(&path, "it"));
    }
    configure(&conn, &path, end)?;
    take_over(&mut conn, &path, host)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(fail)?;

    let id = fs::metadata(&path).map(|found| file_id(&found)).map_err(|_| moved(&path))?;
    if before.is_some_and(|before| before != id) {
        return Err(moved(&path));
    }
    Ok(Opened { conn, file: OpenFile { id, path }, busy_until })
}

/// Makes the file, empty, readable and writable by its user only: it has names, labels and owner tokens in it,
/// and a reader can keep its log from being emptied. SQLite gives its `-wal` and `-shm` files the same rights.
/// One that another process made meanwhile stays as it is.
///
/// It appears under its name closed: a thread of this process may open it there at once, and closing any
/// other descriptor of it would drop that thread's locks.
fn make_private_file(path: &Path) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{:016x}", RandomState::new().hash_one(std::process::id())));
    let fresh = path.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&fresh)?;
    let named = fs::hard_link(&fresh, path);
    fs::remove_file(&fresh)?;
    named
}

/// Makes the directory of the default file, readable and writable by its user only.
pub(crate) fn make_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Checks everything that can be told without touching the file, and makes the path absolute.
fn check_path(given: &Path, options: &SqliteOptions) -> Result<PathBuf, Failure> {
    let wrong = |rule: &str| {
        Failure::new(ErrorKind::InvalidConfig, format!("the lock file path {} {rule}", given.display()))
    };
    if given.as_os_str().is_empty() || given.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(wrong("is empty or has a NUL character; give the path of a file"));
    }
    // Absolute: SQLite gives meanings of its own to some relative ones (":memory:"), and the process
    // may change its directory.
    let path =
        std::path::absolute(given).map_err(|_| wrong("cannot be made absolute; give an absolute one"))?;
    let exists = match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Err(wrong("is a directory; name a file in it")),
        Ok(found) if !found.is_file() => {
            return Err(wrong("is a device, pipe or socket; name a regular file"));
        }
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(read_only(&path, "its folder"));
        }
        Err(error) => return Err(wrong(&format!("cannot be reached ({error}); check its folders"))),
    };
    // SQLite follows symbolic links, and keeps its log beside the real file.
    let real = if exists { fs::canonicalize(&path).unwrap_or_else(|_| path.clone()) } else { path.clone() };
    let folder = real.parent().filter(|folder| folder.is_dir()).ok_or_else(|| {
        wrong("is in a folder that does not exist; make the folder first, or give another path")
    })?;
    if !options.allow_network_file_system
        && let Some(kind) = network_file_system_at(if exists { &real } else { folder })
    {
        return Err(wrong(&format!(
            "is on a network or shared file system ({kind}), where file locks cannot be relied on; put it on \
             a local disk, or use a store on the network. If it is local after all, say \
             allow_network_file_system=yes"
        )));
    }
    if !may_write(folder) {
        return Err(read_only(&path, "its folder"));
    }
    if exists && !may_write(&real) {
        return Err(read_only(&path, "it"));
    }
    Ok(path)
}

fn read_only(path: &Path, what: &str) -> Failure {
    Failure::new(
        ErrorKind::BackendRejected,
        format!(
            "the lock file {} cannot be used: this process may not write to {what}. SQLite keeps its log \
             beside the file, so allow reading and writing for both the file and its folder",
            path.display()
        ),
    )
}

#[cfg(unix)]
fn may_write(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let access =
        if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::READ_OK | Access::WRITE_OK };
    // Not every system knows the effective user here; what it refuses later is told then.
    !matches!(
        accessat(CWD, path, access, AtFlags::EACCESS),
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::ROFS | rustix::io::Errno::PERM)
    )
}

#[cfg(not(unix))]
fn may_write(_: &Path) -> bool {
    true
}

/// Waits for other processes in short, growing, uneven steps: their transactions last well under a
/// millisecond, while SQLite's own handler soon sleeps for tens of them.
fn wait_for_others(conn: &mut Connection) -> rusqlite::Result<BusyUntil> {
    let until = BusyUntil::default();
    let for_handler = until.clone();
    conn.busy_handler(Some(move |tries: i32| {
        if for_handler.passed() {
            return false;
        }
        let uneven = SystemClock.now().as_nanos() % 100;
        let micros = 50 * u64::from(tries.unsigned_abs().min(19) + 1) + uneven;
        std::thread::sleep(Duration::from_micros(micros));
        true
    }))?;
    Ok(until)
}

/// Says whether the file is empty (0), ours (its schema version), or somebody else's. Changes nothing.
/// In a transaction, because what it reads has to be from one moment: another process may make the
/// file ours in between.
fn whose(conn: &Transaction<'_>, path: &Path) -> Result<usize, Failure> {
    let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, path);
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(fail);
    let objects = number("SELECT count(*) FROM sqlite_schema")?;
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    if application == 0 && version == 0 && objects == 0 {
        return Ok(0);
    }
    if application != i64::from(APPLICATION_ID) {
        return Err(foreign(path, &format!("application id {application:#x}, {objects} tables and indexes")));
    }
    match usize::try_from(version) {
        Ok(known) if (1..=MIGRATIONS.len()).contains(&known) => Ok(known),
        _ => Err(Failure::new(
            ErrorKind::BackendRejected,
            format!(
                "the lock file {} has schema version {version}, and this program knows only 1 to {}; it was \
                 left as it is, so update this program or give it another file",
                path.display(),
                MIGRATIONS.len()
            ),
        )),
    }
}

fn configure(conn: &Connection, path: &Path, end: BootInstant) -> Result<(), Failure> {
    let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, path);
    let busy = Some(rusqlite::ErrorCode::DatabaseBusy);
    // Two processes that open a new file at once collide here in a way that the busy handler is not
    // asked about, to avoid a deadlock.
    let mode = loop {
        match conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Err(error) if error.sqlite_error_code() == busy && SystemClock.now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => break other.map_err(fail)?,
        }
    };
    if mode != "wal" {
        return Err(Failure::new(
            ErrorKind::BackendRejected,
            format!(
                "the lock file {} is on a file system without shared memory (its log mode stays {mode:?}); \
                 put it on a local disk",
                path.display()
            ),
        ));
    }
    // NORMAL does not sync at every commit, so a power cut may undo the last ones (never tear one).
    // That is sound here: a power cut is a new boot, which voids every lease and every place in line
    // anyway, and numbers go on above `store.reserved`, which is synced. A crash of a process loses
    // nothing, because what it wrote is in the kernel's hands.
    conn.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 8388608; PRAGMA trusted_schema = OFF;",
    )
    .map_err(fail)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Runs what migrations are missing, and voids what is left from another boot. One transaction, so
/// that of two processes which open a new file one does it and the other finds it done.
fn take_over(conn: &mut Connection, path: &Path, host: &Host) -> Result<(), Failure> {
    let fail = |error: rusqlite::Error| Failure::of_sqlite(&error, path);
    // The new reservation has to be on the disk before a number of this boot is given out.
    conn.execute_batch("PRAGMA synchronous = FULL").map_err(fail)?;
    let change = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    let version = whose(&change, path)?;
    if version < MIGRATIONS.len() {
        for migration in &MIGRATIONS[version..] {
            change.execute_batch(migration).map_err(fail)?;
        }
        change.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
        change.pragma_update(None, "user_version", MIGRATIONS.len() as i64).map_err(fail)?;
    }
    let boot: String = change.query_row("SELECT boot FROM store", [], |row| row.get(0)).map_err(fail)?;
    if boot == host.boot {
        change.commit().map_err(fail)?;
    } else {
        change
            .execute_batch("DELETE FROM lease; DELETE FROM waiter; DELETE FROM client;")
            .and_then(|()| {
                change.execute(
                    "UPDATE store SET boot = ?1, counter = max(counter, reserved), \
                     reserved = max(counter, reserved, ?2) + ?3",
                    params![host.boot, host.now().wall_us, RESERVE_US],
                )
            })
            .and_then(|_| change.commit())
            .map_err(fail)?;
    }
    conn.execute_batch("PRAGMA synchronous = NORMAL").map_err(fail)
}
