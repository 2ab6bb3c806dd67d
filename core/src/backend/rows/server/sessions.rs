//! Session mode: the leases of a client hang on one connection, and end with it.
//!
//! - A client opens one connection for this alone, takes a session lock there under a random key, and records the key. The
//!   server frees a session lock when its connection ends, and at no other time.
//! - A waiter that meets a lease asks whether the session lock of its client is free. If so, the session is over. That is
//!   noted, and a short time later a step treats the lease as one that has ended.
//! - A lease begins under a session that the server has just said to live: one that ended earlier, and was noted then, would
//!   be ended by the next step of any client.
//! - A holder whose connection ends is notified, and its leases are ended in the store. Where it runs and the network is not
//!   cut, that is within the short time.
//! - Exclusion, tokens and order are those of the rows, so both modes exclude each other at the same names. What a clash of
//!   keys could do is to let a session that is over look alive; its lease then ends at its time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::backend::{Answer, AnswerAll, Ask, Contender, Conversion, RenewItem, Renewal};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::{Wakeups, unpoisoned};

use super::failure::Failure;
use super::store::Store;
use super::value::{Cells, Statement};
use super::{Server, Session, rollback};

/// The statements of session mode in the dialect of a server.
pub(crate) trait SessionStatements: Send + Sync {
    /// How often the connection is asked whether it still has its session lock, while leases hang on it.
    fn check_every(&self) -> Duration;

    /// Sets a connection up: the server must not end it because it is idle.
    fn settle(&self) -> Vec<Statement>;

    /// The server's number of the connection on which this is asked.
    fn number(&self) -> Statement;

    /// Takes the session lock of this key: 1, or 0 if another connection has it.
    fn take(&self, key: i64) -> Statement;

    /// Whether the connection of this number has the session lock of this key: 1 or 0.
    fn has(&self, key: i64, number: i64) -> Statement;

    /// Records the key of a client.
    fn record(&self, client: &ClientId, key: i64) -> Statement;

    /// Leases at these names whose client has recorded a session that is over: `owner, client, key`, whether that is noted,
    /// and whether it was noted so long ago that a holder that runs knows. The columns of numbers are 1 or 0.
    fn orphans(&self, names: &[String]) -> Statement;

    /// Clients whose session is over without a note of it, with its key; a bounded number.
    fn over(&self) -> Statement;

    /// Notes that the session of a client is over.
    fn note_over(&self, client: &str, key: i64) -> Statement;

    /// Deletes the records of sessions that were noted to be over longer ago than any lease lasts.
    fn forget(&self) -> Statement;

    /// Begins a transaction.
    fn begin(&self) -> Statement;
}

/// The session of one client.
pub(crate) struct Sessions<S: Server> {
    slot: tokio::sync::Mutex<Option<Arc<Kept<S>>>>,
    keeper: Mutex<Option<AbortHandle>>,
}

impl<S: Server> Default for Sessions<S> {
    fn default() -> Self {
        Self { slot: tokio::sync::Mutex::new(None), keeper: Mutex::new(None) }
    }
}

/// What hangs on a session.
enum Bound {
    Leases(HashMap<OwnerToken, (Arc<Contender>, FencingToken)>),
    /// It is over, and these have still to be ended in the store.
    Over(Vec<Arc<Contender>>),
}

/// A connection with its session lock, and the leases that hang on it.
pub(crate) struct Kept<S: Server> {
    connection: S::Session,
    key: i64,
    number: i64,
    /// When the server was last asked of it and said that it lives.
    lived: Mutex<Instant>,
    bound: Mutex<Bound>,
}

impl<S: Server> Kept<S> {
    /// Whether it is not over; then the lease hangs on it.
    fn bind(&self, contender: &Arc<Contender>, fence: FencingToken) -> bool {
        match &mut *unpoisoned(&self.bound) {
            Bound::Leases(leases) if self.connection.is_open() => {
                leases.insert(contender.owner, (Arc::clone(contender), fence));
                true
            }
            _ => false,
        }
    }

