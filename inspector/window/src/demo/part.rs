//! One process of the scene: a client whose tasks have their habits.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use polylatch::{Guard, Polylatch, Result};

use super::script::{Habit, PARTS, Part, Way};

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
        Habit::Rounds { lock, way, label, lease, hold, rest } => {
            let lock = match way {
                Way::Alone => client.lock(lock),
                Way::Read => client.rw_lock(lock).read(),
                Way::Write => client.rw_lock(lock).write(),
                Way::Permits(of, take) => client.semaphore(lock, of).permits(take),
            };
            let guard = lock.label(label).lease(Duration::from_millis(lease)).acquire().await?;
            keep(&guard, Duration::from_millis(hold)).await;
            guard.release().await?;
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
        Habit::Cross { first, second, label } => {
            let one = client.lock(first).label(label).acquire().await?;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
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

/// Works until the time is over or the lease is lost.
async fn keep(guard: &Guard, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        _ = guard.lost() => {}
    }
}
