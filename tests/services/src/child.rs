//! Child processes that cannot outlive the test process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, OnceLock};

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command` so that the kernel kills it when this process ends, however it ends.
///
/// The kernel ties a parent-death signal to the *thread* that started the child, and the test
/// harness runs each test on a thread of its own: a server shared between tests would die with the
/// first of them. One thread that lives as long as the process therefore starts all children.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    die_with_parent(&mut command);
    let keeper = KEEPER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        std::thread::Builder::new()
            .name("child-keeper".into())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    // The asker waits for the answer; if it panicked meanwhile, the child goes too.
                    if let Err(unheard) = answer.send(command.spawn())
                        && let Ok(mut child) = unheard.0
                    {
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                }
            })
            .expect("the test process can start a thread");
        Mutex::new(orders)
    });
    let (answer, reply) = mpsc::channel();
    keeper
        .lock()
        .expect("nothing panics while holding it")
        .send((command, answer))
        .expect("the keeper lives as long as the process");
    reply.recv().expect("the keeper answers every order")
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died between fork and the line above; then no signal will come.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing, takes no lock and touches no memory shared with other threads.
    unsafe { command.pre_exec(prepare) };
}

/// Elsewhere than on Linux a child of a killed test process is left behind.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
