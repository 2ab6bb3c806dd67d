//! The task at the connection of a session: sends, reads, pings, and moves on to another member.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::clock::{BootInstant, Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};

use super::super::config::ZooKeeperConfig;
use super::super::liveness::lease_for;
use super::super::protocol::answers::{Answer, code};
use super::super::protocol::requests::{self, NOTIFICATION, PING};
use super::errors;
use super::link::{Hello, Link, dial};
use super::member::Member;
use super::session::{Order, Shared};

/// The pause before all members are asked again, at first and at most.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// One session and its connection.
pub(crate) struct Worker {
    pub config: Arc<ZooKeeperConfig>,
    pub members: Arc<[Member]>,
    pub shared: Arc<Shared>,
    pub orders: mpsc::UnboundedReceiver<Order>,
    /// What is asked for; the servers may grant another one.
    pub timeout: Duration,
    pub pings_every: Duration,
    /// When a member answered last.
    pub heard: BootInstant,
    pub password: Vec<u8>,
    pub seen: i64,
    /// The member that is tried next.
    pub next: usize,
}

/// Requests of one order that were sent.
struct Sent {
    order: Order,
    at: BootInstant,
    answers: Vec<Answer>,
}

/// One connection at work.
struct Serving {
    link: Link,
    output: Vec<u8>,
    /// TLS may keep what was written.
    unflushed: bool,
    sent: VecDeque<Sent>,
    /// When a ping left that was not answered.
    pinged: Option<BootInstant>,
    last: BootInstant,
    number: i32,
    /// The last order was to end the session.
    ends: bool,
}

/// What happens next at a connection.
enum Next {
    Read(io::Result<usize>),
    /// So much was written; 0 if all was flushed.
    Written(io::Result<usize>),
    Order(Option<Order>),
    Late,
}

/// Writes some of the output, or flushes what TLS keeps of it. May be given up at any point.
async fn write(writer: &mut (impl AsyncWrite + Unpin), output: &[u8]) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(output).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

impl Worker {
    /// Runs until the session is over, or until nothing can be asked of it any more.
    pub(crate) async fn run(mut self) {
        loop {
            let Some(link) = self.connect().await else { return };
            let mut serving = Serving {
                last: link.sent,
                link,
                output: Vec::new(),
                unflushed: false,
                sent: VecDeque::new(),
                pinged: None,
                number: 0,
                ends: false,
            };
            let why = self.serve(&mut serving).await;
            let is_over = serving.ends;
            for sent in serving.sent {
                let _ = sent.order.reply.send(Err(why.twin()));
            }
            if is_over || self.shared.state().ended.is_some() {
                self.over(errors::closed());
                return;
            }
            tracing::debug!(error = %why, "a connection to ZooKeeper ended");
        }
    }

