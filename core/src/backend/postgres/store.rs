//! What the verbs share: the connection, and a step that is decided in the middle of a transaction.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::backend::Purpose;
use crate::backend::rows::Push;
use crate::clock::millis;
use crate::policy::fencing::FencingToken;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::{Wakeups, unpoisoned};

use super::open::prepare;
use super::protocol::messages::notify;
use super::protocol::rows::window;
use super::protocol::schema::Schema;
use super::protocol::statements::{begin, commit, limits, relaxed, rollback};
use super::protocol::value::Cells;
use super::protocol::window::{NeedsMore, Window};
use super::transport::errors::Failure;
use super::transport::link::{Link, Tries};
use super::transport::session::Session;

use crate::error::{Error, ErrorKind, Result};

/// How many waiters a step reads at first; most need the next one only.
const FEW: i64 = 8;

/// How many it reads when those were too few: more than it drops and lets in.
const MANY: i64 = (crate::backend::REAPED_PER_STEP + 128) as i64;

/// One store, as this client sees it.
pub(crate) struct Store {
    pub link: Arc<Link>,
    pub schema: Schema,
    pub client: ClientId,
    pub wakeups: Arc<Wakeups>,
    /// Acquisitions that were told to wait; only a hint which statement to try first.
    queued: Mutex<HashSet<OwnerToken>>,
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

/// Of more than these some waited for leases that were lost; they are forgotten all at once.
const MOST_QUEUED: usize = 20_000;

impl Store {
    pub(crate) fn new(link: Arc<Link>, schema: Schema, client: ClientId, wakeups: Arc<Wakeups>) -> Self {
        Self { link, schema, client, wakeups, queued: Mutex::default() }
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

    /// Carries out one step: locks and reads the rows of these locks, decides, writes, commits. A step that
    /// changes nothing is rolled back, which costs no write to disk.
    pub(crate) async fn step<T>(
        &self,
        concerned: &Concerned,
        decide: impl Fn(&mut Window) -> Result<T, NeedsMore>,
    ) -> Result<T> {
        let mut tries = Tries::default();
        loop {
            let done = match self.link.lend().await {
                Ok(lent) => {
                    let done = self.step_on(&lent.session, concerned, &decide).await;
                    lent.end(done).await
                }
                Err(failure) => Err(failure),
            };
            match done {
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
        session: &Session,
        concerned: &Concerned,
        decide: &impl Fn(&mut Window) -> Result<T, NeedsMore>,
    ) -> Result<(T, Vec<(String, Push)>), Failure> {
        let Concerned { names, owners, make, .. } = concerned;
        let timeout_ms = i64::try_from(millis(self.link.timeout)).unwrap_or(0);
        let mut statements = vec![begin(), limits(timeout_ms)];
        if *make {
            statements.push(self.schema.ensure(names));
        }
        let at = statements.len();
        statements.extend([
            self.schema.lock(names),
            self.schema.leases(names),
            self.schema.front(names, FEW),
            self.schema.places(names, owners),
        ]);
        let answers = session.ask(&statements, false).await?;
        let [locks, leases, front, places] = &answers[at..] else {
            return Err(incomplete().into());
        };
        let mut read = window(locks, leases, front, places, FEW);
        if *make && read.locks.values().any(|lock| !lock.exists) {
            // A sweep has deleted the row in between.
            return Err(Failure::Collision(Error::new(
                ErrorKind::BackendUnavailable,
                "the row of the lock was deleted several times while it was acquired",
            )));
        }
        let answer = match decide(&mut read) {
            Ok(answer) => answer,
            Err(NeedsMore) => {
                let more = [self.schema.front(names, MANY), self.schema.places(names, owners)];
                let more = session.ask(&more, false).await?;
                let [front, places] = more.as_slice() else { return Err(incomplete().into()) };
                read = window(locks, leases, front, places, MANY);
                decide(&mut read).map_err(|NeedsMore| incomplete())?
            }
        };
        let now_ms = read.now.clock_ms;
        let pushes = std::mem::take(&mut read.pushes);
        let is_of_leases = read.is_of_leases;
        let mut statements: Vec<_> =
            read.into_writes().iter().flat_map(|write| self.schema.write(write, now_ms)).collect();
        if statements.is_empty() {
            session.ask(&[rollback()], false).await?;
            return Ok((answer, pushes));
        }
        if !is_of_leases {
            statements.push(relaxed());
        }
        // Never for an uncontended lock: a notification makes the commits of the whole server queue up.
        let others = pushes.iter().filter(|(client, _)| client != self.client.as_str());
        statements.extend(others.map(|(client, push)| notify(client, *push)));
        statements.push(commit());
        session.ask(&statements, true).await?;
        Ok((answer, pushes))
    }

    /// A transaction whose statements need no answer in between.
    pub(crate) async fn ask(
        &self,
        statements: &[super::protocol::value::Statement],
        repeats: bool,
    ) -> Result<Vec<Vec<Cells>>> {
        let mut tries = Tries::default();
        loop {
            match self.link.ask(statements, true).await {
                Ok(answers) => return Ok(answers),
                Err(failure) => tries.again(failure, repeats)?,
            }
        }
    }

    /// The same for inspection; `None` while there are no tables.
    pub(crate) async fn read(
        &self,
        statements: &[super::protocol::value::Statement],
    ) -> Result<Option<Vec<Vec<Cells>>>> {
        let (mut tries, mut were_missing) = (Tries::default(), false);
        loop {
            match self.link.ask(statements, false).await {
                Ok(answers) => return Ok(Some(answers)),
                Err(failure) if failure.is_missing_table() && !were_missing => {
                    // None of them, or one that was dropped; or they were made in between.
                    were_missing = true;
                    if !prepare(&self.link, &self.schema, Purpose::Look).await? {
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
