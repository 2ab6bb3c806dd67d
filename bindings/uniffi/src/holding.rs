//! What an acquisition holds: one lock, or several.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polylatch::{Guard, GuardSet, LostReason};
use polylatch_bridge::{Failure, Held, Homed, one_ended};

/// What is held.
#[derive(Debug)]
pub(crate) enum Holding {
    One(Held),
    All(Set),
}

/// Several held locks.
#[derive(Debug)]
pub(crate) struct Set {
    guards: Homed<Arc<GuardSet>>,
    names: Vec<String>,
    fencing_tokens: Vec<u64>,
}

type Ended = Pin<Box<dyn Future<Output = Option<LostReason>> + Send>>;

impl Set {
    fn new(guards: GuardSet) -> Self {
        Self {
            names: guards.guards().iter().map(|guard| guard.name().to_owned()).collect(),
            fencing_tokens: guards.guards().iter().map(|guard| guard.fencing_token().get()).collect(),
            guards: Homed::new(Arc::new(guards)),
        }
    }

    fn now(&self) -> Result<&Arc<GuardSet>, Failure> {
        let first = self.names.first().map_or("", String::as_str);
        self.guards.get().ok_or_else(|| Failure::inherited(first))
    }
}

impl Holding {
    pub(crate) fn one(guard: Guard) -> Self {
        Self::One(Held::new(guard))
    }

    pub(crate) fn all(guards: GuardSet) -> Self {
        Self::All(Set::new(guards))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::One(held) => vec![held.name().to_owned()],
            Self::All(set) => set.names.clone(),
        }
    }

    pub(crate) fn fencing_tokens(&self) -> Vec<u64> {
        match self {
            Self::One(held) => vec![held.fencing_token()],
            Self::All(set) => set.fencing_tokens.clone(),
        }
    }

    /// The one lock. Errors: `invalid_argument` for several.
    pub(crate) fn single(&self) -> Result<&Held, Failure> {
        match self {
            Self::One(held) => Ok(held),
            Self::All(_) => {
                Err(Failure::invalid_argument("this is about one lock, and several are held together"))
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::One(held) => Ok(held.with(Guard::check)??),
            Self::All(set) => Ok(set.now()?.check()?),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        let remaining = match self {
            Self::One(held) => held.with(Guard::remaining).ok(),
            Self::All(set) => set.now().ok().and_then(|set| set.guards().iter().map(Guard::remaining).min()),
        };
        remaining.unwrap_or_default()
    }

    pub(crate) fn beat(&self) -> Result<(), Failure> {
        match self {
            Self::One(held) => held.with(Guard::beat)?,
            Self::All(set) => set.now()?.guards().iter().for_each(Guard::beat),
        }
        Ok(())
    }

    pub(crate) async fn release(&self) -> Result<(), Failure> {
        match self {
            Self::One(held) => held.release().await,
            Self::All(set) => Ok(Arc::clone(set.now()?).release().await?),
        }
    }

    /// Completes with the reason when a lease is lost, and with `None` when all were given back.
    pub(crate) fn ended(&self) -> Result<Ended, Failure> {
        Ok(match self {
            Self::One(held) => Box::pin(held.ended()),
            Self::All(set) => Box::pin(one_ended(set.now()?)),
        })
    }
}
