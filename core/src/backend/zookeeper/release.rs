//! Letting go: of a held lock, and of a place in the queue.

use std::sync::Arc;

use crate::backend::{Contender, Released};
use crate::error::{Effect, Result};
use crate::policy::fencing::FencingToken;

use super::acquisitions::State;
use super::backend::Inner;
use super::protocol::answers::code;
use super::protocol::requests;
use super::transport::errors::refused;
use super::transport::session::Session;

impl Inner {
    /// Deletes the node, which hands the lock to the next one in the queue; or all permits. The name of a node is never used
    /// twice in a session, so no other one is meant.
    pub(crate) async fn release(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let Some(acquisition) = self.acquisitions.get(contender.owner) else { return Ok(Released::NotHeld) };
        let mut state = acquisition.state.lock().await;
        let Some(session) = state.session.clone() else { return Ok(Released::NotHeld) };
        let Some(own) = state.node.clone().filter(|own| own.fence == fence.get()) else {
            return Ok(Released::NotHeld);
        };
        // It is not known any more when the answer comes.
        session.forget(contender.owner);
        let was_asked = std::mem::replace(&mut state.deleting, true);
        let answered = session.ask(own.paths.iter().map(|path| requests::delete(path)).collect()).await;
        let released = match answered {
            Ok(answers) => {
                let mut released = Released::Released;
                for (path, answer) in own.paths.iter().zip(&answers) {
                    match answer.code {
                        code::OK => {}
                        // A request before has deleted it, whose answer was lost.
                        code::NO_NODE if was_asked => {}
                        code::NO_NODE => released = Released::NotHeld,
                        code => return Err(refused(code, path)),
                    }
                }
                released
            }
            // Its node went with the session.
            Err(_) if session.is_ended() => {
                if was_asked {
                    Released::Released
                } else {
                    Released::NotHeld
                }
            }
            Err(error) => {
                state.deleting = was_asked || error.effect() != Effect::None;
                return Err(error);
            }
        };
        acquisition.end();
        self.leases.forget(contender.owner);
        self.acquisitions.forget(contender.owner);
        Ok(released)
    }

    /// Undoes whatever was sent for an acquisition.
    pub(crate) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let Some(acquisition) = self.acquisitions.get(contender.owner) else { return Ok(()) };
        acquisition.end();
        let mut state = acquisition.state.lock().await;
        if let Some(session) = state.session.clone() {
            session.forget(contender.owner);
            self.leases.end_later(&contender);
            let undone = self.undo(&mut state, &contender, &session).await;
            if !session.is_ended() {
                undone?;
            }
        }
        self.leases.forget(contender.owner);
        self.acquisitions.forget(contender.owner);
        Ok(())
    }

    async fn undo(&self, state: &mut State, contender: &Contender, session: &Session) -> Result<()> {
        if state.uncertain {
            self.find_own(state, contender, session).await?;
        }
        self.remove(session, state).await
    }
}
