//! What the verbs share: the connection, and a step that is decided in the middle of a transaction.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::backend::Purpose;
use crate::backend::rows::Push;
use crate::clock::millis;
use crate::policy::fencing::FencingToken;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::{Wakeups, unpoisoned};

use super::failure::Failure;
use super::link::{Link, Tries};
use super::read::window;
use super::sessions::Sessions;
use super::value::{Cells, Statement};
use super::window::{NeedsMore, Window};
use super::{Server, Session, commit, rollback};

use crate::error::{Error, ErrorKind, Result};

/// How many waiters a step reads at first; most need the next one only.
const FEW: i64 = 8;

/// How many it reads when those were too few: more than it drops and lets in.
const MANY: i64 = (crate::backend::REAPED_PER_STEP + 128) as i64;

/// One store, as this client sees it.
pub(crate) struct Store<S: Server> {
    pub link: Arc<Link<S>>,
    pub client: ClientId,
    pub wakeups: Arc<Wakeups>,
    /// The session that the leases of this client hang on, in session mode.
    pub sessions: Option<Sessions<S>>,
    /// Acquisitions that were told to wait; only a hint which statement to try first.
    queued: Mutex<HashSet<OwnerToken>>,
    /// Locks that clients waited for when this one had to do with them last; only a hint, too.
    wanted: Mutex<HashSet<String>>,
}

/// The locks that a step is about.
pub(crate) struct Concerned {
    pub names: Vec<String>,
    /// The contender at each of them; empty for a step of no contender.
    pub owners: Vec<String>,
    /// Rows are made where there are none.
    pub make: bool,
    /// The same step once more gives the same answer.
    pub repeats: bool,
}

/// More names than these are forgotten all at once.
const MOST_WANTED: usize = 1_000;

/// Of more than these some waited for leases that were lost; they are forgotten all at once.
const MOST_QUEUED: usize = 20_000;

impl<S: Server> Store<S> {
    pub(crate) fn new(link: Arc<Link<S>>, client: ClientId, wakeups: Arc<Wakeups>) -> Self {
        let sessions = link.server.session_mode().is_some().then(Sessions::default);
        Self { link, client, wakeups, sessions, queued: Mutex::default(), wanted: Mutex::default() }
    }

    pub(crate) fn server(&self) -> &S {
        &self.link.server
    }

    /// The time limit of a request, in milliseconds.
    pub(crate) fn timeout_ms(&self) -> i64 {
        i64::try_from(millis(self.link.timeout)).unwrap_or(0)
    }

