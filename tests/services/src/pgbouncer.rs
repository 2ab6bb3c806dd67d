//! A PgBouncer in transaction mode before a PostgreSQL server.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::child;
use crate::database::{as_nobody, own};
use crate::port::ReservedPort;
use crate::postgres::PostgresServer;
use crate::temp::TempDir;
use crate::wait::wait_for;

/// It starts at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running pooler, stopped with its value.
#[derive(Debug)]
pub struct PgBouncer {
    _dir: TempDir,
    port: ReservedPort,
    process: Child,
}

impl PgBouncer {
    /// Starts one, with fewer connections to the server than clients have. `None` where it is not installed.
    #[track_caller]
    pub fn start(server: &PostgresServer) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|path| Path::new(path).is_file())?;
        let dir = TempDir::new();
        let port = ReservedPort::new().expect("a free port");
        let users = dir.join("users.txt");
        fs::write(&users, "\"postgres\" \"\"\n").expect("the folder is ours");
        let config = dir.join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = trust\n\
             auth_file = {}\npool_mode = transaction\ndefault_pool_size = 2\n",
            server.port(),
            port.number(),
            users.display()
        );
        fs::write(&config, text).expect("the folder is ours");
        // It refuses to be root.
        for path in [dir.path(), &users, &config] {
            own(path);
        }
        let mut command = as_nobody(Path::new(program), dir.path());
        command.arg(&config).stdout(Stdio::null());
        command.stderr(fs::File::create(dir.join("log")).expect("the folder is ours"));
        let mut process = child::spawn(command).expect("pgbouncer can be started");
        wait_for("PgBouncer to answer", PATIENCE, || {
            if let Ok(Some(ended)) = process.try_wait() {
                panic!(
                    "pgbouncer ended ({ended}): {}",
                    fs::read_to_string(dir.join("log")).unwrap_or_default()
                );
            }
            std::net::TcpStream::connect(("127.0.0.1", port.number())).ok()
        });
        Some(Self { _dir: dir, port, process })
    }

    /// The URL of the superuser's database by way of the pooler, without options.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port.number())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