    fn unbind(&self, owner: OwnerToken) {
        if let Bound::Leases(leases) = &mut *unpoisoned(&self.bound) {
            leases.remove(&owner);
        }
    }

    fn has(&self, owner: OwnerToken) -> bool {
        matches!(&*unpoisoned(&self.bound), Bound::Leases(leases) if leases.contains_key(&owner))
    }

    fn holds(&self) -> bool {
        matches!(&*unpoisoned(&self.bound), Bound::Leases(leases) if !leases.is_empty())
    }

    fn is_over(&self) -> bool {
        !self.connection.is_open() || matches!(&*unpoisoned(&self.bound), Bound::Over(_))
    }

    /// Whether the server said a moment ago that it lives. From then on a lease under it is safe for as long as a holder that
    /// runs needs to know of its end.
    fn lived_just_now(&self) -> bool {
        !self.is_over() && unpoisoned(&self.lived).elapsed() < JUST_NOW
    }

    /// The answer of [`SessionStatements::has`] to what was asked at this time.
    fn answered(&self, asked: Instant, rows: &[Cells]) -> bool {
        let lives = number(rows) == 1;
        if lives {
            *unpoisoned(&self.lived) = asked;
        }
        lives
    }

    /// Ends it for this client: the holders are notified, once.
    fn end(&self, wakeups: &Wakeups) {
        self.connection.end();
        let mut bound = unpoisoned(&self.bound);
        if let Bound::Leases(leases) = &mut *bound {
            let leases = std::mem::take(leases);
            *bound = Bound::Over(leases.values().map(|(contender, _)| Arc::clone(contender)).collect());
            drop(bound);
            for (owner, (_, fence)) in leases {
                wakeups.session_ended(owner, fence.get());
            }
        }
    }

    fn leftovers(&self) -> Vec<Arc<Contender>> {
        match &mut *unpoisoned(&self.bound) {
            Bound::Leases(_) => Vec::new(),
            Bound::Over(contenders) => std::mem::take(contenders),
        }
    }

    /// Completes when the session is over.
    async fn watch(&self, statements: &dyn SessionStatements) {
        let asked = [statements.number(), statements.has(self.key, self.number)];
        let mut checked = Instant::now();
        loop {
            if tokio::time::timeout(statements.check_every(), self.connection.ended()).await.is_ok() {
                return;
            }
            if !self.holds() && checked.elapsed() < IDLE_CHECKS {
                continue;
            }
            checked = Instant::now();
            // A connection that is silent is no ended one: the leases end by their holders' clocks.
            match self.connection.ask(&asked, false).await {
                Ok(answers) if number(&answers[0]) == self.number && self.answered(checked, &answers[1]) => {}
                _ => return,
            }
        }
    }
}

/// Columns of [`SessionStatements::orphans`].
const NOTED: usize = 3;
const KNOWN: usize = 4;

/// How often a session is checked on which nothing hangs.
const IDLE_CHECKS: Duration = Duration::from_secs(10);

/// For how long an answer that a session lives counts: a part of the time that a holder has to know.
const JUST_NOW: Duration = Duration::from_millis(250);

fn number(rows: &[Cells]) -> i64 {
    rows.first().map_or(0, |row| row.int(0))
}