    /// Nothing more is sent.
    fn over(&mut self, why: Error) {
        self.shared.end(why);
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            let why = self.shared.state().ended.as_ref().map_or_else(errors::expired, Error::twin);
            let _ = order.reply.send(Err(why));
        }
    }

    /// How long a member may be silent: half of a request's limit, so that another one can be asked within it; and another
    /// member has to be found before the session ends.
    fn patience(&self) -> Duration {
        let share = if self.members.len() > 1 { self.config.timeout * 9 / 20 } else { self.config.timeout };
        share.min(self.timeout / 3).max(Duration::from_millis(20))
    }

    /// The next member that serves. `None` if the session is over.
    async fn connect(&mut self) -> Option<Link> {
        let mut pause = PAUSE;
        loop {
            let mut failed = None;
            for _ in 0..self.members.len() {
                if self.orders.is_closed() {
                    // No one is left; what the servers still know of the session expires.
                    return None;
                }
                // To ask for the session keeps it at the servers, also where no answer comes back, and with it its places in
                // the queues. Its locks are lost by now.
                if self.shared.state().id != 0 && SystemClock.now().since(self.heard) >= self.timeout {
                    self.over(errors::expired());
                    return None;
                }
                match self.dial().await {
                    Ok(link) => match self.begin(&link) {
                        Ok(()) => return Some(link),
                        Err(why) => {
                            self.over(why);
                            return None;
                        }
                    },
                    Err(error) => failed = Some(error),
                }
            }
            let failed = failed.unwrap_or_else(|| errors::silent("no member"));
            if let Some(login) = &self.config.login
                && failed.kind() == ErrorKind::BackendRejected
                && login.password.read_again(|_| true)
            {
                continue;
            }
            while let Ok(order) = self.orders.try_recv() {
                let _ = order.reply.send(Err(failed.twin()));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn dial(&mut self) -> Result<Link> {
        let at = self.next % self.members.len();
        self.next = at + 1;
        let session = self.shared.state().id;
        let hello = Hello {
            seen: self.seen,
            timeout: self.timeout,
            session,
            password: &self.password,
            login: self.config.login.as_ref(),
        };
        let limit = self.patience();
        dial(&self.members[at], &hello, limit).await
    }

    /// Takes over what the server says of the session. Errors: it is over.
    fn begin(&mut self, link: &Link) -> Result<()> {
        self.heard = SystemClock.now();
        let connected = &link.connected;
        let granted = Duration::from_millis(u64::try_from(connected.timeout_ms).unwrap_or(0));
        if connected.session == 0 || granted.is_zero() {
            return Err(errors::expired());
        }
        {
            let mut state = self.shared.state();
            if state.id == 0 {
                if granted < self.timeout {
                    let most = lease_for(granted, self.config.tick);
                    return Err(errors::too_long(
                        self.timeout.as_millis(),
                        connected.timeout_ms,
                        most.as_millis(),
                    ));
                }
                state.liveness.created(link.sent, granted);
            } else {
                state.liveness.reconnected(link.sent);
            }
            state.id = connected.session;
            state.place = link.place.clone();
        }
        self.password = connected.password.clone();
        self.shared.forget_watches();
        Ok(())
    }

    /// Carries orders until the connection ends; returns why.
    async fn serve(&mut self, serving: &mut Serving) -> Error {
        loop {
            if let Err(why) = self.read(serving) {
                return why;
            }
            let now = SystemClock.now();
            let oldest = serving.sent.front().map(|sent| sent.at).into_iter().chain(serving.pinged).min();
            let silence = oldest.map(|oldest| self.patience().saturating_sub(now.since(oldest)));
            let ping = match serving.pinged {
                None if !serving.ends => Some(self.pings_every.saturating_sub(now.since(serving.last))),
                _ => None,
            };
            let wake = silence.into_iter().chain(ping).min().unwrap_or(LONGEST_PAUSE);
            let next = {
                let (mut reader, mut writer) = tokio::io::split(&mut serving.link.stream);
                let has_output = !serving.output.is_empty() || serving.unflushed;
                tokio::select! {
                    // What was answered is read before it is found to be late.
                    biased;
                    read = reader.read_buf(&mut serving.link.input.0) => Next::Read(read),
                    written = write(&mut writer, &serving.output), if has_output => Next::Written(written),
                    order = self.orders.recv(), if !serving.ends => Next::Order(order),
                    () = sleep(wake) => Next::Late,
                }
            };
            match next {
                Next::Read(Ok(1..)) => {}
                Next::Written(Ok(count)) => {
                    serving.output.drain(..count);
                    serving.unflushed = count > 0;
                }
                Next::Read(_) | Next::Written(Err(_)) => return errors::broken(&serving.link.place),
                Next::Order(Some(order)) => serving.send(order),
                Next::Order(None) => {
                    serving.output.extend(requests::end_session().frame(0));
                    serving.ends = true;
                    // Its answer is the end of the connection.
                    serving.pinged = Some(now);
                }
                Next::Late => {
                    let now = SystemClock.now();
                    if oldest.is_some_and(|oldest| now.since(oldest) >= self.patience()) {
                        return errors::silent(&serving.link.place).with_effect(crate::error::Effect::Maybe);
                    }
                    if serving.pinged.is_none()
                        && !serving.ends
                        && now.since(serving.last) >= self.pings_every
                    {
                        serving.output.extend(requests::ping());
                        (serving.pinged, serving.last) = (Some(now), now);
                    }
                }
            }
        }
    }

    /// Takes what was read apart.
    fn read(&mut self, serving: &mut Serving) -> Result<()> {
        let place = &serving.link.place;
        while let Some(frame) = serving.link.input.frame().map_err(|()| errors::unreadable(place))? {
            let answer = Answer::read(&frame).ok_or_else(|| errors::unreadable(place))?;
            let now = SystemClock.now();
            self.heard = now;
            match answer.number {
                NOTIFICATION => {
                    let ended = answer.watched().and_then(|node| self.shared.state().watches.remove(&node));
                    ended.into_iter().flatten().for_each(|owner| self.shared.wakeups.hint(owner));
                }
                PING => {
                    if let Some(sent) = serving.pinged.take() {
                        self.shared.state().liveness.answered(sent, now);
                    }
                }
                _ => {
                    self.seen = self.seen.max(answer.zxid);
                    let Some(sent) = serving.sent.front_mut() else { return Err(errors::unreadable(place)) };
                    let Some(request) = sent.order.requests.get(sent.answers.len()) else {
                        return Err(errors::unreadable(place));
                    };
                    if matches!(answer.code, code::SESSION_EXPIRED | code::SESSION_MOVED) {
                        return Err(errors::refused(answer.code, "").with_effect(crate::error::Effect::Maybe));
                    }
                    let mut state = self.shared.state();
                    state.liveness.answered(sent.at, now);
                    if request.is_logged {
                        state.liveness.confirmed(sent.at);
                    }
                    if let (Some(node), Some(owner), true) =
                        (&request.watches, sent.order.owner, answer.is_ok())
                    {
                        state.watches.entry(node.clone()).or_default().push(owner);
                    }
                    drop(state);
                    sent.answers.push(answer);
                    if sent.answers.len() == sent.order.requests.len()
                        && let Some(done) = serving.sent.pop_front()
                    {
                        let _ = done.order.reply.send(Ok(done.answers));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Serving {
    fn send(&mut self, order: Order) {
        order.begun.store(true, Ordering::SeqCst);
        // Its caller has given it up, and counts on it that it does not leave any more.
        if order.reply.is_closed() {
            return;
        }
        let at = SystemClock.now();
        for request in &order.requests {
            self.number = self.number.wrapping_add(1).max(1);
            self.output.extend(request.frame(self.number));
            self.ends |= *request == requests::end_session();
        }
        self.last = at;
        self.sent.push_back(Sent { order, at, answers: Vec::new() });
    }
}
