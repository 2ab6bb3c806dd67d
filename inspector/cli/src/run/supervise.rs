//! From the wait to the exit code: acquire, start, watch the lease and the command, stop, give back.

use std::io;
use std::pin::pin;
use std::time::Duration;

use polylatch::{BootInstant, Clock, Guard, Lock, LostReason, Mode, Polylatch, SystemClock};
use rustix::process::Signal;

use super::child::{Ended, Group, Look};
use super::stop::{Verdict, Window, judge};
use super::wait_for::WaitFor;
use super::{Failure, RunArgs, waiting};
use crate::exit;
use crate::paint::say;
use crate::signals::Signals;
use crate::store::{Store, held_by};
use host::ThisHost;
use model::graph::RUN_PROGRAM;
use model::text::sanitized;

/// How often a group is checked that was asked to end.
const STOPPING_LOOK: Duration = Duration::from_millis(20);

/// A lease that ends this close to the hold limit was cut by it: both are counted from the grant, the
/// limit a moment later.
const NEAR_LIMIT: Duration = Duration::from_millis(100);

pub(crate) async fn run(url: Option<&str>, args: RunArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let command = std::path::Path::new(&args.command[0]).file_name().unwrap_or(&args.command[0]);
    let command = command.to_string_lossy().into_owned();
    // The wait covers the store too: an election or a restart takes some seconds of it.
    let started = SystemClock.now();
    let deadline = match args.wait {
        WaitFor::Forever => None,
        WaitFor::No => Some(started),
        WaitFor::AtMost(wait) => Some(started + wait),
    };
    let what = sanitized(&args.name);
    let store = tokio::select! {
        store = Store::open_before(url, Some(format!("{command}{RUN_PROGRAM}")), deadline, &what) => store?,
        signal = signals.next() => return Ok(code_of(signal)),
    };
    warn_of_self_deadlock(&args);
    let (code, message) = match acquire(&store, &args, deadline, &mut signals).await {
        Ok(Acquired::Guard(guard)) => hold(&guard, url, &args, &mut signals).await,
        Ok(Acquired::Interrupted(signal)) => (code_of(signal), None),
        Err(failure) => (failure.code, Some(failure.message)),
    };
    // Also leaves the line, and undoes a grant that came too late. A store that does not answer is
    // given some seconds; whoever does not want to wait for that says so once more.
    tokio::select! {
        () = store.client.close() => {}
        _ = signals.next() => {}
    }
    match message {
        Some(message) => Err(Failure::new(code, message)),
        None => Ok(code),
    }
}

enum Acquired {
    Guard(Guard),
    Interrupted(Signal),
}

async fn acquire(
    store: &Store,
    args: &RunArgs,
    deadline: Option<BootInstant>,
    signals: &mut Signals,
) -> Result<Acquired, Failure> {
    let label = args.label.clone().unwrap_or_default();
    let mut lock = wanted(&store.client, args).label(label);
    if args.no_fifo {
        lock = lock.fifo(false);
    }
    if let Some(lease) = args.lease {
        lock = lock.lease(lease);
    }
    if let Some(max_hold) = args.max_hold {
        lock = lock.max_hold(max_hold);
    }
    let lock = match deadline {
        None => lock.wait_forever(),
        Some(deadline) => lock.wait(deadline.since(SystemClock.now())),
    };
    if args.wait == WaitFor::No {
        let tried = tokio::select! {
            biased;
            signal = signals.next() => return Ok(Acquired::Interrupted(signal)),
            tried = lock.try_acquire() => tried?,
        };
        return match tried {
            Some(guard) => Ok(Acquired::Guard(guard)),
            None => Err(not_acquired(store, &args.name).await),
        };
    }
    let acquired = tokio::select! {
        biased;
        signal = signals.next() => return Ok(Acquired::Interrupted(signal)),
        acquired = lock.acquire() => acquired?,
        () = waiting::tell(store, &args.name) => unreachable!("telling never ends"),
    };
    Ok(Acquired::Guard(acquired))
}

/// The lock in the mode that is asked for.
fn wanted(client: &Polylatch, args: &RunArgs) -> Lock {
    let name = args.name.as_str();
    match args.permits {
        Some(Mode::Permits { count, capacity }) => client.semaphore(name, capacity).permits(count),
        _ if args.shared => client.rw_lock(name).read(),
        _ if args.write => client.rw_lock(name).write(),
        _ => client.lock(name),
    }
}

async fn not_acquired(store: &Store, name: &str) -> Failure {
    let query = polylatch::inspect::Query { name: Some(name.to_owned()), ..Default::default() };
    let holder = match store.client.inspect().list(&query).await {
        Ok(snapshot) => held_by(&snapshot, name, &ThisHost::new()),
        Err(_) => None,
    };
    let holder = holder.unwrap_or_else(|| "another client had it a moment ago".into());
    Failure::new(exit::NOT_ACQUIRED, format!("did not get {}: {holder}", sanitized(name)))
}

