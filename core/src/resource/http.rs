//! Fencing tokens in HTTP requests: a header for the sender, a gate for the server.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Refused, Sequencer};
use crate::error::{Error, ErrorKind};
use crate::policy::fencing::{FencingToken, TokenGate};

/// The header that carries a [`Sequencer`], `name=orders/42; token=34`. One per request.
pub const HEADER: &str = "Polylatch-Fencing-Token";

/// Most resources that a gate remembers, unless it is made for another number.
pub const DEFAULT_RESOURCES: usize = 100_000;

/// Why a request is not let through.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// A newer holder was here before.
    Stale(Refused),
    /// The header is missing.
    Missing,
    /// The header is there more than once, or is no sequencer; the text says which rule it breaks.
    Malformed(String),
    /// The token is one of another lock than the one that protects this resource.
    WrongLock,
    /// The gate remembers as many resources as it may. Forgetting one would let its late writers in.
    Full,
}

impl Rejection {
    /// Returns the status code to answer with.
    ///
    /// 412 Precondition Failed and 428 Precondition Required say what HTTP's own preconditions say
    /// (RFC 9110, section 15.5.13; RFC 6585, section 3).
    pub fn status(&self) -> u16 {
        match self {
            Self::Stale(_) => 412,
            Self::Missing => 428,
            Self::Malformed(_) | Self::WrongLock => 400,
            Self::Full => 503,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(refused) => write!(f, "{refused}: the lock has a newer holder"),
            Self::Missing => write!(f, "this resource is protected by a lock; send its token in {HEADER}"),
            Self::Malformed(rule) => write!(f, "{HEADER}: {rule}"),
            Self::WrongLock => write!(f, "{HEADER} has the token of another lock"),
            Self::Full => f.write_str("no further resource can be guarded"),
        }
    }
}

impl std::error::Error for Rejection {}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Stale(refused) => refused.into(),
            Rejection::Full => Error::new(ErrorKind::BackendUnavailable, rejection.to_string()),
            _ => Error::new(ErrorKind::InvalidArgument, rejection.to_string()),
        }
    }
}

/// Remembers the largest fencing token per resource, and refuses requests with smaller ones.
///
/// For one server process that alone writes to its resources. Several servers share a database: put
/// the check there ([`FencedUpdate`](super::FencedUpdate)). A restart forgets; before serving, restore
/// what was kept beside the data ([`RequestGate::remember`]).
///
/// ```
/// use polylatch::resource::http::RequestGate;
/// let gate = RequestGate::new();
/// let write = |header: &str, text: &str| gate.run("orders/42", Some(header), || text.len());
/// assert_eq!(write("name=orders/42; token=34", "paid"), Ok(4));
/// let late = write("name=orders/42; token=33", "open").unwrap_err();
/// assert_eq!(late.status(), 412);
/// ```
#[derive(Debug)]
pub struct RequestGate {
    gates: Mutex<HashMap<String, Arc<Mutex<TokenGate>>>>,
    most: usize,
}

impl Default for RequestGate {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestGate {
    /// Makes a gate that has seen nothing.
    pub fn new() -> Self {
        Self::with_room_for(DEFAULT_RESOURCES)
    }

    /// Makes a gate that remembers at most so many resources. More are refused, none is forgotten.
    pub fn with_room_for(most: usize) -> Self {
        Self { gates: Mutex::default(), most }
    }

    /// Checks a request for the resource that the lock `name` protects and, if it may pass, runs
    /// `write` before any other request for the same resource is judged.
    ///
    /// `name` must come from the server's own rules, not from the request: the request says which
    /// lock it holds, the server which one it takes.
    ///
    /// Guarantees: a write never runs after one with a larger token has begun. A writer that panics
    /// leaves the gate usable.
    pub fn run<T>(
        &self,
        name: &str,
        header: Option<&str>,
        write: impl FnOnce() -> T,
    ) -> Result<T, Rejection> {
        let sequencer: Sequencer = header
            .ok_or(Rejection::Missing)?
            .parse()
            .map_err(|error: Error| Rejection::Malformed(error.message().to_owned()))?;
        if sequencer.name() != name {
            return Err(Rejection::WrongLock);
        }
        let gate = self.gate(name)?;
        let mut gate = lock(&gate);
        let token = sequencer.token();
        match (gate.admit(token), gate.largest()) {
            (Ok(()), _) => Ok(write()),
            (Err(_), largest) => Err(Rejection::Stale(Refused { token, largest: largest.unwrap_or(token) })),
        }
    }

