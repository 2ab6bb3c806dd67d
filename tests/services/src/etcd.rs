//! A real etcd per test: one member, or three that elect a leader.
//!
//! The programs are `etcd` and `etcdctl` on PATH, or where `tests/provision.sh` puts them.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::http::{self, Answer};
use crate::port::ReservedPort;
use crate::tls::{Flaw, TestCa, TlsFiles};
use crate::wait::{poll, wait_for};
use crate::{TempDir, proc};

/// How long a member may take to answer with a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// One member on 127.0.0.1, gone with its value.
///
/// Every method takes `&self`: one thread may hurt the member while others use it.
#[derive(Debug)]
pub struct EtcdMember {
    name: String,
    clients: ReservedPort,
    /// Another port of clients, with TLS.
    secure: Option<(ReservedPort, TlsFiles)>,
    peers: ReservedPort,
    /// More of its command line.
    flags: &'static [&'static str],
    child: Mutex<Option<Child>>,
    dir: TempDir,
}

impl EtcdMember {
    /// Starts a member of its own. Panics with its log.
    #[track_caller]
    pub fn start() -> EtcdMember {
        EtcdMember::prepare("m0").unwrap_or_else(|error| panic!("{error}")).started()
    }

    /// The same with a second port of clients that speaks TLS.
    #[track_caller]
    pub fn start_with_tls(ca: &TestCa, flaw: Flaw) -> EtcdMember {
        let prepare = || {
            let mut member = EtcdMember::prepare("m0")?;
            member.secure = Some((ReservedPort::new()?, TlsFiles::write(member.dir.path(), ca, flaw)?));
            io::Result::Ok(member)
        };
        prepare().unwrap_or_else(|error| panic!("{error}")).started()
    }

    /// A member that does not answer JSON, as old ones do not.
    #[track_caller]
    pub fn start_without_gateway() -> EtcdMember {
        let mut member = EtcdMember::prepare("m0").unwrap_or_else(|error| panic!("{error}"));
        member.flags = &["--enable-grpc-gateway=false"];
        member.run(&member.as_peer()).unwrap_or_else(|error| panic!("{error}"));
        let is_healthy =
            || http::request(member.address(), "GET", "/health", &[], "").ok()?.is_ok().then_some(());
        assert!(poll(PATIENCE, is_healthy).is_some(), "the member is not healthy:\n{}", member.log_tail());
        member
    }

    /// Another member that follows this one, and does not vote.
    #[track_caller]
    pub fn start_learner(&self) -> EtcdMember {
        let mut learner = EtcdMember::prepare("learner").unwrap_or_else(|error| panic!("{error}"));
        learner.flags = &["--initial-cluster-state=existing"];
        let peers = format!("--peer-urls=http://{}", learner.peers.address());
        self.run_command(&["member", "add", "learner", "--learner", &peers]);
        let all = format!("{},{}", self.as_peer(), learner.as_peer());
        learner.run(&all).unwrap_or_else(|error| panic!("{error}"));
        let learns = || {
            let status = learner.try_ask("/v3/maintenance/status", "{}").ok()?;
            status.body.contains("\"isLearner\":true").then_some(())
        };
        assert!(poll(PATIENCE, learns).is_some(), "the member does not learn:\n{}", learner.log_tail());
        learner
    }

    #[track_caller]
    fn started(self) -> EtcdMember {
        let member = self;
        let all = member.as_peer();
        member.run(&all).unwrap_or_else(|error| panic!("{error}"));
        member.wait_for_leader();
        member
    }

    fn prepare(name: &str) -> io::Result<EtcdMember> {
        Ok(EtcdMember {
            name: name.into(),
            clients: ReservedPort::new()?,
            secure: None,
            peers: ReservedPort::new()?,
            flags: &[],
            child: Mutex::new(None),
            dir: TempDir::try_new()?,
        })
    }

    /// The address that a client dials; the same after every restart.
    pub fn address(&self) -> SocketAddr {
        self.clients.address()
    }

    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// The port that speaks TLS, by the name in the certificate, and the files of it. Panics for a member without TLS.
    #[track_caller]
    pub fn tls(&self) -> (String, &TlsFiles) {
        match &self.secure {
            Some((port, files)) => (format!("etcd+https://localhost:{}", port.number()), files),
            None => panic!("this member was started without TLS"),
        }
    }

