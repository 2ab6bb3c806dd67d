//! A paused holder against an SQL table that checks fencing tokens itself.
//!
//! Two real processes: this program starts itself a second time as the first holder, and stops that
//! process (SIGSTOP) for longer than its lease. When it continues it writes without looking, as code
//! does that checked its lease just before the pause. The table refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylatch::resource::{FencedUpdate, Placeholders, Unchanged, token_value};
use polylatch::{FencingToken, Polylatch};
use rusqlite::{Connection, OptionalExtension, params};

type Fallible<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Sets the balance, unless a newer holder was here before. One statement checks and writes.
fn set_balance(database: &Path, balance: i64, token: FencingToken) -> Fallible {
    let write = FencedUpdate::update(Placeholders::Question, "account", "fence", &["balance"], &["id"])?;
    let connection = Connection::open(database)?;
    if connection.execute(write.sql(), params![balance, token_value(token)?, 7])? == 1 {
        return Ok(());
    }
    // Nothing changed: refused, or is the row not there?
    let found = connection.query_row(write.probe_sql(), [7], |row| row.get(0)).optional()?;
    Err(match FencedUpdate::why_unchanged(token, found) {
        Unchanged::Refused(refused) => polylatch::Error::from(refused).into(),
        Unchanged::Missing => "there is no account 7".into(),
        Unchanged::ChangedMeanwhile => "the account changed meanwhile; write again".into(),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible {
    let mut args = std::env::args().skip(1);
    if let (Some(url), Some(database)) = (args.next(), args.next()) {
        return first_holder(&url, Path::new(&database)).await;
    }
    let folder = std::env::temp_dir().join(format!("polylatch-guarded-sql-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let told = story(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    told
}

async fn story(folder: &Path) -> Fallible {
    let database: PathBuf = folder.join("accounts.db");
    let table =
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0);
                 INSERT INTO account (id, balance) VALUES (7, 0)";
    Connection::open(&database)?.execute_batch(table)?;
    let url = std::env::var("POLYLATCH_URL");
    let url = url.unwrap_or_else(|_| format!("sqlite:{}", folder.join("locks.db").display()));
    let client = Polylatch::connect(&url).await?;

    let first = Command::new(std::env::current_exe()?)
        .arg(&url)
        .arg(&database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut first = EndsWithUs(first);
    let pid = first.0.id();
    let mut said = BufReader::new(first.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line)?;
    print!("{line}");
    signal("STOP", pid)?;
    // A process that stops within a write to an SQLite file keeps everybody out of it. Then it is stopped a little later.
    for _ in 0..20 {
        if client.lock("anything else").try_acquire().await.is_ok() {
            break;
        }
        signal("CONT", pid)?;
        tokio::time::sleep(Duration::from_millis(10)).await;
        signal("STOP", pid)?;
    }
    println!("process {pid} is stopped; its lease runs out");

    let next = client.lock("account/7").wait(Duration::from_secs(30)).acquire().await?;
    set_balance(&database, 150, next.fencing_token())?;
    println!("second holder has token {} and wrote 150", next.fencing_token());

    signal("CONT", pid)?;
    writeln!(first.0.stdin.take().expect("it is piped"), "go on")?;
    line.clear();
    said.read_to_string(&mut line)?;
    print!("{line}");
    assert!(first.0.wait()?.success() && line.contains("is refused"));

    let balance: i64 =
        Connection::open(&database)?
            .query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0))?;
    assert_eq!(balance, 150);
    next.release().await?;
    client.close().await;
    Ok(())
}

/// A process that does not outlive this one, not even stopped, if something fails here.
struct EndsWithUs(Child);

impl Drop for EndsWithUs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process.
async fn first_holder(url: &str, database: &Path) -> Fallible {
    let client = Polylatch::connect(url).await?;
    let guard = client.lock("account/7").lease(Duration::from_millis(1500)).acquire().await?;
    println!("first holder has token {}", guard.fencing_token());
    std::io::stdin().read_line(&mut String::new())?;
    // A careful program asks guard.check() here, which reports that the lease is lost. But the pause
    // might as well come right behind that check.
    let late = set_balance(database, 100, guard.fencing_token()).expect_err("a newer holder wrote");
    println!("first holder goes on; its write is refused: {late}");
    assert!(!guard.is_held());
    Ok(())
}

fn signal(name: &str, pid: u32) -> Fallible {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err(format!("kill -{name} {pid}: {sent}").into()) }
}
