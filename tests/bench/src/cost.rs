//! What work costs beside its time: processor time of the client and of the server, and commands of the server.

use std::slice;

use polylatch_test_services::redis::RedisServer;

/// What so many pairs have cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pairs: usize,
    sum: Spent,
}

/// What this process and its servers had spent when they were read, or spent between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    client_secs: f64,
    server_secs: f64,
    commands: Commands,
}

/// What servers have carried out, without what this program asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Commands {
    /// Calls of scripts.
    pub scripts: u64,
    /// Other commands, within the scripts and beside them.
    pub others: u64,
    /// How long the scripts have run by the servers' clocks, µs.
    pub script_micros: u64,
}

impl Commands {
    /// Adds others.
    pub fn add(&mut self, others: Self) {
        self.scripts += others.scripts;
        self.others += others.others;
        self.script_micros += others.script_micros;
    }

    /// What was carried out from then till now.
    pub fn since(self, then: Self) -> Self {
        Self {
            scripts: self.scripts - then.scripts,
            others: self.others - then.others,
            script_micros: self.script_micros - then.script_micros,
        }
    }
}

impl Spent {
    /// To be read before the work. Counting the commands costs the server more than a pair, so its time is read after it.
    pub fn before(server: &RedisServer) -> Self {
        Self::before_all(slice::from_ref(server))
    }

    fn before_all(servers: &[RedisServer]) -> Self {
        let commands = all_commands(servers);
        let server_secs = servers.iter().map(server_secs).sum();
        Self { commands, server_secs, client_secs: client_secs() }
    }

    /// To be read after the work, in the opposite order.
    fn after(servers: &[RedisServer]) -> Self {
        let client_secs = client_secs();
        let server_secs = servers.iter().map(server_secs).sum();
        Self { commands: all_commands(servers), server_secs, client_secs }
    }
}

impl Cost {
    /// Does so many pairs, and adds what they cost this process and the server.
    pub fn of<T>(&mut self, server: &RedisServer, pairs: usize, work: impl FnOnce() -> T) -> T {
        self.of_all(slice::from_ref(server), pairs, work)
    }

    /// The same on several servers, each of which answers.
    pub fn of_all<T>(&mut self, servers: &[RedisServer], pairs: usize, work: impl FnOnce() -> T) -> T {
        let before = Spent::before_all(servers);
        let done = work();
        self.add(before, Spent::after(servers), pairs);
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
        let now =
            Spent { client_secs: before.client_secs + client_secs, ..Spent::after(slice::from_ref(server)) };
        self.add(before, now, pairs);
        done
    }

    /// Adds what so many pairs have cost since then.
    pub fn since(&mut self, before: Spent, server: &RedisServer, pairs: usize) {
        self.add(before, Spent::after(slice::from_ref(server)), pairs);
    }

    fn add(&mut self, before: Spent, now: Spent, pairs: usize) {
        self.sum.client_secs += now.client_secs - before.client_secs;
        self.sum.server_secs += now.server_secs - before.server_secs;
        self.sum.commands.add(now.commands.since(before.commands));
        self.pairs += pairs;
    }

    pub fn print(&self) {
        let each = |sum: f64| sum / self.pairs as f64;
        let commands = self.sum.commands;
        println!(
            "    a pair: {:.1} µs of the client's processor, {:.1} µs of the server's; {:.2} calls of scripts, which run for {:.1} \
             µs, {:.2} other commands",
            each(self.sum.client_secs * 1e6),
            each(self.sum.server_secs * 1e6),
            each(commands.scripts as f64),
            each(commands.script_micros as f64),
            each(commands.others as f64),
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

fn all_commands(servers: &[RedisServer]) -> Commands {
    let mut all = Commands::default();
    servers.iter().map(commands).for_each(|one| all.add(one));
    all
}

/// What the server has carried out since its start.
pub fn commands(server: &RedisServer) -> Commands {
    let reply = server.command(&["INFO", "commandstats"]);
    let mut all = Commands::default();
    // Such as `cmdstat_evalsha:calls=5,usec=120,usec_per_call=24.00,…`.
    for line in reply.text().unwrap_or_default().lines() {
        let Some((command, fields)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
        else {
            continue;
        };
        let field = |name: &str| {
            let text = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        match command {
            "info" => {}
            _ if command.starts_with("eval") => {
                all.scripts += field("calls");
                all.script_micros += field("usec");
            }
            _ => all.others += field("calls"),
        }
    }
    all
}