impl<S: Server> Store<S> {
    /// The session of this client, which is opened if there is none; `None` in lease mode.
    ///
    /// Errors: `backend_rejected` if a pooler is in between.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Option<Arc<Kept<S>>>> {
        let (Some(sessions), Some(statements)) = (&self.sessions, self.server().session_mode()) else {
            return Ok(None);
        };
        // Asked outside of the lock: renewals need the session too.
        let current = sessions.slot.lock().await.clone();
        if let Some(kept) = current
            && self.lives(&kept, statements).await?
        {
            return Ok(Some(kept));
        }
        let mut slot = sessions.slot.lock().await;
        if let Some(kept) = slot.as_ref().filter(|kept| !kept.is_over()) {
            return Ok(Some(Arc::clone(kept)));
        }
        if let Some(over) = slot.take() {
            self.clean_up(&over).await;
        }
        let kept = Arc::new(self.open_session(statements).await.map_err(Failure::into_error)?);
        *slot = Some(Arc::clone(&kept));
        let keeper = self.link.spawn(keep(Arc::clone(self), Arc::clone(&kept)));
        *unpoisoned(&sessions.keeper) = Some(keeper);
        Ok(Some(kept))
    }

    /// Whether a session lives, which the server is asked unless it has just said so. One that does not is over.
    async fn lives(&self, kept: &Kept<S>, statements: &dyn SessionStatements) -> Result<bool> {
        if kept.lived_just_now() {
            return Ok(true);
        }
        if !kept.is_over() {
            let asked = Instant::now();
            let answers = self.ask(&[statements.has(kept.key, kept.number)], true).await?;
            if kept.answered(asked, &answers[0]) {
                return Ok(!kept.is_over());
            }
            kept.end(&self.wakeups);
        }
        Ok(false)
    }

    /// Before anything is made.
    ///
    /// Errors: `backend_rejected` in session mode with a pooler in between.
    pub(super) async fn refuse_poolers(&self) -> Result<()> {
        let Some(statements) = self.server().session_mode() else { return Ok(()) };
        let connection = self.server().open().await.map_err(Failure::into_error)?;
        self.number_of(&connection, statements).await.map(drop).map_err(Failure::into_error)
    }

    async fn open_session(
        &self,
        statements: &dyn SessionStatements,
    ) -> std::result::Result<Kept<S>, Failure> {
        let connection = self.server().open().await?;
        connection.ask(&statements.settle(), false).await?;
        let own = self.number_of(&connection, statements).await?;
        let mut bytes = [0; 8];
        for _ in 0..4 {
            getrandom::fill(&mut bytes).map_err(|error| {
                Error::new(ErrorKind::Internal, "could not read random bytes from the OS").with_source(error)
            })?;
            // Positive, as far as a 64-bit number of both servers goes.
            let key = i64::from_ne_bytes(bytes) & i64::MAX;
            let asked = Instant::now();
            let taken = connection.ask(&[statements.take(key), statements.has(key, own)], false).await?;
            if taken.iter().any(|rows| number(rows) != 1) {
                continue;
            }
            // The lock first: a recorded session is never taken for one that is over while it begins.
            self.link.ask(&[statements.record(&self.client, key)], true).await?;
            self.note_sessions_over(statements).await?;
            return Ok(Kept {
                connection,
                key,
                number: own,
                lived: Mutex::new(asked),
                bound: Mutex::new(Bound::Leases(HashMap::new())),
            });
        }
        Err(Error::new(
            ErrorKind::BackendRejected,
            format!(
                "mode=session: {} at {} gives no session lock to this connection; connect to the server itself, or leave \
                 mode=session out",
                S::NAME,
                self.link.server.place()
            ),
        )
        .into())
    }

    /// The number of a connection, which has to be one for all of its statements, and for no other connection.
    pub(crate) async fn number_of(
        &self,
        connection: &S::Session,
        statements: &dyn SessionStatements,
    ) -> std::result::Result<i64, Failure> {
        let ask = [statements.number()];
        let own = number(&connection.ask(&ask, false).await?[0]);
        let mut is_alone = true;
        for _ in 0..3 {
            // A pooler gives this transaction a connection to the server, and the next statement another one.
            let lent = self.link.lend().await?;
            let told = async {
                let begun = lent.session.ask(&[statements.begin(), statements.number()], false).await?;
                let again = number(&connection.ask(&ask, false).await?[0]);
                lent.session.ask(&[rollback()], false).await?;
                Ok(number(&begun[1]) != own && again == own)
            };
            let told = told.await;
            is_alone &= lent.end(told).await?;
            is_alone &= number(&connection.ask(&ask, false).await?[0]) == own;
        }
        if is_alone {
            return Ok(own);
        }
        Err(Error::new(
            ErrorKind::BackendRejected,
            format!(
                "mode=session: a pooler in front of {} at {} gives the connection of this client to other clients between \
                 transactions, and its session lock with it; connect to the server itself, or leave mode=session out",
                S::NAME,
                self.link.server.place()
            ),
        )
        .into())
    }

    /// Notes sessions that are over: their records are needed for as long as their leases last.
    async fn note_sessions_over(
        &self,
        statements: &dyn SessionStatements,
    ) -> std::result::Result<(), Failure> {
        for row in &self.link.ask(&[statements.over()], false).await?[0] {
            self.link.ask(&[statements.note_over(&row.text(0), row.int(1))], true).await?;
        }
        self.link.ask(&[statements.forget()], true).await.map(drop)
    }

    /// Owners of the leases at these names whose sessions are over. In lease mode none is looked for.
    pub(super) async fn orphans(
        &self,
        connection: &S::Session,
        names: &[String],
    ) -> std::result::Result<HashSet<String>, Failure> {
        let Some(statements) = self.server().session_mode() else { return Ok(HashSet::new()) };
        let answers = connection.ask(&[statements.orphans(names)], false).await?;
        Ok(answers[0].iter().filter(|row| row.int(KNOWN) != 0).map(|row| row.text(0)).collect())
    }

    /// Whether a step would end a lease of this name because its session is over. One that is found to be over is noted:
    /// its client, if it runs, has to learn of it before the lock is another one's.
    pub(super) async fn is_orphaned(&self, name: &str) -> Result<bool> {
        let Some(statements) = self.server().session_mode() else { return Ok(false) };
        let answers = self.ask(&[statements.orphans(&[name.to_owned()])], true).await?;
        for row in answers[0].iter().filter(|row| row.int(NOTED) == 0) {
            self.ask(&[statements.note_over(&row.text(1), row.int(2))], true).await?;
        }
        Ok(answers[0].iter().any(|row| row.int(KNOWN) != 0))
    }

    async fn current_session(&self) -> Option<Arc<Kept<S>>> {
        let slot = self.sessions.as_ref()?.slot.lock().await;
        slot.as_ref().filter(|kept| !kept.is_over()).cloned()
    }

    /// Hangs what was granted on the session, if that lives after the grant.
    ///
    /// Errors: `backend_unavailable` if that is over, or where the server does not say; then nothing is held.
    async fn bind(
        &self,
        session: Option<Arc<Kept<S>>>,
        granted: &[(&Arc<Contender>, FencingToken)],
    ) -> Result<()> {
        let (Some(session), Some(statements)) = (session, self.server().session_mode()) else {
            return Ok(());
        };
        // Where that is not known, what was granted has to be undone.
        let lives = self.lives(&session, statements).await;
        if lives.map_err(|error| error.with_effect(Effect::Maybe))?
            && granted.iter().all(|(contender, fence)| session.bind(contender, *fence))
        {
            return Ok(());
        }
        for (contender, _) in granted {
            self.cancel(contender).await?;
        }
        Err(Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "the session of this client at {} at {} ended while a lock was acquired; try again",
                S::NAME,
                self.link.server.place()
            ),
        ))
    }

    /// The lease of this contender does not hang on the session any more.
    pub(super) async fn unbind(&self, contender: &Contender) {
        if let Some(session) = self.current_session().await {
            session.unbind(contender.owner);
        }
    }

    pub(super) async fn poll_in_session(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        ask: Ask,
    ) -> Result<Answer> {
        let session = self.session().await?;
        let answer = self.poll(contender, ask).await?;
        if let Answer::Held { fence } = answer {
            self.bind(session, &[(contender, fence)]).await?;
        }
        Ok(answer)
    }

    pub(super) async fn steal_in_session(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        reason: &str,
    ) -> Result<Answer> {
        let session = self.session().await?;
        let answer = self.steal(contender, reason).await?;
        if let Answer::Held { fence } = answer {
            self.bind(session, &[(contender, fence)]).await?;
        }
        Ok(answer)
    }

    pub(super) async fn take_all_in_session(
        self: &Arc<Self>,
        contenders: &[Arc<Contender>],
    ) -> Result<AnswerAll> {
        let session = self.session().await?;
        let answer = self.take_all(contenders).await?;
        if let AnswerAll::Held { fences } = &answer {
            let granted: Vec<_> = contenders.iter().zip(fences.iter().copied()).collect();
            self.bind(session, &granted).await?;
        }
        Ok(answer)
    }

    pub(super) async fn convert_in_session(
        &self,
        contender: &Arc<Contender>,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        let session = self.current_session().await;
        let converted = self.convert(contender, fence, to).await?;
        if let Conversion::Done { fence } = converted
            && let Some(session) = session
            && session.has(contender.owner)
        {
            session.bind(contender, fence);
        }
        Ok(converted)
    }

    /// Extends leases that hang on the session, once the server has said that the session lives. Others are lost.
    pub(super) async fn renew_in_session(&self, items: &[RenewItem]) -> Result<Vec<Renewal>> {
        let Some(statements) = self.server().session_mode() else { return self.renew(items).await };
        let lost = || vec![Renewal::NotYours; items.len()];
        let Some(session) = self.current_session().await else { return Ok(lost()) };
        let asked = Instant::now();
        let answers = self.ask(&[statements.has(session.key, session.number)], true).await?;
        if !session.answered(asked, &answers[0]) {
            session.end(&self.wakeups);
            return Ok(lost());
        }
        let own: Vec<_> = items.iter().filter(|item| session.has(item.contender.owner)).cloned().collect();
        let mut renewals = self.renew(&own).await?.into_iter();
        let answer = |item: &RenewItem| {
            let is_own = own.iter().any(|own| own.contender.owner == item.contender.owner);
            if is_own { renewals.next().unwrap_or(Renewal::NotYours) } else { Renewal::NotYours }
        };
        Ok(items.iter().map(answer).collect())
    }

    /// Ends the session, and with it what still hangs on it.
    pub(super) async fn end_session(&self) {
        self.stop_keeping();
        if let Some(sessions) = &self.sessions {
            *sessions.slot.lock().await = None;
        }
    }

    pub(super) fn stop_keeping(&self) {
        let keeper = self.sessions.as_ref().and_then(|sessions| unpoisoned(&sessions.keeper).take());
        if let Some(keeper) = keeper {
            keeper.abort();
        }
    }
}

impl<S: Server> Store<S> {
    /// Ends the leases of a session that is over, before another one is opened: under its record they would look alive.
    async fn clean_up(&self, over: &Kept<S>) {
        over.end(&self.wakeups);
        let leftovers = over.leftovers();
        let ends = async {
            for contender in &leftovers {
                self.cancel(contender).await?;
            }
            Ok::<(), Error>(())
        };
        if !matches!(tokio::time::timeout(self.link.timeout / 2, ends).await, Ok(Ok(()))) {
            tracing::debug!("leases of a session that is over were not ended; they end at their time");
        }
    }
}

/// Waits for the end of a session. Then its holders are notified, and its leases are ended in the store.
async fn keep<S: Server>(store: Arc<Store<S>>, kept: Arc<Kept<S>>) {
    let (Some(sessions), Some(statements)) = (&store.sessions, store.server().session_mode()) else { return };
    kept.watch(statements).await;
    kept.end(&store.wakeups);
    let mut slot = sessions.slot.lock().await;
    store.clean_up(&kept).await;
    if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, &kept)) {
        *slot = None;
    }
}
