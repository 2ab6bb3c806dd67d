//! Child processes and this one in the background.

#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the kernel kill the command when this process ends, however it ends: no process renews the lease then.
#[cfg(target_os = "linux")]
pub fn die_with_us(process: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have died between fork and the line above; then no signal will come.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing, takes no lock and touches no memory shared with other threads.
    unsafe { process.pre_exec(prepare) };
}

/// Other systems have no such signal: a command outlives a killed runner there. The help says so.
#[cfg(not(target_os = "linux"))]
pub fn die_with_us(_: &mut Command) {}

/// Lets this process write to the terminal and take it back from the background.
pub fn ignore_terminal_stops() {
    // SAFETY: SIG_IGN installs no handler, so no code of ours runs in signal context. The command
    // was started before, so it does not inherit this.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}
