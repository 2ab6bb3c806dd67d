//! A real ZooKeeper per test: one server, or three that elect a leader.
//!
//! It is a Java program: `java` on PATH, and the archive that Debian's package `libzookeeper-java` installs, or what
//! `POLYLATCH_TEST_ZOOKEEPER` names (a class path).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::port::ReservedPort;
use crate::tls::{Flaw, TestCa, TlsFiles};
use crate::wait::{poll, wait_for};
use crate::{TempDir, proc};

/// How long a server may take to serve: a Java machine starts, and members elect.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one request of an operator may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Debian's archive, a logger that writes to the standard error output, and what TLS needs beside what the archive names.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:\
                          /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";

/// How a server counts time. Sessions last from 2 to `most` ticks.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    pub millis: u32,
    pub most: u32,
}

impl Default for Ticks {
    /// Sessions from 0.4 s to 40 minutes.
    fn default() -> Self {
        Ticks { millis: 200, most: 12_000 }
    }
}

/// One server on 127.0.0.1, gone with its value.
///
/// Every method takes `&self`: one thread may hurt the server while others use it.
#[derive(Debug)]
pub struct ZooKeeper {
    number: usize,
    clients: ReservedPort,
    /// Another port of clients, with TLS.
    secure: Option<(ReservedPort, TlsFiles)>,
    peers: ReservedPort,
    elections: ReservedPort,
    ticks: Ticks,
    /// Of the Java machine.
    flags: &'static [&'static str],
    child: Mutex<Option<Child>>,
    dir: TempDir,
}

impl ZooKeeper {
    /// Starts a server of its own. Panics with its log.
    #[track_caller]
    pub fn start() -> ZooKeeper {
        ZooKeeper::start_with(Ticks::default(), "")
    }

    /// The same with other ticks and more lines of its configuration.
    #[track_caller]
    pub fn start_with(ticks: Ticks, lines: &str) -> ZooKeeper {
        let server = ZooKeeper::prepare(1, ticks).unwrap_or_else(|error| panic!("{error}"));
        server.configure(lines).unwrap_or_else(|error| panic!("{error}"));
        server.start_again();
        server.wait_until_it_serves();
        server
    }

    /// A server with a second port of clients that speaks TLS and requires certificates of its authority from them.
    #[track_caller]
    pub fn start_with_tls(ca: &TestCa, flaw: Flaw) -> ZooKeeper {
        let prepare = || {
            let mut server = ZooKeeper::prepare(1, Ticks::default())?;
            let files = TlsFiles::write(server.dir.path(), ca, flaw)?;
            let port = ReservedPort::new()?;
            let both = server.dir.join("server.pem");
            fs::write(&both, fs::read_to_string(&files.key)? + &fs::read_to_string(&files.cert)?)?;
            let lines = format!(
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n",
                port.number(),
                both.display(),
                files.ca.display()
            );
            server.secure = Some((port, files));
            server.configure(&lines)?;
            io::Result::Ok(server)
        };
        let server = prepare().unwrap_or_else(|error| panic!("{error}"));
        server.start_again();
        server.wait_until_it_serves();
        let listens = |(port, _): &(ReservedPort, TlsFiles)| TcpStream::connect(port.address()).is_ok();
        wait_for("the port with TLS", PATIENCE, || server.secure.as_ref().filter(|secure| listens(secure)));
        server
    }

    /// The port that speaks TLS, by the name in the certificate, and the files of it. Panics for a server without TLS.
    #[track_caller]
    pub fn tls(&self) -> (String, &TlsFiles) {
        match &self.secure {
            Some((port, files)) => (format!("zookeepers://localhost:{}", port.number()), files),
            None => panic!("this server was started without TLS"),
        }
    }

    fn prepare(number: usize, ticks: Ticks) -> io::Result<ZooKeeper> {
        Ok(ZooKeeper {
            number,
            clients: ReservedPort::new()?,
            secure: None,
            peers: ReservedPort::new()?,
            elections: ReservedPort::new()?,
            ticks,
            flags: &[],
            child: Mutex::new(None),
            dir: TempDir::try_new()?,
        })
    }