    pub(crate) fn queued(&self) -> MutexGuard<'_, HashSet<OwnerToken>> {
        unpoisoned(&self.queued)
    }

    pub(crate) fn remember(&self, owner: OwnerToken) {
        let mut queued = self.queued();
        if queued.len() >= MOST_QUEUED {
            queued.clear();
        }
        queued.insert(owner);
    }

    pub(crate) fn forget(&self, owner: OwnerToken) {
        self.queued().remove(&owner);
    }

    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        unpoisoned(&self.wanted).contains(name)
    }

    pub(crate) fn note_wanted(&self, name: &str, is_wanted: bool) {
        let mut wanted = unpoisoned(&self.wanted);
        if !is_wanted {
            wanted.remove(name);
        } else if !wanted.contains(name) {
            if wanted.len() >= MOST_WANTED {
                wanted.clear();
            }
            wanted.insert(name.to_owned());
        }
    }

    /// Carries out one step: locks and reads the rows of these locks, decides, writes, commits. A step that
    /// changes nothing is rolled back, which costs no write to disk.
    pub(crate) async fn step<T>(
        &self,
        concerned: &Concerned,
        decide: impl Fn(&mut Window) -> Result<T, NeedsMore>,
    ) -> Result<T> {
        let (mut tries, mut is_missing) = (Tries::default(), false);
        loop {
            let done = async {
                let make = if is_missing { self.server().make(&concerned.names) } else { Vec::new() };
                if !make.is_empty() {
                    self.link.ask(&make, true).await?;
                }
                let lent = self.link.lend().await?;
                let done = self.step_on(&lent.session, concerned, &decide, &mut is_missing).await;
                lent.end(done).await
            };
            match done.await {
                Ok((answer, pushes)) => {
                    self.deliver(&pushes);
                    return Ok(answer);
                }
                Err(failure) => tries.again(failure, concerned.repeats)?,
            }
        }
    }

    async fn step_on<T>(
        &self,
        session: &S::Session,
        concerned: &Concerned,
        decide: &impl Fn(&mut Window) -> Result<T, NeedsMore>,
        is_missing: &mut bool,
    ) -> Result<(T, Vec<(String, Push)>), Failure> {
        let server = self.server();
        let mut rows = server.begin_step(session, concerned, FEW, self.timeout_ms()).await?;
        let orphans = self.orphans(session, &concerned.names).await?;
        let mut read = window(&rows, FEW);
        read.end_leases(&orphans);
        *is_missing = concerned.make && read.locks.values().any(|lock| !lock.exists);
        if *is_missing {
            // It is new, or a sweep has deleted the row in between.
            return Err(Failure::Collision(Error::new(
                ErrorKind::BackendUnavailable,
                "the row of the lock was deleted several times while it was acquired",
            )));
        }
        let answer = match decide(&mut read) {
            Ok(answer) => answer,
            Err(NeedsMore) => {
                server.read_more(session, concerned, &mut rows, MANY).await?;
                read = window(&rows, MANY);
                read.end_leases(&orphans);
                decide(&mut read).map_err(|NeedsMore| incomplete())?
            }
        };
        let now_ms = read.now.clock_ms;
        let pushes = std::mem::take(&mut read.pushes);
        let is_of_leases = read.is_of_leases;
        let mut statements: Vec<_> =
            read.into_writes().iter().flat_map(|write| server.write(write, now_ms)).collect();
        if statements.is_empty() {
            session.ask(&[rollback()], false).await?;
            return Ok((answer, pushes));
        }
        if !is_of_leases {
            statements.extend(server.relaxed());
        }
        // Never for an uncontended lock: a notification makes the commits of the whole server queue up.
        let others = pushes.iter().filter(|(client, _)| client != self.client.as_str());
        statements.extend(others.filter_map(|(client, push)| server.notify(client, *push)));
        statements.push(commit());
        let woken: BTreeSet<_> = pushes
            .iter()
            .filter(|(client, push)| client != self.client.as_str() && matches!(push, Push::Granted { .. }))
            .map(|(client, _)| client)
            .collect();
        let mut rings = woken.into_iter().filter_map(|client| server.ring(client));
        statements.extend(rings.next());
        session.ask(&statements, true).await?;
        for ring in rings {
            // Each in a request: one that is refused would end the others. Waiters poll too.
            let _ = session.ask(&[ring], false).await;
        }
        Ok((answer, pushes))
    }

    /// A transaction whose statements need no answer in between.
    pub(crate) async fn ask(&self, statements: &[Statement], repeats: bool) -> Result<Vec<Vec<Cells>>> {
        let mut tries = Tries::default();
        loop {
            match self.link.ask(statements, true).await {
                Ok(answers) => return Ok(answers),
                Err(failure) => tries.again(failure, repeats)?,
            }
        }
    }

    /// The same for inspection; `None` while there are no tables.
    pub(crate) async fn read(&self, statements: &[Statement]) -> Result<Option<Vec<Vec<Cells>>>> {
        let (mut tries, mut were_missing) = (Tries::default(), false);
        loop {
            match self.link.ask(statements, false).await {
                Ok(answers) => return Ok(Some(answers)),
                Err(failure) if S::is_missing_table(failure.code()) && !were_missing => {
                    // None of them, or one that was dropped; or they were made in between.
                    were_missing = true;
                    if !S::prepare(&self.link, Purpose::Look).await? {
                        return Ok(None);
                    }
                }
                Err(failure) => tries.again(failure, true)?,
            }
        }
    }

    /// Delivers messages to waiters and holders of this client; those of other clients ignore them here.
    pub(crate) fn deliver(&self, pushes: &[(String, Push)]) {
        for (_, push) in pushes {
            match *push {
                // In session mode a grant counts once its client has confirmed it with a session that lives.
                Push::Granted { owner, .. } if self.sessions.is_some() => self.wakeups.hint(owner),
                Push::Granted { owner, fence } => self.wakeups.grant(owner, fence),
                Push::Revoked { owner, fence } => self.wakeups.revoked(owner, fence),
            }
        }
    }
}

/// The fence in the only row, if there is one.
pub(crate) fn fence(answers: &[Vec<Cells>]) -> Option<FencingToken> {
    let row = answers.first()?.first()?;
    row.optional_int(0).map(crate::backend::rows::token)
}

fn incomplete() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the server answered fewer statements than were asked; please report this",
    )
}
