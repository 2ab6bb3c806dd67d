//! What this machine knows about its own processes.

use model::{HostFacts, Process};

/// The host that this program runs on. Processes are looked up in `/proc`, so only Linux can say.
#[derive(Debug, Clone)]
pub struct ThisHost {
    name: String,
    /// When the machine started, by the wall clock.
    booted_at_ms: Option<u64>,
    boot: Option<String>,
    pid_namespace: Option<String>,
}

impl ThisHost {
    /// Asks the operating system who it is.
    pub fn new() -> Self {
        // As clients write them into the store: random(4), pid_namespaces(7).
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let pid_namespace = std::fs::read_link("/proc/self/ns/pid").ok();
        Self {
            name: host_name(),
            booted_at_ms: booted_at_ms(),
            boot: boot.map(|text| text.trim().to_owned()),
            pid_namespace: pid_namespace.map(|link| link.to_string_lossy().into_owned()),
        }
    }
}

impl Default for ThisHost {
    fn default() -> Self {
        Self::new()
    }
}

impl HostFacts for ThisHost {
    fn host_name(&self) -> &str {
        &self.name
    }

    fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    fn pid_namespace(&self) -> Option<&str> {
        self.pid_namespace.as_deref()
    }

    fn process(&self, pid: u32) -> Process {
        if !cfg!(target_os = "linux") {
            return Process::Unknown;
        }
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => parse_stat(&stat, self.booted_at_ms).unwrap_or(Process::Unknown),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Process::Gone,
            Err(_) => Process::Unknown,
        }
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (parent > 1).then_some(parent)
    }
}

/// Reads the state and the start time out of `/proc/PID/stat` (proc_pid_stat(5), fields 3 and 22).
fn parse_stat(stat: &str, booted_at_ms: Option<u64>) -> Option<Process> {
    // The program name in parentheses may contain anything; fields count from behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return Some(Process::Gone);
    }
    let ticks: u64 = fields.nth(18)?.parse().ok()?;
    // 100 ticks a second: USER_HZ, fixed for user space on Linux.
    let started_at_ms = booted_at_ms.map(|booted| booted + ticks * 10);
    Some(Process::Present { stopped: matches!(state, "T" | "t"), started_at_ms })
}

#[cfg(unix)]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// User and host, as the author of a break.
pub fn who_am_i() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    #[cfg(unix)]
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    #[cfg(not(unix))]
    let user = user.unwrap_or_else(|| "unknown".into());
    let plain: String =
        format!("{user}@{}", host_name()).chars().filter(|c| !c.is_control()).take(64).collect();
    plain
}

fn booted_at_ms() -> Option<u64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let secs: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    let booted = now.checked_sub(std::time::Duration::try_from_secs_f64(secs).ok()?)?;
    u64::try_from(booted.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_present_and_process_zero_is_not() {
        let host = ThisHost::new();
        assert!(!host.host_name().is_empty());
        let Process::Present { stopped: false, started_at_ms: Some(_) } = host.process(std::process::id())
        else {
            panic!("this process runs: {:?}", host.process(std::process::id()))
        };
        assert_eq!(host.process(0), Process::Gone);
        #[cfg(unix)]
        assert_eq!(host.parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }

    #[test]
    fn a_program_name_cannot_forge_the_state() {
        let stat = "7 (a) Z (b) T 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 250 0 0";
        let stopped = Process::Present { stopped: true, started_at_ms: Some(3_500) };
        assert_eq!(parse_stat(stat, Some(1_000)), Some(stopped));
        assert_eq!(parse_stat("7 (a) Z 1", None), Some(Process::Gone));
        assert_eq!(parse_stat("nonsense", None), None);
    }
}
