//! One worker process: takes a lock, works, gives it back, goes on to the next.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use polylatch::resource::Sequencer;
use polylatch::{Clock, Guard, LostReason, SystemClock};
use tokio::sync::watch::{self, Receiver};

use super::crew::{READY, STAND};
use super::{LEDGER, NAMES, WorkerArgs, ledger, paced};
use crate::store::{Failure, Store, print_line};

/// How often a worker looks at its orders and at its lease.
const STEP: Duration = Duration::from_millis(10);

/// What the parent wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Work,
    /// Stay in the ledger once there, right after a renewal, and say so: the parent stops us then.
    Stand,
    /// The parent is gone or has closed our input.
    Leave,
}

pub(super) async fn work(args: &WorkerArgs) -> Result<u8, Failure> {
    let mut wish = wishes();
    let store = Store::open(args.url.as_deref(), Some(args.name.clone())).await?;
    tokio::select! {
        worked = rounds(&store, args, wish.clone()) => { worked?; }
        _ = wish.wait_for(|wish| *wish == Wish::Leave) => {}
    }
    store.client.close().await;
    Ok(0)
}

/// Reads orders on a thread of its own. The end of the input is the order to leave.
fn wishes() -> Receiver<Wish> {
    let (send, receive) = watch::channel(Wish::Work);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == STAND {
                send.send_replace(Wish::Stand);
            }
        }
        send.send_replace(Wish::Leave);
    });
    receive
}

async fn rounds(store: &Store, args: &WorkerArgs, wish: Receiver<Wish>) -> Result<(), Failure> {
    let lease = paced(4000, args.pace);
    let me = NAMES.iter().position(|name| *name == args.name).unwrap_or(0);
    // Where each goes in turn, what for, and for how long: the ledger is always wanted by several.
    let [ledger, mail, reports] =
        [(LEDGER, "book orders", 1700), ("mail", "send receipts", 1100), ("reports", "sum up", 1300)];
    let way = [[ledger, mail], [ledger, reports], [ledger, mail], [reports, ledger], [mail, reports]][me];
    let mut stood = false;
    for (name, label, millis) in way.into_iter().cycle() {
        let lock = store.client.lock(format!("{}{name}", args.prefix)).label(label).lease(lease);
        let guard = lock.acquire().await?;
        let stands = name == LEDGER && !stood;
        stood |= hold(&guard, args, name, paced(millis, args.pace), stands.then_some(&wish)).await?;
        // A lease that was lost is told by the hold; there is nothing to give back then.
        let _ = guard.release().await;
        tokio::time::sleep(paced(250, args.pace)).await;
    }
    Ok(())
}

/// Works under a lock. Returns whether it stood still because the parent wished so.
async fn hold(
    guard: &Guard,
    args: &WorkerArgs,
    name: &str,
    time: Duration,
    wish: Option<&Receiver<Wish>>,
) -> Result<bool, Failure> {
    let write = |folder: &Path| {
        let as_of = Sequencer::new(guard.name(), guard.fencing_token())?.with_holder(&args.name)?;
        Ok::<_, Failure>(ledger::write(folder, &as_of)?)
    };
    let begun = SystemClock.now();
    let mut written = name != LEDGER;
    while SystemClock.now().since(begun) < time && guard.is_held() {
        if wish.is_some_and(|wish| *wish.borrow() == Wish::Stand) {
            return stand(guard, args, write).await.map(|()| true);
        }
        if !written && SystemClock.now().since(begun) > time / 5 {
            // Refusals are told by the ledger.
            let _ = write(&args.folder)?;
            written = true;
        }
        tokio::time::sleep(STEP).await;
    }
    if let Err(error) = guard.check() {
        tell_loss(error.lost_reason())?;
    }
    Ok(false)
}

/// Stands still until the lease is lost, as a program does that is paused between its check and its
/// write; then writes all the same.
async fn stand<T>(
    guard: &Guard,
    args: &WorkerArgs,
    write: impl Fn(&Path) -> Result<T, Failure>,
) -> Result<(), Failure> {
    // Right after a renewal nothing is under way to the store: a good moment to be stopped.
    let begun = SystemClock.now();
    let mut renewals = guard.renewals();
    while guard.renewals() == renewals && guard.is_held() {
        tokio::time::sleep(STEP / 5).await;
        if SystemClock.now().since(begun) < paced(1000, args.pace) {
            // The first renewal may follow the grant at once; people shall see one more.
            renewals = guard.renewals();
        }
    }
    print_line(&format!("{READY} {}", guard.fencing_token()))?;
    let mut reason = None;
    while reason.is_none() {
        tokio::time::sleep(STEP).await;
        // The first instruction after the pause: the clock, and no request, says that it is over.
        reason = guard.check().err().map(|error| error.lost_reason());
    }
    tell_loss(reason.flatten())?;
    // A careful program stops here. This one had checked before the pause and writes now.
    tokio::time::sleep(paced(2200, args.pace)).await;
    write(&args.folder)?;
    Ok(())
}

fn tell_loss(reason: Option<LostReason>) -> Result<(), Failure> {
    print_line(&format!("lost {}", reason.map_or("unknown", LostReason::code)))
}
