//! What work costs beside its time: processor time of the client and of the server, and commands of the server.

use polylatch_test_services::redis::RedisServer;

/// What so many pairs have cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pairs: usize,
    sum: Spent,
}

/// What this process and a server had spent when they were read, or spent between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    client_secs: f64,
    server_secs: f64,
    calls: u64,
    inner: u64,
}

impl Spent {
    /// To be read before the work. Counting the commands costs the server more than a pair, so its time is read after it.
    pub fn before(server: &RedisServer) -> Self {
        let (calls, inner) = commands(server);
        let server_secs = server_secs(server);
        Self { calls, inner, server_secs, client_secs: client_secs() }
    }

    /// To be read after the work, in the opposite order.
    fn after(server: &RedisServer) -> Self {
        let client_secs = client_secs();
        let server_secs = server_secs(server);
        let (calls, inner) = commands(server);
        Self { calls, inner, server_secs, client_secs }
    }
}

impl Cost {
    /// Does so many pairs, and adds what they cost this process and the server.
    pub fn of<T>(&mut self, server: &RedisServer, pairs: usize, work: impl FnOnce() -> T) -> T {
        let before = Spent::before(server);
        let done = work();
        self.since(before, server, pairs);
        done
    }

    /// The same, where another process is the client: the work returns the CPU time that it has spent, in seconds.
    pub fn of_another<T>(
        &mut self,
        server: &RedisServer,
        pairs: usize,
        work: impl FnOnce() -> (T, f64),
    ) -> T {
        let before = Spent::before(server);
        let (done, client_secs) = work();
        let now = Spent { client_secs: before.client_secs + client_secs, ..Spent::after(server) };
        self.add(before, now, pairs);
        done
    }

    /// Adds what so many pairs have cost since then.
    pub fn since(&mut self, before: Spent, server: &RedisServer, pairs: usize) {
        self.add(before, Spent::after(server), pairs);
    }

    fn add(&mut self, before: Spent, now: Spent, pairs: usize) {
        self.sum.client_secs += now.client_secs - before.client_secs;
        self.sum.server_secs += now.server_secs - before.server_secs;
        self.sum.calls += now.calls - before.calls;
        self.sum.inner += now.inner - before.inner;
        self.pairs += pairs;
    }

    pub fn print(&self) {
        let each = |sum: f64| sum / self.pairs as f64;
        println!(
            "    a pair: {:.1} µs of the client's processor, {:.1} µs of the server's; {:.2} calls of scripts, {:.2} other \
             commands",
            each(self.sum.client_secs * 1e6),
            each(self.sum.server_secs * 1e6),
            each(self.sum.calls as f64),
            each(self.sum.inner as f64),
        );
    }
}

/// The CPU time of the server since its start.
pub fn server_secs(server: &RedisServer) -> f64 {
    let reply = server.command(&["INFO", "cpu"]);
    let of = |line: &str| {
        let value = line.strip_prefix("used_cpu_sys:").or_else(|| line.strip_prefix("used_cpu_user:"))?;
        value.trim().parse::<f64>().ok()
    };
    reply.text().unwrap_or_default().lines().filter_map(of).sum()
}

/// The CPU time of this process.
pub fn client_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How many scripts the server was called for, and how many other commands it has carried out, within the scripts and beside
/// them, without what this program asks.
pub fn commands(server: &RedisServer) -> (u64, u64) {
    let reply = server.command(&["INFO", "commandstats"]);
    let (mut scripts, mut others) = (0, 0);
    for line in reply.text().unwrap_or_default().lines() {
        let Some((command, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
        else {
            continue;
        };
        let calls: u64 = rest.split(',').next().and_then(|calls| calls.parse().ok()).unwrap_or(0);
        match command {
            "info" => {}
            _ if command.starts_with("eval") => scripts += calls,
            _ => others += calls,
        }
    }
    (scripts, others)
}
