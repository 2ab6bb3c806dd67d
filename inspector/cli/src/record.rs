//! `polylatch record`: snapshots into a file that the window plays back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::RecordArgs;
use super::paint::say;
use super::signals::asked_to_end;
use super::store::{Failure, Store};
use crate::exit;
use host::files::Recorder;
use host::poll::{Poller, Target, Told, ViewerClock};
use model::text::{count, sanitized};
use model::{Connection, ConnectionId, Environment, Report};

pub(super) async fn record(url: Option<&str>, args: &RecordArgs) -> Result<u8, Failure> {
    let store = Store::open(url, None).await?;
    let id = ConnectionId::new("store");
    let connection = Connection {
        id: id.clone(),
        shown_url: store.client.url_for_display().to_owned(),
        command: store.command.clone(),
        environment: Environment::Development,
        read_only: true,
    };
    // From here on, an interrupt leaves a file that is whole, and says what is in it.
    let mut ended = std::pin::pin!(asked_to_end()?);
    let clock = ViewerClock::start();
    let mut recorder = Recorder::create(&args.file, &[connection], clock.now_ms())
        .map_err(|error| Failure::new(exit::SYSTEM, sanitized(&error)))?;
    let news = Arc::<Notify>::default();
    let wake = Arc::clone(&news);
    let (poller, told) = Poller::start(clock, Arc::new(move || wake.notify_one()))?;
    let mut target = Target::new(id, url.unwrap_or_default()).evenly(args.every);
    (target.prefix, target.read_only) = (args.prefix.clone(), true);
    poller.watch(target);
    say(&format!("recording {} into {}; Ctrl-C ends it", store.shown_url(), args.file.display()));

    let end = tokio::time::sleep(args.time.unwrap_or(Duration::MAX / 4));
    let mut end = std::pin::pin!(end);
    let (mut snapshots, mut in_trouble) = (0, false);
    loop {
        tokio::select! {
            () = &mut end => break,
            () = &mut ended => break,
            () = news.notified() => {}
        }
        for told in told.try_iter() {
            let Told::Update(update) = told else { continue };
            recorder.update(&update)?;
            match update.report {
                Report::Polled(_) => (snapshots, in_trouble) = (snapshots + 1, false),
                Report::Failed { message, .. } if !in_trouble => {
                    say(&format!("not known for now: {}", sanitized(&message)));
                    in_trouble = true;
                }
                Report::Failed { .. } => {}
            }
        }
    }
    let snapshots = count(snapshots, "snapshot", "snapshots");
    say(&format!("{snapshots}, {} kB in {}", recorder.bytes().div_ceil(1_024), args.file.display()));
    Ok(0)
}
