//! One process of the scene: a client whose tasks have their habits.

use std::io::Read;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use polylatch::inspect::Query;
use polylatch::{Guard, Lock, Polylatch, Result};
use rustix::process::{Signal, getpid, kill_process};

use super::script::{Fate, Habit, PARTS, Part, Way};

/// How long tasks rest after a deadlock was broken, and how long one that has both locks keeps them.
const REST: Duration = Duration::from_secs(12);
const BOTH: Duration = Duration::from_secs(3);

/// Plays a part until the input ends.
pub fn play(name: &str) -> ExitCode {
    let Some(part) = PARTS.iter().find(|part| part.name == name) else {
        eprintln!("this is a part of polylatch-inspector --demo; start that");
        return ExitCode::from(2);
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let (leave, until) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        drop(leave);
    });
    let played = runtime.block_on(async {
        tokio::select! {
            played = act(part) => played,
            _ = until => Ok(()),
        }
    });
    if played.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn act(part: &Part) -> Result<()> {
    let client = Polylatch::builder().program(part.name).connect().await?;
    let tasks = tokio::task::LocalSet::new();
    for habit in part.habits {
        let client = client.clone();
        tasks.spawn_local(async move {
            loop {
                // A lost lease or a store that was locked for long is a part of life.
                if once(&client, habit).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        });
    }
    tasks.await;
    Ok(())
}

async fn once(client: &Polylatch, habit: &Habit) -> Result<()> {
    match *habit {
        Habit::Rounds { lock, way, label, lease, hold, rest, fate } => {
            let lock = match way {
                Way::Alone => client.lock(lock),
                Way::Read => client.rw_lock(lock).read(),
                Way::Write => client.rw_lock(lock).write(),
                Way::Permits(of, take) => client.semaphore(lock, of).permits(take),
            };
            let lock = lock.label(label).lease(Duration::from_millis(lease));
            let guard = match fate {
                Fate::StopsWaiting(after) => acquire_and_stop(&lock, Duration::from_millis(after)).await?,
                _ => lock.acquire().await?,
            };
            let halt = match fate {
                Fate::StopsHolding(after) => Some((after, Signal::STOP)),
                Fate::DiesHolding(after) => Some((after, Signal::KILL)),
                Fate::None | Fate::StopsWaiting(_) => None,
            };
            if let Some((after, signal)) = halt {
                keep(&guard, Duration::from_millis(after)).await;
                if guard.is_held() {
                    send_to_self(signal);
                }
            }
            keep(&guard, Duration::from_millis(hold)).await;
            guard.release().await?;
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
        Habit::Cross { first, second, label } => {
            let one = client.lock(first).label(label).acquire().await?;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            until_held(client, second).await?;
            let wanted = client.lock(second).label(label);
            tokio::select! {
                both = wanted.acquire() => {
                    let two = both?;
                    keep(&two, BOTH).await;
                    two.release().await?;
                    one.release().await?;
                }
                _ = one.lost() => {}
            }
            tokio::time::sleep(REST).await;
        }
    }
    Ok(())
}

/// Acquires a lock, and stops this process if it still waits after so long.
async fn acquire_and_stop(lock: &Lock, after: Duration) -> Result<Guard> {
    let mut acquired = pin!(lock.acquire());
    tokio::select! {
        guard = &mut acquired => guard,
        () = tokio::time::sleep(after) => {
            send_to_self(Signal::STOP);
            acquired.await
        }
    }
}

/// Waits until another process holds a lock, for ten seconds at the longest: each has one before it wants the other's,
/// also where one of them starts late.
async fn until_held(client: &Polylatch, lock: &str) -> Result<()> {
    let inspector = client.inspect();
    let query = Query { name: Some(lock.to_owned()), ..Query::default() };
    for _ in 0..50 {
        if inspector.list(&query).await?.locks.iter().any(|lock| !lock.holders.is_empty()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn send_to_self(signal: Signal) {
    // It cannot fail: a process may send itself any signal.
    let _ = kill_process(getpid(), signal);
}

/// Works until the time is over or the lease is lost.
async fn keep(guard: &Guard, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        _ = guard.lost() => {}
    }
}
