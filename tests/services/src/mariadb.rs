//! A MariaDB server on a free loopback port, with throw-away data that it syncs to disk as usual.

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
use crate::wait::wait_for;
use crate::{child, proc};

/// A data folder is made in six seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The user that has to give [`PASSWORD`] by `mysql_native_password`; [`ROOT`] has none.
pub const GUARDED: &str = "guarded";

/// The user that needs a client certificate.
pub const CERTIFIED: &str = "certified";

/// The password of [`GUARDED`].
pub const PASSWORD: &str = "maria-s3cret";

/// The user that may do everything.
pub const ROOT: &str = "root";

/// Small files: a data folder is copied for every server.
const SMALL: [&str; 2] = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"];

/// A log that tests do not fill: at the end of a full one all clients wait, for seconds on a busy disk, until the pages are
/// written that it is about.
const ROOMY: [&str; 2] = ["--innodb-log-file-size=96M", "--innodb-buffer-pool-size=64M"];

/// A running server, stopped with its value.
#[derive(Debug)]
pub struct MariadbServer {
    dir: TempDir,
    port: ReservedPort,
    settings: Vec<String>,
    tls: Option<TlsFiles>,
    process: Mutex<Option<Child>>,
}

impl MariadbServer {
    /// Starts a server with the usual settings.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with settings such as `max-connections=20`.
    #[track_caller]
    pub fn with(settings: &[&str]) -> Self {
        Self::made(settings, None)
    }

    /// Starts a server that offers TLS by a certificate with this flaw.
    #[track_caller]
    pub fn with_tls(flaw: Flaw) -> Self {
        Self::made(&[], Some(flaw))
    }

