//! Listens for grants and breaks, on a connection of its own. Behind a pooler, or with `wake=poll`, nothing is heard;
//! waiters then find their grants by asking, and holders by renewing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::backend::rows::Push;
use crate::backend::rows::server::Session as _;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::store::Store;
use crate::policy::backoff::Backoff;

use super::protocol::messages::{listen, parse};
use super::server::Postgres;
use super::transport::session::Session;

/// Pauses between attempts to listen.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Listens until the task is ended.
pub(crate) async fn run(store: Arc<Store<Postgres>>) {
    let seed = u64::from(std::process::id());
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
    loop {
        let (heard, mut messages) = mpsc::unbounded_channel();
        let listening = async {
            let session = store.server().opener.open(Some(heard)).await?;
            session.ask(&[listen(store.client.as_str())], false).await?;
            Ok::<Session, Failure>(session)
        };
        match tokio::time::timeout(store.link.timeout, listening).await {
            Ok(Ok(_session)) => {
                backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
                // Messages may have been missed: all waiters ask again.
                store.wakeups.hint_all();
                while let Some(message) = messages.recv().await {
                    match parse(&message.payload) {
                        // Any user of the database can notify, so a loss is looked up. A grant needs no such care:
                        // nobody without rights on the tables knows the owner token of a waiter.
                        Some(Push::Revoked { owner, .. }) => {
                            let looked_up = store.look_up_breaks(vec![owner]);
                            if !matches!(
                                tokio::time::timeout(store.link.timeout, looked_up).await,
                                Ok(Ok(()))
                            ) {
                                tracing::debug!("a break could not be looked up; the next renewal tells");
                            }
                        }
                        Some(push) => store.deliver(&[(String::new(), push)]),
                        None => {}
                    }
                }
            }
            Ok(Err(failure)) => {
                let error = failure.into_error();
                tracing::debug!(%error, "no connection to listen on; waiters ask instead");
            }
            Err(_) => tracing::debug!("no connection to listen on in time; waiters ask instead"),
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}