    /// Does the same for the header's values as a request brought them: there must be exactly one.
    pub fn run_one<'h, T>(
        &self,
        name: &str,
        headers: impl IntoIterator<Item = &'h str>,
        write: impl FnOnce() -> T,
    ) -> Result<T, Rejection> {
        let mut headers = headers.into_iter();
        let first = headers.next();
        if headers.next().is_some() {
            return Err(Rejection::Malformed("it is there more than once".into()));
        }
        self.run(name, first, write)
    }

    /// Goes on from a token that was seen before a restart. Never goes back.
    ///
    /// Errors: [`Rejection::Full`].
    pub fn remember(&self, name: &str, token: FencingToken) -> Result<(), Rejection> {
        let gate = self.gate(name)?;
        // A smaller token is refused, which is what going back would have to be.
        let _ = lock(&gate).admit(token);
        Ok(())
    }

    /// Returns the largest token seen for a resource, to be kept beside its data.
    pub fn largest(&self, name: &str) -> Option<FencingToken> {
        let gate = lock(&self.gates).get(name).cloned()?;
        lock(&gate).largest()
    }

    fn gate(&self, name: &str) -> Result<Arc<Mutex<TokenGate>>, Rejection> {
        let mut gates = lock(&self.gates);
        if let Some(gate) = gates.get(name) {
            return Ok(Arc::clone(gate));
        }
        if gates.len() >= self.most {
            return Err(Rejection::Full);
        }
        Ok(Arc::clone(gates.entry(name.to_owned()).or_default()))
    }
}

/// A panic while a gate was locked left its number as it was: that number is still right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rejection_has_its_status_and_the_write_does_not_run() {
        let gate = RequestGate::with_room_for(1);
        gate.run("a", Some("name=a; token=34"), || ()).unwrap();
        for (name, headers, status) in [
            ("a", vec!["name=a; token=33"], 412),
            ("a", vec![], 428),
            ("a", vec!["token=35"], 400),
            ("a", vec!["name=a; token=35", "name=a; token=35"], 400),
            ("a", vec!["name=b; token=35"], 400),
            ("b", vec!["name=b; token=35"], 503),
        ] {
            let rejected = gate.run_one(name, headers.clone(), || panic!("{headers:?}")).unwrap_err();
            assert_eq!(rejected.status(), status, "{headers:?}: {rejected}");
        }
        assert_eq!(gate.largest("a"), Some(FencingToken::new(34)));
        assert_eq!(gate.largest("b"), None);
        gate.run("a", Some("name=a; token=34"), || ()).expect("the same holder writes again");
    }

    #[test]
    fn a_restarted_server_goes_on_where_it_was() {
        let gate = RequestGate::new();
        gate.remember("a", FencingToken::new(34)).unwrap();
        gate.remember("a", FencingToken::new(7)).unwrap();
        let late = gate.run("a", Some("name=a; token=33"), || ()).unwrap_err();
        let refused = Refused { token: FencingToken::new(33), largest: FencingToken::new(34) };
        assert_eq!(late, Rejection::Stale(refused));
        assert_eq!(Error::from(late).code(), "stale_token");
    }

    #[test]
    fn a_write_that_panics_leaves_the_gate_usable() {
        let gate = RequestGate::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            gate.run("a", Some("name=a; token=5"), || panic!("the disk is full"))
        }));
        assert!(panicked.is_err());
        assert_eq!(gate.run("a", Some("name=a; token=4"), || ()).unwrap_err().status(), 412);
        gate.run("a", Some("name=a; token=5"), || ()).unwrap();
    }
}
