//! What follows from the facts.

use std::time::Duration;

use crate::backend::redis::doctor::facts::{Counter, Facts};
use crate::backend::redis::doctor::server::{Durability, durability};
use crate::backend::redis::doctor::trials::{Outcome, Push};
use crate::backend::redis::protocol::Guarantee;
use crate::snapshot::Promise;
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH,
};

pub(crate) fn promises(facts: &Facts) -> Vec<Promise> {
    if let Some(why) = unusable(facts) {
        let none = [EXCLUSION, AFTER_RESTART, AFTER_FAILOVER, AFTER_WIPE, FENCING_ORDER, PUSH, FIFO];
        return none.map(|id| Promise::no(id, format!("no lock can be taken here: {why}"))).to_vec();
    }
    vec![
        exclusion(facts),
        after_restart(facts),
        after_failover(facts),
        after_wipe(facts),
        fencing_order(facts),
        push(facts),
        Promise::yes(FIFO, "the server keeps one line per lock; a waiter that fell silent is skipped"),
    ]
}

/// Why nothing can be promised at all.
fn unusable(facts: &Facts) -> Option<String> {
    if let Some(mode) = facts.other_mode() {
        return Some(format!("it is a {mode} node"));
    }
    if facts.is_replica() {
        return Some("it is a replica".into());
    }
    if facts.strict && facts.info.is_none() {
        return Some("guarantee=strict needs INFO".into());
    }
    if let Some(code) = &facts.write_refused {
        return Some(format!("the server refuses writes ({code})"));
    }
    let lacking = facts.trials.iter().find(|trial| {
        let tolerable = match trial.outcome {
            Outcome::Allowed | Outcome::NotTried | Outcome::NoChannels => true,
            // Without pushes waiters poll.
            Outcome::NoCommand => trial.command == "publish",
            _ => false,
        };
        !tolerable
    });
    if let Some(trial) = lacking {
        return Some(format!("the user lacks permissions ({})", trial.command));
    }
    (facts.counter == Counter::Foreign).then(|| "the fencing counter holds other data".into())
}

fn evicts(facts: &Facts, id: &'static str) -> Option<Promise> {
    match facts.can_evict() {
        Some(false) => None,
        Some(true) => Some(Promise::no(id, "the server may evict a held lock when memory is full")),
        None => Some(Promise::unknown(id, "whether the server evicts keys cannot be seen")),
    }
}

fn exclusion(facts: &Facts) -> Promise {
    let yes = Promise::yes(EXCLUSION, "while the server lives, one script decides, and nothing is evicted");
    evicts(facts, EXCLUSION).unwrap_or(yes)
}

/// Why guarantee=strict of this client alone is not enough, if it is not.
fn beside_others(facts: &Facts) -> Option<String> {
    let [other, ..] = facts.sharers.with(Guarantee::BestEffort)[..] else { return None };
    Some(format!("clients without guarantee=strict use this prefix, such as {other}"))
}

/// How long grants are withheld after a restart.
fn longest(facts: &Facts) -> Duration {
    facts.sharers.longest.unwrap_or_default().max(facts.max_lease)
}

fn after_restart(facts: &Facts) -> Promise {
    const ID: &str = AFTER_RESTART;
    if let Some(promise) = evicts(facts, ID) {
        return promise;
    }
    if facts.strict {
        if let Some(why) = beside_others(facts) {
            return Promise::no(ID, why);
        }
        let longest = longest(facts);
        return Promise::yes(
            ID,
            format!("guarantee=strict, in every client: no grants for {longest:?} after it"),
        );
    }
    match durability(facts) {
        Durability::Always => Promise::yes(ID, "every grant is on the disk before it is answered"),
        Durability::EverySecond => Promise::no(ID, "grants of the last second may be forgotten"),
        Durability::WhenItSuits => Promise::no(ID, "grants of the last half minute may be forgotten"),
        Durability::Snapshots => Promise::no(ID, "grants since the last snapshot are forgotten"),
        Durability::Nothing => Promise::no(ID, "all grants are forgotten"),
        Durability::Unknown => Promise::unknown(ID, "what the server keeps on disk cannot be seen"),
    }
}