    fn configure(&self, more: &str) -> io::Result<()> {
        let data = self.dir.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), self.number.to_string())?;
        let Ticks { millis, most } = self.ticks;
        let lines = format!(
            "tickTime={millis}\nmaxSessionTimeout={}\ninitLimit=50\nsyncLimit=10\ndataDir={}\nclientPort={}\n\
             clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n{more}\n",
            u64::from(millis) * u64::from(most),
            data.display(),
            self.clients.number()
        );
        fs::write(self.dir.join("zoo.cfg"), lines)
    }

    /// The address that a client dials; the same after every restart.
    pub fn address(&self) -> SocketAddr {
        self.clients.address()
    }

    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// The id of the running process. Panics while the server is stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &*self.child() {
            Some(child) => child.id(),
            None => panic!("the server is stopped"),
        }
    }

    /// Sends a command of four letters, and returns what it answers.
    pub fn ask(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(), ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What this server is: `standalone`, `leader`, `follower`, `read-only`; `None` while it serves no clients.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Runs one command of ZooKeeper's own command line, and returns what it printed. Panics if it fails.
    #[track_caller]
    pub fn run_command(&self, words: &[&str]) -> String {
        let output = java()
            .args(["org.apache.zookeeper.ZooKeeperMain", "-server", &self.address().to_string()])
            .args(words)
            .current_dir(self.dir.path())
            .output()
            .unwrap_or_else(|error| panic!("java: {error}"));
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Ends another client's session as that client would, so that what an expired session leaves is there at once.
    #[track_caller]
    pub fn end_session(&self, session: i64) {
        let end = || -> io::Result<()> {
            let mut stream = TcpStream::connect_timeout(&self.address(), ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            let mut connect = vec![0, 0, 0, 45];
            connect.extend([0; 12]);
            connect.extend(400_i32.to_be_bytes());
            connect.extend(session.to_be_bytes());
            connect.extend(16_i32.to_be_bytes());
            connect.extend(password_of(session));
            connect.push(0);
            // Together with `closeSession`: its client takes the session back as soon as it is gone.
            connect.extend([0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5]);
            stream.write_all(&connect)?;
            let mut answer = [0; 41];
            stream.read_exact(&mut answer)?;
            if answer[12..20] == [0; 8] {
                // An attempt before has ended it.
                return Ok(());
            }
            let mut answer = [0; 20];
            stream.read_exact(&mut answer)?;
            match answer[16..] {
                [0, 0, 0, 0] => Ok(()),
                _ => Err(io::Error::other("its client has taken it back")),
            }
        };
        let ended = poll(PATIENCE, || end().ok());
        assert!(ended.is_some(), "session {session:#x} could not be ended\n{}", self.log_tail());
    }

    /// Kills the server (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the process where it is (SIGSTOP). Connections stay open and silent.
    #[track_caller]
    pub fn pause(&self) {
        proc::pause(self.pid());
    }

    /// Lets a paused server continue (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    /// Starts a server that is not running, on the same ports, with its data. Does not wait.
    #[track_caller]
    pub fn start_again(&self) {
        assert!(self.child().is_none(), "the server is still running");
        self.run().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until it serves clients.
    #[track_caller]
    pub fn wait_until_it_serves(&self) {
        let serves = poll(PATIENCE, || self.mode());
        assert!(serves.is_some(), "the server does not serve:\n{}", self.log_tail());
    }

    /// The last lines the server wrote, over all restarts.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("zookeeper.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn as_peer(&self) -> String {
        let (peers, elections) = (self.peers.number(), self.elections.number());
        format!("server.{}=127.0.0.1:{peers}:{elections}", self.number)
    }

    fn run(&self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.dir.join("zookeeper.log"))?;
        let mut command = java();
        command
            .args(self.flags)
            .args(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"])
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = crate::child::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "there is no java program: let tests/provision.sh install it and ZooKeeper (need_zookeeper)",
            ),
            _ => error,
        })?;
        *self.child() = Some(child);
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A panicking assertion elsewhere must not keep the server alive.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three members, one of which leads.
#[derive(Debug)]
pub struct Ensemble {
    pub members: Vec<ZooKeeper>,
}

impl Ensemble {
    /// Starts them and waits for an election.
    #[track_caller]
    pub fn start() -> Ensemble {
        Ensemble::start_with(&[])
    }

    /// The same with words for the Java machine of each member.
    #[track_caller]
    pub fn start_with(flags: &'static [&'static str]) -> Ensemble {
        let prepared: io::Result<Vec<_>> = (1..=3)
            .map(|number| {
                let mut member = ZooKeeper::prepare(number, Ticks::default())?;
                member.flags = flags;
                Ok(member)
            })
            .collect();
        let members = prepared.unwrap_or_else(|error| panic!("{error}"));
        let all = members.iter().map(ZooKeeper::as_peer).collect::<Vec<_>>().join("\n");
        for member in &members {
            member.configure(&all).unwrap_or_else(|error| panic!("{error}"));
            member.start_again();
        }
        members.iter().for_each(ZooKeeper::wait_until_it_serves);
        Ensemble { members }
    }

    /// All members.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.members.iter().map(|member| member.address().to_string()).collect();
        format!("zookeeper://{}", places.join(","))
    }

    /// The member that leads. Waits for an election.
    #[track_caller]
    pub fn leader(&self) -> &ZooKeeper {
        Self::leader_of(self.members.iter())
    }

    /// The member that leads instead of this one, which is hurt. Waits for an election.
    #[track_caller]
    pub fn leader_instead_of(&self, hurt: &ZooKeeper) -> &ZooKeeper {
        Self::leader_of(self.members.iter().filter(|member| member.address() != hurt.address()))
    }

    #[track_caller]
    fn leader_of<'all>(members: impl Iterator<Item = &'all ZooKeeper> + Clone) -> &'all ZooKeeper {
        wait_for("a member that leads", PATIENCE, || {
            members
                .clone()
                .find(|member| member.child().is_some() && member.mode().as_deref() == Some("leader"))
        })
    }
}

/// The password that a server makes for a session (`ZooKeeperServer.generatePasswd`: Java's `Random`).
fn password_of(session: i64) -> Vec<u8> {
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = (session as u64 ^ 0xB341_5C00 ^ 0x5_DEEC_E66D) & MASK;
    let mut bytes = Vec::new();
    while bytes.len() < 16 {
        seed = seed.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        bytes.extend(((seed >> 16) as u32).to_le_bytes());
    }
    bytes
}

/// A small machine that starts fast.
fn java() -> Command {
    let named = std::env::var("POLYLATCH_TEST_ZOOKEEPER").ok().filter(|named| !named.is_empty());
    let mut command = Command::new("java");
    command
        .args([
            "-Xmx96m",
            "-Xss512k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-cp",
        ])
        .arg(named.as_deref().unwrap_or(CLASS_PATH));
    command
}