    #[track_caller]
    fn made(settings: &[&str], tls: Option<Flaw>) -> Self {
        let dir = TempDir::new();
        let tls =
            tls.map(|flaw| TlsFiles::write(dir.path(), &TestCa::new(), flaw).expect("the folder is ours"));
        let mut settings: Vec<_> = settings.iter().map(|setting| format!("--{setting}")).collect();
        if let Some(tls) = &tls {
            for (name, path) in [("cert", &tls.cert), ("key", &tls.key), ("ca", &tls.ca)] {
                settings.push(format!("--ssl-{name}={}", path.display()));
                own(path);
            }
        }
        own(dir.path());
        copy(&template(), &dir.join("data"));
        let server = Self {
            dir,
            port: ReservedPort::new().expect("a free port"),
            settings,
            tls,
            process: Mutex::new(None),
        };
        server.start_again();
        server.sql(&format!(
            "CREATE OR REPLACE USER '{ROOT}'@'127.0.0.1'; GRANT ALL ON *.* TO '{ROOT}'@'127.0.0.1' WITH GRANT OPTION; \
             CREATE USER '{GUARDED}'@'%' IDENTIFIED BY '{PASSWORD}'; CREATE DATABASE locks; \
             CREATE USER '{CERTIFIED}'@'%' REQUIRE X509; GRANT ALL ON locks.* TO '{CERTIFIED}'@'%'"
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

    /// The URL of the database `locks`, without options.
    pub fn url(&self) -> String {
        self.url_of(ROOT, "locks")
    }

    /// The same for another user and database.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}/{database}", self.port())
    }

    /// The same by way of a proxy that forwards to this server.
    pub fn url_through(&self, proxy: SocketAddr) -> String {
        format!("mysql://{ROOT}@{proxy}/locks")
    }

    /// Runs SQL as the user who may do everything; returns rows as lines, columns separated by tabs.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, or what the server says against it.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.script_as(ROOT, "", sql)
    }

    /// Runs a script as another user in a database.
    pub fn script_as(&self, user: &str, database: &str, script: &str) -> Result<String, String> {
        let mut client = Command::new(program("mariadb"));
        client
            .args(["--no-defaults", "--batch", "--skip-column-names", "--user", user])
            .arg(format!("--socket={}", self.socket().display()))
            .args((!database.is_empty()).then_some(database))
            .current_dir(self.dir.path());
        run(client, script)
    }

    /// What the server has logged since it was started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Ends the connections of clients over TCP (`KILL`); returns how many.
    pub fn kill_connections(&self) -> usize {
        let ids = self.sql(
            "SELECT id FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%' AND command <> 'Killed'",
        );
        // One may have ended by itself meanwhile.
        ids.lines().filter(|id| self.try_sql(&format!("KILL {id}")).is_ok()).count()
    }

    /// Whether it was not killed, or was started again.
    pub fn is_running(&self) -> bool {
        self.slot().is_some()
    }

    /// Kills it (SIGKILL), as a power failure would end it.
    pub fn kill(&self) {
        let mut slot = self.slot();
        let Some(server) = slot.as_mut() else { return };
        let _ = server.kill();
        let _ = server.wait();
        *slot = None;
    }

    /// Stops it where it stands (SIGSTOP).
    pub fn pause(&self) {
        if let Some(server) = self.slot().as_ref() {
            proc::pause(server.id());
        }
    }

    /// Lets it go on.
    pub fn resume(&self) {
        if let Some(server) = self.slot().as_ref() {
            proc::resume(server.id());
        }
    }

    /// Starts a killed server with the data that it left.
    #[track_caller]
    pub fn start_again(&self) {
        let mut command = as_nobody(&program("mariadbd"), self.dir.path());
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--max-connections=300"]);
        command.arg(format!("--datadir={}", self.dir.join("data").display()));
        command.arg(format!("--socket={}", self.socket().display()));
        command.arg(format!("--pid-file={}", self.dir.join("pid").display()));
        command.arg(format!("--port={}", self.port()));
        // Names of hosts are not looked up, so 127.0.0.1 is that and not localhost.
        command.arg("--skip-name-resolve").args(ROOMY).args(&self.settings);
        let log = fs::File::create(self.dir.join("log")).expect("the folder is ours");
        command.stdout(Stdio::null()).stderr(log);
        let server = child::spawn(command).expect("mariadbd can be started");
        *self.slot() = Some(server);
        wait_for("MariaDB to answer", PATIENCE, || {
            if let Some(ended) = self.slot().as_mut().and_then(|server| server.try_wait().ok().flatten()) {
                panic!("mariadbd ended ({ended}): {}", self.log());
            }
            self.try_sql("SELECT 1").ok()
        });
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn slot(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MariadbServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A data folder as a new server has it. It is made once for all tests of this machine, and stays.
fn template() -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let user = rustix::process::geteuid().as_raw();
    let place = std::env::temp_dir().join(format!("polylatch-mariadb-{user}"));
    if place.join("is-complete").exists() {
        return place.join("data");
    }
    let made = TempDir::new();
    own(made.path());
    let data = made.join("data");
    let output = as_nobody(&program("mariadb-install-db"), made.path())
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg(format!("--datadir={}", data.display()))
        .args(SMALL)
        .output()
        .expect("mariadb-install-db can be started");
    assert!(
        output.status.success(),
        "mariadb-install-db: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(made.join("is-complete"), "").expect("the folder is ours");
    // Another process may have made one meanwhile; both are the same.
    match fs::rename(made.path(), &place) {
        Ok(()) => place.join("data"),
        Err(_) if place.join("is-complete").exists() => place.join("data"),
        Err(error) => panic!("{} cannot be made: {error}", place.display()),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the folder is ours");
    own(to);
    for entry in fs::read_dir(from).expect("the template is ours") {
        let entry = entry.expect("the template is ours");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("the folder is ours");
            own(&target);
        }
    }
}

/// A program below the folder that `POLYLATCH_TEST_MARIADB` names, or of Debian's packages.
fn program(name: &str) -> PathBuf {
    let named =
        std::env::var_os("POLYLATCH_TEST_MARIADB").filter(|named| !named.is_empty()).map(PathBuf::from);
    let folders = named.map_or_else(|| vec!["/usr/sbin".into(), "/usr/bin".into()], |named| vec![named]);
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "there is no program {name}; install mariadb-server-core and mariadb-client-core, or name the folder of the \
             programs with POLYLATCH_TEST_MARIADB"
        )
    })
}