    /// The id of the running process. Panics while the member is stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &*self.child() {
            Some(child) => child.id(),
            None => panic!("the member is stopped"),
        }
    }

    /// Sends one request of the JSON gateway. Panics if there is no answer.
    #[track_caller]
    pub fn ask(&self, target: &str, body: &str) -> Answer {
        match self.try_ask(target, body) {
            Ok(answer) => answer,
            Err(error) => panic!("no answer from the member: {error}\n{}", self.log_tail()),
        }
    }

    /// The same, for a member that may be down or silent (gives up after ten seconds).
    pub fn try_ask(&self, target: &str, body: &str) -> io::Result<Answer> {
        http::request(self.address(), "POST", target, &[], body)
    }

    /// The `etcdctl` program, pointed at this member.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("etcdctl"));
        command
            .args(words)
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", format!("http://{}", self.address()));
        command
    }

    /// Runs `etcdctl` to its end and returns what it printed. Panics if it fails.
    #[track_caller]
    pub fn run_command(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap_or_else(|error| panic!("etcdctl: {error}"));
        assert!(output.status.success(), "etcdctl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts `etcdctl` so that it cannot outlive the test process.
    pub fn spawn(&self, words: &[&str]) -> io::Result<Child> {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        crate::child::spawn(command)
    }

    /// Kills the member (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the process where it stands (SIGSTOP). Connections stay open and silent.
    #[track_caller]
    pub fn pause(&self) {
        proc::pause(self.pid());
    }

    /// Lets a paused member continue (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    /// Starts a killed member again, on the same ports, with its data. Does not wait.
    #[track_caller]
    pub fn start_again(&self) {
        assert!(self.child().is_none(), "the member is still running");
        // A member that has data does not read the list of its peers.
        self.run(&self.as_peer()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until it carries out what needs a majority.
    #[track_caller]
    pub fn wait_for_leader(&self) {
        let ready = poll(PATIENCE, || {
            let read = self.try_ask("/v3/kv/range", "{\"key\":\"AA==\"}").ok()?;
            read.is_ok().then_some(())
        });
        assert!(ready.is_some(), "the member has no leader:\n{}", self.log_tail());
    }

    /// Whether it says of itself that it leads.
    pub fn leads(&self) -> bool {
        let Ok(status) = self.try_ask("/v3/maintenance/status", "{}") else { return false };
        let field = |name: &str| {
            let (_, rest) = status.body.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        field("leader").is_some_and(|leader| field("member_id") == Some(leader))
    }

    /// The last lines the member wrote, over all restarts.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("etcd.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn as_peer(&self) -> String {
        format!("{}=http://{}", self.name, self.peers.address())
    }

    fn run(&self, all: &str) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.dir.join("etcd.log"))?;
        let mut clients = format!("http://{}", self.clients.address());
        let peers = format!("http://{}", self.peers.address());
        let mut command = Command::new(program("etcd"));
        if let Some((port, files)) = &self.secure {
            clients.push_str(&format!(",https://{}", port.address()));
            command.arg("--cert-file").arg(&files.cert).arg("--key-file").arg(&files.key);
        }
        command
            .args(["--name", &self.name, "--data-dir"])
            .arg(self.dir.join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", all, "--initial-cluster-token"])
            .arg(format!("test {all}"))
            // Elections of a second would make tests wait; and the shortest lease is one and a half of this.
            .args(["--heartbeat-interval=30", "--election-timeout=300", "--logger=zap"])
            .args(self.flags)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = crate::child::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "there is no etcd program: put one on PATH, or let tests/provision.sh fetch it (need_etcd)",
            ),
            _ => error,
        })?;
        *self.child() = Some(child);
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A panicking assertion elsewhere must not keep the member alive.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EtcdMember {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three members, one of which leads.
#[derive(Debug)]
pub struct EtcdCluster {
    pub members: Vec<EtcdMember>,
}

impl EtcdCluster {
    /// Starts them and waits for an election.
    #[track_caller]
    pub fn start() -> EtcdCluster {
        let members: Vec<_> = (0..3)
            .map(|number| {
                EtcdMember::prepare(&format!("m{number}")).unwrap_or_else(|error| panic!("{error}"))
            })
            .collect();
        let all = members.iter().map(EtcdMember::as_peer).collect::<Vec<_>>().join(",");
        for member in &members {
            member.run(&all).unwrap_or_else(|error| panic!("{error}"));
        }
        members.iter().for_each(EtcdMember::wait_for_leader);
        EtcdCluster { members }
    }

    /// All members.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.members.iter().map(|member| member.address().to_string()).collect();
        format!("etcd://{}", places.join(","))
    }

    /// The member that leads. Waits for an election.
    #[track_caller]
    pub fn leader(&self) -> &EtcdMember {
        Self::leader_of(self.members.iter())
    }

    /// The member that leads instead of this one, which is hurt. Waits for an election.
    #[track_caller]
    pub fn leader_instead_of(&self, hurt: &EtcdMember) -> &EtcdMember {
        Self::leader_of(self.members.iter().filter(|member| member.address() != hurt.address()))
    }

    #[track_caller]
    fn leader_of<'all>(members: impl Iterator<Item = &'all EtcdMember> + Clone) -> &'all EtcdMember {
        wait_for("a member that leads", PATIENCE, || {
            members.clone().find(|member| member.child().is_some() && member.leads())
        })
    }
}

/// `etcd` or `etcdctl`: on PATH, in the folder that `POLYLATCH_TEST_ETCD` names, or in the tests' cache.
fn program(name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os("POLYLATCH_TEST_ETCD").filter(|named| !named.is_empty()) {
        return PathBuf::from(named).join(name);
    }
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cached = cache.map(|cache| cache.join("polylatch-tests").join(name)).filter(|path| path.is_file());
    match cached {
        Some(cached) if !on_path => cached,
        _ => PathBuf::from(name),
    }
}
