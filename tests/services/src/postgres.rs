//! A PostgreSQL server on a free loopback port, with throw-away data that it syncs to disk as usual.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::database::{as_nobody, own, run};
use crate::port::ReservedPort;
use crate::temp::TempDir;
use crate::tls::{Flaw, TestCa, TlsFiles};
use crate::wait::{wait_for, wait_until};
use crate::{child, proc};

/// A cluster is made in three seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The role that has to give [`PASSWORD`]; all others are trusted.
pub const GUARDED: &str = "guarded";

/// The role that needs a client certificate at a server with TLS.
pub const CERTIFIED: &str = "certified";

/// The password of [`GUARDED`].
pub const PASSWORD: &str = "pg-s3cret";

/// A running server, stopped with its value.
#[derive(Debug)]
pub struct PostgresServer {
    dir: TempDir,
    port: ReservedPort,
    programs: PathBuf,
    settings: Vec<String>,
    tls: Option<TlsFiles>,
    process: Mutex<Option<Child>>,
}

impl PostgresServer {
    /// Starts a server with the usual settings.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with settings such as `max_connections=20`.
    #[track_caller]
    pub fn with(settings: &[&str]) -> Self {
        Self::made(settings, None)
    }

    /// Starts a server that takes TLS alone, by a certificate with this flaw. [`CERTIFIED`] needs a client certificate.
    #[track_caller]
    pub fn with_tls(flaw: Flaw) -> Self {
        Self::made(&[], Some(flaw))
    }

    #[track_caller]
    fn made(settings: &[&str], tls: Option<Flaw>) -> Self {
        let dir = TempDir::new();
        let tls =
            tls.map(|flaw| TlsFiles::write(dir.path(), &TestCa::new(), flaw).expect("the folder is ours"));
        let mut server = Self {
            dir,
            port: ReservedPort::new().expect("a free port"),
            programs: programs(),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            tls,
            process: Mutex::new(None),
        };
        if let Some(tls) = &server.tls {
            let file = |name: &str, path: &Path| format!("{name}={}", path.display());
            let settings = [
                "ssl=on".to_owned(),
                file("ssl_cert_file", &tls.cert),
                file("ssl_key_file", &tls.key),
                file("ssl_ca_file", &tls.ca),
            ];
            server.settings.extend(settings);
            for path in [&tls.cert, &tls.key, &tls.ca] {
                own(path);
            }
        }
        own(server.dir.path());
        let made = server
            .command("initdb")
            .args(["-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-E", "UTF8", "-D"])
            .arg(server.data())
            .output()
            .expect("initdb can be started; for root it runs as nobody, who must be able to reach the temporary folder");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let host = if server.tls.is_some() { "hostssl" } else { "host" };
        let certified = format!("hostssl all {CERTIFIED} 127.0.0.1/32 trust clientcert=verify-ca\n");
        let access = format!(
            "{}host all {GUARDED} 127.0.0.1/32 scram-sha-256\n{host} all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\nlocal all all trust\n",
            if server.tls.is_some() { &certified } else { "" }
        );
        fs::write(server.data().join("pg_hba.conf"), access).expect("the folder is ours");
        server.start_again();
        server.sql(&format!(
            "CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'; CREATE ROLE {CERTIFIED} LOGIN SUPERUSER"
        ));
        server
    }

    /// The files of a server with TLS.
    ///
    /// # Panics
    /// If this one has none.
    #[track_caller]
    pub fn tls(&self) -> &TlsFiles {
        self.tls.as_ref().expect("this server was started with TLS")
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// The URL of the superuser's database, without options.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same for another role.
    pub fn url_of(&self, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/postgres", self.port())
    }

    /// The same by way of a proxy that forwards to this server.
    pub fn url_through(&self, proxy: SocketAddr) -> String {
        format!("postgres://postgres@{proxy}/postgres")
    }

    /// Runs SQL as the superuser; returns rows as lines, columns separated by `|`.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, or what the server says against it.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.psql("postgres", &["-c", sql], "")
    }

    /// Runs a script as another role, as `psql -f` does.
    pub fn script_as(&self, role: &str, script: &str) -> Result<String, String> {
        self.psql(role, &["-f", "-"], script)
    }

