//! Who this process is, as people at a stuck lock need to know it.

use std::time::Duration;

use crate::clock::{SystemTime, UNIX_EPOCH};
use crate::error::Result;
use crate::token::ClientId;

/// What a client says about itself in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientInfo {
    pub id: ClientId,
    pub host: String,
    pub pid: u32,
    pub process_started_at_ms: Option<u64>,
    /// The boot that the host is in.
    pub boot: Option<String>,
    /// The namespace that the pid belongs to.
    pub pid_namespace: Option<String>,
    pub program: String,
    pub language: String,
    pub version: String,
}

impl ClientInfo {
    pub(crate) fn of_this_process(program: Option<String>, language: &str, version: &str) -> Result<Self> {
        let host = host_name();
        let pid = process_id();
        Ok(Self {
            id: ClientId::new(&host, pid)?,
            host,
            pid,
            process_started_at_ms: process_started_at_ms(),
            boot: boot(),
            pid_namespace: pid_namespace(),
            program: shorten(&program.unwrap_or_else(program_name)),
            language: shorten(language),
            version: shorten(version),
        })
    }
}

#[cfg(target_family = "wasm")]
impl ClientInfo {
    /// Says where this program runs, which the platform does not.
    pub(crate) fn at(mut self, host: &str, pid: u32) -> Result<Self> {
        let host = shorten(host);
        self.id = ClientId::new(&host, pid)?;
        Ok(Self { host, pid, ..self })
    }
}

/// Returns the id of this process; zero in a JavaScript host, which has none for its scripts.
pub(crate) fn process_id() -> u32 {
    if cfg!(target_family = "wasm") { 0 } else { std::process::id() }
}

/// Returns this machine's host name, or `unknown`.
pub(crate) fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    let name = shorten(&name);
    if name.is_empty() { "unknown".into() } else { name }
}

/// Names the boot that this host is in, where the system says so (random(4)).
pub(crate) fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(shorten(text.trim())).filter(|text| !text.is_empty())
}

/// Names the pid namespace of this process, such as `pid:[4026531836]` (pid_namespaces(7)).
pub(crate) fn pid_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(shorten(&link.to_string_lossy())).filter(|text| !text.is_empty())
}

fn program_name() -> String {
    std::env::args_os()
        .next()
        .and_then(|path| {
            std::path::Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "unknown".into())
}

/// Records are shown to people: bounded, and without control characters.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}

/// When this process started, by the wall clock: the boot time plus field 22 of `/proc/self/stat`
/// (proc_pid_stat(5): clock ticks since boot).
fn process_started_at_ms() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The program name in parentheses may contain spaces; fields count from behind it.
        let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let per_second = 100; // USER_HZ, fixed for user space on Linux
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let since_boot = Duration::new(boot.tv_sec.try_into().ok()?, boot.tv_nsec.try_into().ok()?);
        let started = Duration::from_millis(ticks * 1000 / per_second);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from((now - since_boot.checked_sub(started)?).as_millis()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        // The library is loaded early in most programs: good enough to tell a reused pid.
        static FIRST_ASKED: std::sync::OnceLock<SystemTime> = std::sync::OnceLock::new();
        let at = FIRST_ASKED.get_or_init(SystemTime::now);
        let since: Duration = at.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let info = ClientInfo::of_this_process(Some("night\u{1b}ly".into()), "rust", "0.1.0").unwrap();
        assert_eq!(info.program, "nightly");
        assert_eq!(info.id.pid(), Some(std::process::id()));
        let started = info.process_started_at_ms.unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        assert!(started <= now && started > now - 3_600_000, "{started} against {now}");
    }
}