fn after_failover(facts: &Facts) -> Promise {
    const ID: &str = AFTER_FAILOVER;
    let Some(count) = facts.number("connected_slaves") else {
        return Promise::unknown(ID, "whether there are replicas cannot be seen");
    };
    if count == 0 {
        return Promise::no(ID, "there is no replica that could take over");
    }
    if let Some(promise) = evicts(facts, ID) {
        return promise;
    }
    if let Some(why) = beside_others(facts).filter(|_| facts.strict) {
        return Promise::no(ID, why);
    }
    match (facts.strict, facts.ack.is_some(), facts.min_replicas()) {
        // What was renewed just before the cut-off primary stopped must end before the quarantine does,
        // which allows for the default of this setting.
        (true, true, Some(least @ 1..)) if least < facts.replicas_needed() => Promise::no(
            ID,
            format!(
                "a cut-off primary can go on with a part of its {} replicas (min-replicas-to-write {least}, {} are \
                 needed)",
                facts.known_replicas(),
                facts.replicas_needed()
            ),
        ),
        (true, true, Some(1..)) => match facts.setting("min-replicas-max-lag").map(str::parse::<u64>) {
            Some(Ok(0)) => Promise::no(ID, "a primary that was cut off goes on (min-replicas-max-lag 0)"),
            Some(Ok(11..)) => {
                Promise::no(ID, "a cut-off primary stops too late (min-replicas-max-lag above 10)")
            }
            _ => {
                let longest = longest(facts);
                let why = "a cut-off primary stops within 12 s, and the next one waits";
                Promise::yes(ID, format!("{why} for 12 s and max_lease={longest:?}"))
            }
        },
        (true, true, Some(0)) => {
            Promise::no(ID, "a primary that was cut off goes on (min-replicas-to-write 0)")
        }
        (true, true, None) => Promise::unknown(ID, "min-replicas-to-write cannot be seen"),
        (false, true, _) => Promise::no(ID, "ack= narrows the gap; only guarantee=strict closes it"),
        (_, false, _) => Promise::no(ID, "a promoted replica may not know a held lock (no ack=)"),
    }
}

fn after_wipe(facts: &Facts) -> Promise {
    if let Some(promise) = evicts(facts, AFTER_WIPE).filter(|_| facts.strict) {
        return promise;
    }
    if facts.strict {
        if let Some(why) = beside_others(facts) {
            return Promise::no(AFTER_WIPE, why);
        }
        let longest = longest(facts);
        return Promise::yes(
            AFTER_WIPE,
            format!("guarantee=strict, in every client: an emptied server grants nothing for {longest:?}"),
        );
    }
    Promise::no(AFTER_WIPE, "an emptied server grants at once (guarantee=strict would wait)")
}

fn fencing_order(facts: &Facts) -> Promise {
    match (&facts.counter, facts.clock) {
        (Counter::At(number), Some(clock)) if *number > clock.now_us + 60_000_000 => {
            Promise::no(FENCING_ORDER, "the clock was set back: if data is lost now, tokens fall back too")
        }
        (Counter::Unknown, _) => Promise::unknown(FENCING_ORDER, "the counter cannot be read"),
        _ => Promise::yes(
            FENCING_ORDER,
            "never behind the server's clock, so also after lost data, unless that clock is set back",
        ),
    }
}

fn push(facts: &Facts) -> Promise {
    match &facts.push {
        Push::Heard(_) => Promise::yes(PUSH, "a message to this client arrived"),
        Push::NotSubscribed => Promise::no(PUSH, "subscribing is refused, so waiters poll"),
        Push::NotPublished(_) => Promise::no(PUSH, "publishing is refused, so waiters poll"),
        Push::Silent => Promise::no(PUSH, "a message to this client did not arrive, so waiters poll"),
    }
}