    fn psql(&self, role: &str, args: &[&str], input: &str) -> Result<String, String> {
        let port = self.port().to_string();
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-d", "postgres"])
            .args(["-U", role, "-p", &port])
            .args(args);
        run(psql, input)
    }

    /// What the server has logged since it was started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Ends the connections of clients that call themselves Polylatch; returns how many.
    pub fn terminate_clients(&self) -> usize {
        let ended = self.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'polylatch'",
        );
        ended.parse().expect("a number")
    }

    /// Whether it was not killed, or was started again.
    pub fn is_running(&self) -> bool {
        self.slot().is_some()
    }

    /// Kills all of its processes (SIGKILL), as a power failure would end them.
    pub fn kill(&self) {
        let mut slot = self.slot();
        let Some(server) = slot.as_mut() else { return };
        let children = children_of(server.id());
        let _ = server.kill();
        proc::kill_children(&children);
        let _ = server.wait();
        *slot = None;
        drop(slot);
        wait_until("the processes of PostgreSQL to end", PATIENCE, || {
            !children.iter().any(|pid| proc::exists(*pid))
        });
    }

    /// Stops all of its processes where they stand (SIGSTOP).
    pub fn pause(&self) {
        if let Some(server) = self.slot().as_ref() {
            proc::pause(server.id());
            // Now it starts no more of them.
            proc::pause_children(&children_of(server.id()));
        }
    }

    /// Lets them go on.
    pub fn resume(&self) {
        if let Some(server) = self.slot().as_ref() {
            proc::resume_children(&children_of(server.id()));
            proc::resume(server.id());
        }
    }

    /// Starts a killed server with the data that it left.
    #[track_caller]
    pub fn start_again(&self) {
        let port = self.port().to_string();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.dir.path()).args(["-p", &port]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = fs::File::create(self.dir.join("log")).expect("the folder is ours");
        command.stdout(Stdio::null()).stderr(log);
        let server = child::spawn(command).expect("postgres can be started");
        *self.slot() = Some(server);
        wait_for("PostgreSQL to answer", PATIENCE, || {
            if let Some(ended) = self.slot().as_mut().and_then(|server| server.try_wait().ok().flatten()) {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                panic!("postgres ended ({ended}): {log}");
            }
            self.try_sql("SELECT 1").ok()
        });
    }

    /// Kills it, and starts it again as a standby that follows no primary.
    #[track_caller]
    pub fn become_standby(&self) {
        self.kill();
        let signal = self.data().join("standby.signal");
        fs::write(&signal, "").expect("the folder is ours");
        own(&signal);
        self.start_again();
    }

    /// Starts a standby that follows this server, from a copy of its data.
    #[track_caller]
    pub fn standby(&self) -> Self {
        let standby = Self {
            dir: TempDir::new(),
            port: ReservedPort::new().expect("a free port"),
            programs: programs(),
            settings: self.settings.clone(),
            tls: None,
            process: Mutex::new(None),
        };
        own(standby.dir.path());
        let copied = standby
            .command("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &self.port().to_string(), "-U", "postgres"])
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-D"])
            .arg(standby.data())
            .output()
            .expect("pg_basebackup can be started");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        standby.start_again();
        standby
    }

    /// Makes a standby a primary.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn command(&self, program: &str) -> Command {
        as_nobody(&self.programs.join(program), self.dir.path())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The programs that `POLYLATCH_TEST_POSTGRES` names a folder of, or Debian's newest.
fn programs() -> PathBuf {
    if let Some(named) = std::env::var_os("POLYLATCH_TEST_POSTGRES").filter(|named| !named.is_empty()) {
        return PathBuf::from(named);
    }
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| folder.join("postgres").is_file())
        .collect();
    found.sort();
    let Some((_, folder)) = found.pop() else {
        panic!(
            "there is no PostgreSQL below /usr/lib/postgresql; install it, or name its programs' folder with POLYLATCH_TEST_POSTGRES"
        )
    };
    folder
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // Behind the name, which may have spaces: state and parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