/// Runs the command while the lease lasts. Returns the exit code, and what to say if all is not well.
async fn hold(
    guard: &Guard,
    url: Option<&str>,
    args: &RunArgs,
    signals: &mut Signals,
) -> (u8, Option<String>) {
    let granted_at = SystemClock.now();
    let token = guard.fencing_token().to_string();
    let mut env = vec![("POLYLATCH_LOCK", args.name.as_str()), ("POLYLATCH_FENCING_TOKEN", token.as_str())];
    env.extend(url.map(|url| ("POLYLATCH_URL", url)));
    if !guard.is_held() {
        return (
            exit::LOST,
            Some("the lease was over before the command could start; it was not started".into()),
        );
    }
    let group = match Group::start(&args.command, &env) {
        Ok(group) => group,
        Err(error) => {
            let _ = guard.release().await;
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NO_SUCH_COMMAND,
                _ => exit::CANNOT_EXECUTE,
            };
            return (code, Some(format!("cannot start {:?}: {error}", args.command[0])));
        }
    };
    let hold_limit = args.max_hold.map(|max_hold| granted_at + max_hold);
    let watched = watch(guard, &group, args.kill_after, hold_limit, signals).await;
    drop(group);
    match watched {
        Err(error) => (exit::SYSTEM, Some(format!("the command cannot be watched: {error}"))),
        Ok(Outcome::Stopped(why)) => (exit::LOST, Some(why)),
        Ok(Outcome::Ended(ended)) => {
            let code = match ended {
                Ended::Code(code) => code,
                Ended::Signal(signal) => exit::SIGNAL_BASE.saturating_add(signal),
            };
            // The clock decides: a lease that ended unnoticed did not protect the command's end.
            if !guard.is_held() {
                return (
                    exit::LOST,
                    Some(format!("the command ended with code {code}, but its lease was over before")),
                );
            }
            match guard.release().await {
                Ok(()) => (code, None),
                Err(error) => {
                    // The command's work is done, and the lease ends by itself.
                    say(&format!("could not give the lock back: {}", sanitized(&error.to_string())));
                    (code, None)
                }
            }
        }
    }
}

enum Outcome {
    Ended(Ended),
    /// It had to stop, for this reason.
    Stopped(String),
}

/// Watches lease and command until the command, and if it had to stop its whole group, is gone.
async fn watch(
    guard: &Guard,
    group: &Group,
    grace: Duration,
    hold_limit: Option<BootInstant>,
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let mut lost_signal = pin!(guard.lost());
    let mut lost: Option<LostReason> = None;
    let mut window = Window::new(SystemClock.now(), guard.valid_until());
    let mut stopping: Option<Stopping> = None;
    let mut ended: Option<Ended> = None;
    loop {
        let now = SystemClock.now();
        window.observe(now, guard.valid_until());
        let look_at = match &mut stopping {
            None => match judge(now, &window, lost, grace) {
                Verdict::Run(look_at) => look_at,
                verdict => {
                    // A command that ended in time is not a loss, even if this was seen late; whether
                    // it was in time, the lease says.
                    if let Look::Ended(in_time) = group.look()? {
                        return Ok(Outcome::Ended(in_time));
                    }
                    let at_limit =
                        hold_limit.is_some_and(|limit| limit.since(guard.valid_until()) < NEAR_LIMIT);
                    let why = why(lost, at_limit);
                    let kill_at = match verdict {
                        Verdict::Stop { kill_at } => kill_at,
                        _ => now,
                    };
                    if kill_at > now {
                        say(&format!("{why}; asking the command to stop"));
                        group.ask_to_stop();
                    }
                    stopping = Some(Stopping { why, kill_at, killed: false });
                    now
                }
            },
            Some(stopping) => {
                // A loss told meanwhile leaves less time, never more.
                if now >= stopping.kill_at || lost == Some(LostReason::Expired) {
                    group.signal(Signal::KILL);
                    stopping.killed = true;
                }
                now + STOPPING_LOOK
            }
        };
        if ended.is_none() {
            match group.look()? {
                Look::Ended(how) => ended = Some(how),
                Look::Suspended => {
                    say("a command that holds a lock is not suspended; it goes on");
                    group.signal(Signal::CONT);
                }
                Look::Runs => {}
            }
        }
        match (ended, &stopping) {
            (Some(how), None) => return Ok(Outcome::Ended(how)),
            (Some(_), Some(stopping)) if group.is_gone() => {
                let how = if stopping.killed { "was killed" } else { "stopped" };
                return Ok(Outcome::Stopped(format!("{}; the command {how}", stopping.why)));
            }
            _ => {}
        }
        tokio::select! {
            biased;
            reason = &mut lost_signal, if lost.is_none() => lost = Some(reason),
            signal = signals.next_or_child() => {
                if let Some(signal) = signal {
                    group.signal(signal);
                }
            }
            () = tokio::time::sleep(look_at.since(SystemClock.now())) => {}
        }
    }
}

struct Stopping {
    why: String,
    kill_at: BootInstant,
    killed: bool,
}

fn why(lost: Option<LostReason>, at_limit: bool) -> String {
    match lost {
        Some(LostReason::Broken) => "the lease was broken by an operator".into(),
        Some(LostReason::Superseded) => "the lease was lost: the store no longer names this holder".into(),
        Some(LostReason::SessionEnded) => "the lease was lost: its session ended".into(),
        Some(LostReason::Unverifiable) => "the lease was lost: nothing watches it any more".into(),
        _ if at_limit => "the hold limit is reached".into(),
        Some(_) => "the lease is over: it was not renewed in time".into(),
        None => "the lease nears its end and could not be renewed".into(),
    }
}

fn code_of(signal: Signal) -> u8 {
    exit::SIGNAL_BASE.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(0))
}

/// A command that runs under a lock and asks for the same lock waits for itself.
fn warn_of_self_deadlock(args: &RunArgs) {
    if args.wait == WaitFor::Forever && std::env::var("POLYLATCH_LOCK").is_ok_and(|held| held == args.name) {
        // Two that share a lock wait for each other as soon as another waits between them.
        let waits = if args.shared || args.permits.is_some() { "may wait" } else { "waits" };
        say(&format!(
            "this already runs under the lock {}; if the store is the same, it {waits} for itself",
            sanitized(&args.name)
        ));
    }
}
