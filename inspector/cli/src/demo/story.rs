//! What happens next, and what is said about it: decisions without processes, terminal or clock.

use std::time::Duration;

use polylatch::FencingToken;
use polylatch::resource::Refused;

use super::paced;

/// What a worker or the ledger tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// A worker stands still in the ledger, just renewed.
    Ready { who: &'static str, token: FencingToken },
    /// A worker learned that its lease is lost.
    Lost { who: &'static str, reason: String },
    /// The output of a worker has ended.
    Ended(&'static str),
    /// The ledger took a write.
    Written { who: String, token: FencingToken, sum: u64 },
    /// The ledger refused a late write.
    Refused { who: String, refused: Refused },
}

/// What shall be done to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Have it stand still once it is in the ledger.
    Stand(&'static str),
    Pause(&'static str),
    Resume(&'static str),
    Kill(&'static str),
}

/// The ledger's lock at one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub holder: Option<(&'static str, FencingToken)>,
    /// No renewal for half of the lease.
    pub endangered: bool,
    /// The queue, with whether each one is stale.
    pub line: Vec<(&'static str, bool)>,
}

/// What is said, in a colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caption {
    pub title: &'static str,
    pub text: String,
    pub sgr: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    HandOffs,
    /// The next waiter was paused.
    Aiming {
        who: &'static str,
    },
    Paused {
        who: &'static str,
        token: FencingToken,
        endangered: bool,
    },
    /// Another process holds the lock now.
    Overtaken {
        who: &'static str,
        token: FencingToken,
        newer: FencingToken,
        written: bool,
    },
    /// The paused worker runs again.
    Resumed {
        who: &'static str,
    },
    Refused,
    /// Holder and head of the queue were killed.
    Killed {
        holder: &'static str,
        head: &'static str,
        token: FencingToken,
    },
    Recovered,
    Over,
}

/// The story of one round.
#[derive(Debug)]
pub(super) struct Story {
    pace: u32,
    length: Duration,
    step: Step,
    /// Since when, counted from the beginning of the round.
    since: Duration,
    now: Duration,
    caption: Caption,
    said: bool,
    short: Shortener,
}

const CALM: &str = "1;36";
const TROUBLE: &str = "1;33";
const FENCED: &str = "1;35";
const GOOD: &str = "1;32";

impl Story {
    pub(super) fn new(length: Duration, pace: u32) -> Self {
        let caption = Caption {
            title: "HAND-OFFS",
            text: "Five processes share three locks. The holder renews its lease (the bar fills up again); \
                   when it is done, the lock goes to the first waiter, each time with a larger fencing token."
                .into(),
            sgr: CALM,
        };
        let now = Duration::ZERO;
        Self {
            pace,
            length,
            step: Step::HandOffs,
            since: now,
            now,
            caption,
            said: false,
            short: Shortener::default(),
        }
    }

    /// Returns what is said now.
    pub(super) fn caption(&self) -> &Caption {
        &self.caption
    }

    /// Returns what is said now, once.
    pub(super) fn news(&mut self) -> Option<&Caption> {
        (!std::mem::replace(&mut self.said, true)).then_some(&self.caption)
    }

    pub(super) fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Shows tokens without the digits that all of them share.
    pub(super) fn shortener(&self) -> &Shortener {
        &self.short
    }

    fn turn(&mut self, step: Step) {
        self.step = step;
        self.since = self.now;
    }

    fn say(&mut self, title: &'static str, sgr: &'static str, text: String) {
        self.caption = Caption { title, text, sgr };
        self.said = false;
    }

    fn lasted(&self, millis: u64) -> bool {
        self.now.saturating_sub(self.since) >= paced(millis, self.pace)
    }

    /// Reads the ledger's lock, at a time since the beginning of the round.
    pub(super) fn look(&mut self, now: Duration, look: &Look) -> Vec<Order> {
        self.now = now;
        if let Some((_, token)) = look.holder {
            self.short.learn(token);
        }
        match self.step.clone() {
            Step::HandOffs if self.lasted(4000) => {
                let Some(&(who, false)) = look.line.first() else { return vec![] };
                self.turn(Step::Aiming { who });
                self.say(
                    "NOW TROUBLE",
                    CALM,
                    format!(
                        "{who} is the next waiter for the ledger. Once it holds the lock it will be stopped in the middle of \
                         its work, for longer than its lease. Remember its token: no later one will be as small."
                    ),
                );
                vec![Order::Stand(who)]
            }
            // It may have come and gone before it was told.
            Step::Aiming { who } if self.lasted(9000) => {
                self.since = now;
                vec![Order::Stand(who)]
            }
            Step::Paused { who, token, endangered } => {
                match look.holder {
                    Some((next, newer)) if newer > token => {
                        self.turn(Step::Overtaken { who, token, newer, written: false });
                        self.say(
                            "THE NEXT ONE ENTERS",
                            TROUBLE,
                            format!(
                                "The lease of {who} ran out, so {next} holds the lock now, with the larger token {} > \
                                 {}. {who} is still in the middle of its work and knows nothing.",
                                newer,
                                token
                            ),
                        );
                    }
                    _ if look.endangered && !endangered => {
                        self.step = Step::Paused { who, token, endangered: true };
                        self.say(
                            "ENDANGERED",
                            TROUBLE,
                            format!(
                                "Half of the lease is over and no renewal came. {who} cannot renew, cannot release and \
                                 cannot be asked. Waiters can only wait until the lease has expired."
                            ),
                        );
                    }
                    _ => {}
                }
                vec![]
            }
            Step::Overtaken { who, written: true, .. } if self.lasted(2700) => {
                self.turn(Step::Resumed { who });
                self.say("IT GOES ON", TROUBLE, format!("{who} is continued (SIGCONT)."));
                vec![Order::Resume(who)]
            }
            Step::Refused if self.lasted(4000) => {
                let (Some((holder, token)), Some(&(head, false))) = (look.holder, look.line.first()) else {
                    return vec![];
                };
                // Somebody must be left who can take over.
                if look.line.len() < 2 || self.now + paced(4500, self.pace) > self.length {
                    if self.lasted(6000) {
                        self.turn(Step::Recovered);
                    }
                    return vec![];
                }
                self.turn(Step::Killed { holder, head, token });
                self.say(
                    "KILLED",
                    TROUBLE,
                    format!(
                        "{holder}, which holds the ledger's lock, and {head}, the first waiter, are killed (SIGKILL). \
                         No process can release the lock; when the lease expires, the queue moves on behind the dead."
                    ),
                );
                vec![Order::Kill(head), Order::Kill(holder)]
            }
            Step::Killed { holder, head, token } => {
                if let Some((next, newer)) = look.holder
                    && newer > token
                    && ![holder, head].contains(&next)
                {
                    self.turn(Step::Recovered);
                    self.say(
                        "AND ON IT GOES",
                        GOOD,
                        format!(
                            "The lease of the dead {holder} ran out, the dead waiter {head} was passed over, and {next} \
                             got the lock with token {}. No clean-up was needed.",
                            newer
                        ),
                    );
                }
                vec![]
            }
            Step::Recovered if self.lasted(2000) && now >= self.length => {
                self.turn(Step::Over);
                vec![]
            }
            _ => vec![],
        }
    }

    /// Takes a report. `pid` is the number of its process, for display.
    pub(super) fn report(&mut self, report: &Report, pid: Option<u32>) -> Vec<Order> {
        match (self.step.clone(), report) {
            (Step::Aiming { who }, Report::Ready { who: ready, token }) if who == *ready => {
                self.turn(Step::Paused { who, token: *token, endangered: false });
                let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                self.say(
                    "PAUSED",
                    TROUBLE,
                    format!(
                        "{who}{pid} has just checked its lease and is about to write: now it is stopped (SIGSTOP), as by \
                         a long garbage collection or a closed laptop lid. Renewals stop; watch its bar run out."
                    ),
                );
                vec![Order::Pause(who)]
            }
            (Step::Overtaken { who, token, newer, .. }, Report::Written { token: seen, .. })
                if *seen >= newer =>
            {
                self.step = Step::Overtaken { who, token, newer, written: true };
                vec![]
            }
            (Step::Resumed { who }, Report::Lost { who: lost, reason }) if who == *lost => {
                self.say(
                    "IT LEARNS OF THE LOSS",
                    TROUBLE,
                    format!(
                        "{who} is continued (SIGCONT). Its first look at the clock says, without any request: the \
                         lease is lost ({reason}). A careful program stops here; this one writes all the same."
                    ),
                );
                vec![]
            }
            (Step::Resumed { who }, Report::Refused { who: late, refused }) if who == late => {
                self.turn(Step::Refused);
                self.say(
                    "THE FENCE HOLDS",
                    FENCED,
                    format!(
                        "The late write of {who} came with token {}, but the ledger has seen {}: refused. No lock can \
                         stop a write that is already on its way. What it protects can: by comparing two numbers.",
                        refused.token,
                        refused.largest
                    ),
                );
                vec![]
            }
            _ => vec![],
        }
    }
}

/// Shows fencing tokens without the leading digits that all tokens of the demo share: they grow with
/// the store's clock in microseconds, and people compare the rest.
#[derive(Debug, Clone)]
pub(super) struct Shortener {
    shared: String,
    last: FencingToken,
}

impl Default for Shortener {
    fn default() -> Self {
        Self { shared: String::new(), last: FencingToken::new(0) }
    }
}

impl Shortener {
    /// Longer than any demo, in microseconds.
    const AHEAD: u64 = 700_000_000;

    fn learn(&mut self, token: FencingToken) {
        if self.last.get() == 0 {
            let (now, then) = (token.to_string(), token.get().saturating_add(Self::AHEAD).to_string());
            let same = now.bytes().zip(then.bytes()).take_while(|(a, b)| a == b).count();
            if now.len() == then.len() && same > 3 {
                self.shared = now[..same].to_owned();
            }
        }
        self.last = self.last.max(token);
    }

    /// Shortens every token in a text.
    pub(super) fn within(&self, text: &str) -> String {
        if self.shared.is_empty() { text.to_owned() } else { text.replace(&self.shared, "…") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn look(holder: &'static str, fence: u64, line: &[(&'static str, bool)]) -> Look {
        Look { holder: Some((holder, token(fence))), endangered: false, line: line.to_vec() }
    }

    #[test]
    fn the_story_is_told_in_order_and_ends() {
        let mut story = Story::new(secs(25), 1000);
        let mut titles = vec![story.news().unwrap().title];
        let mut orders = Vec::new();
        let line = [("bob", false), ("cid", false)];
        orders.extend(story.look(secs(1), &look("ann", 3, &line)));
        orders.extend(story.look(secs(5), &look("ann", 3, &line)));
        orders.extend(story.report(&Report::Ready { who: "ann", token: token(3) }, None));
        orders.extend(story.look(secs(6), &look("bob", 4, &[("cid", false)])));
        orders.extend(story.report(&Report::Ready { who: "bob", token: token(4) }, Some(7)));
        titles.extend(story.news().map(|caption| caption.title));
        let waiting = [("cid", false), ("dee", false)];
        orders.extend(story.look(secs(9), &Look { endangered: true, ..look("bob", 4, &waiting) }));
        titles.extend(story.news().map(|caption| caption.title));
        orders.extend(story.look(secs(11), &look("cid", 5, &[("dee", false)])));
        titles.extend(story.news().map(|caption| caption.title));
        orders.extend(story.look(secs(20), &look("cid", 5, &[])));
        assert_eq!(orders, [Order::Stand("bob"), Order::Pause("bob")], "not before the next one wrote");
        story.report(&Report::Written { who: "cid".into(), token: token(5), sum: 1 }, None);
        assert_eq!(story.look(secs(21), &look("cid", 5, &[])), [Order::Resume("bob")]);
        story.report(&Report::Lost { who: "bob", reason: "expired".into() }, None);
        titles.extend(story.news().map(|caption| caption.title));
        let refused = Refused { token: token(4), largest: token(5) };
        story.report(&Report::Refused { who: "bob".into(), refused }, None);
        assert!(story.caption().text.contains("token 4, but the ledger has seen 5: refused"));
        titles.extend(story.news().map(|caption| caption.title));
        story.look(secs(29), &look("cid", 6, &line));
        story.look(secs(32), &look("cid", 6, &line));
        story.look(secs(35), &look("cid", 6, &line));
        assert!(story.is_over(), "{story:?}");
        assert_eq!(
            titles,
            [
                "HAND-OFFS",
                "PAUSED",
                "ENDANGERED",
                "THE NEXT ONE ENTERS",
                "IT LEARNS OF THE LOSS",
                "THE FENCE HOLDS"
            ]
        );
    }

    #[test]
    fn holder_and_head_are_killed_only_if_somebody_is_left() {
        let mut story = Story::new(secs(25), 1000);
        story.step = Step::Refused;
        assert_eq!(story.look(secs(5), &look("ann", 3, &[("bob", false)])), []);
        let line = [("bob", false), ("cid", false)];
        assert_eq!(story.look(secs(5), &look("ann", 3, &line)), [Order::Kill("bob"), Order::Kill("ann")]);
        story.look(secs(8), &look("bob", 4, &[]));
        assert!(matches!(story.step, Step::Killed { .. }), "a grant to the dead is not the end");
        story.look(secs(9), &look("cid", 5, &[]));
        assert_eq!(story.caption().title, "AND ON IT GOES");
    }

    #[test]
    fn tokens_lose_only_digits_that_all_of_them_share() {
        let mut short = Shortener::default();
        assert_eq!(short.within("token 1795221277224693"), "token 1795221277224693");
        short.learn(token(1_795_221_277_224_693));
        let both = short.within("token 1795221799999999 < 1795221800000000");
        assert_eq!(both, "token …799999999 < …800000000");
        let mut turning = Shortener::default();
        turning.learn(token(1_795_221_899_999_999));
        let both = turning.within("token 1795221999999999 < 1795222000000000");
        assert_eq!(both, "token …1999999999 < …2000000000", "a digit that will change stays");
        let mut small = Shortener::default();
        small.learn(token(7));
        assert_eq!(small.within("token 8"), "token 8");
    }
}
