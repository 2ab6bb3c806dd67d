//! What work costs beside its time: processor time of the client and of the server, and commands of the server.

use polylatch_test_services::redis::RedisServer;

/// What so many pairs have cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pairs: usize,
    client_secs: f64,
    server_secs: f64,
    calls: u64,
    inner: u64,
}

/// What this process and a server had spent when it was read.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    client_secs: f64,
    server_secs: f64,
    calls: u64,
    inner: u64,
}

impl Spent {
    pub fn until_now(server: &RedisServer) -> Self {
        let (server_secs, calls) = (server_secs(server), commands(server, is_script));
        Self { server_secs, calls, inner: commands(server, is_inner), client_secs: client_secs() }
    }
}

impl Cost {
    /// Does so many pairs, and adds what they cost this process and the server.
    pub fn of<T>(&mut self, server: &RedisServer, pairs: usize, work: impl FnOnce() -> T) -> T {
        let before = Spent::until_now(server);
        let done = work();
        self.since(before, server, pairs);
        done
    }

    /// Adds what so many pairs have cost since then.
    pub fn since(&mut self, before: Spent, server: &RedisServer, pairs: usize) {
        self.client_secs += client_secs() - before.client_secs;
        let now = Spent::until_now(server);
        self.server_secs += now.server_secs - before.server_secs;
        self.calls += now.calls - before.calls;
        self.inner += now.inner - before.inner;
        self.pairs += pairs;
    }

    pub fn print(&self) {
        let each = |sum: f64| sum / self.pairs as f64;
        println!(
            "    a pair: {:.1} µs of the client's processor, {:.1} µs of the server's; {:.2} calls of scripts, {:.2} other \
             commands",
            each(self.client_secs * 1e6),
            each(self.server_secs * 1e6),
            each(self.calls as f64),
            each(self.inner as f64),
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

pub fn is_script(command: &str) -> bool {
    command.starts_with("eval")
}

/// What the scripts carry out or a client sends beside them, without what this program asks.
pub fn is_inner(command: &str) -> bool {
    !is_script(command) && command != "info"
}

/// How many of these commands the server has carried out.
pub fn commands(server: &RedisServer, counts: fn(&str) -> bool) -> u64 {
    let reply = server.command(&["INFO", "commandstats"]);
    let text = reply.text().unwrap_or_default().to_owned();
    let of = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        counts(command).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}
