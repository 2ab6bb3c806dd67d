//! The words: one sentence with its evidence for each verdict, and what to do next.

use polylatch::inspect::{HolderView, LockView};

use super::beat::{Beat, Session};
use super::evidence::Evidence;
use super::finding::{Finding, Next};
use super::graph::Cycle;
use super::history::LockHistory;
use super::judge::judge;
use super::signs::SIGN_EVERY_MS;
use super::text::{break_command, count, sanitized, span};
use super::verdict::{Rule, Severity, Verdict};
use super::votes::{self, Camp};
use super::{health, sharing};

/// Explains one lock, the most severe finding first. There is always at least one.
pub fn findings(lock: &LockView, evidence: &Evidence<'_>) -> Vec<Finding> {
    judge(lock, evidence, None).into_iter().map(|verdict| explain(lock, verdict, evidence, None)).collect()
}

/// Puts a verdict on a lock into words.
pub(super) fn explain(
    lock: &LockView,
    verdict: Verdict,
    evidence: &Evidence<'_>,
    past: Option<&LockHistory>,
) -> Finding {
    let holder = verdict.holder.and_then(|at| lock.holders.get(at));
    let (sentence, next) = match (verdict.rule, holder) {
        (Rule::Deadlock | Rule::MayDeadlock, _) => {
            evidence.ring(&lock.name).map(|ring| deadlock(ring, evidence))
        }
        (Rule::Free | Rule::Legit, _) => Some((nothing_wrong(lock, evidence), vec![])),
        (Rule::DeadHead | Rule::LostWake | Rule::LockDelay, _) => about_line(lock, verdict.rule, evidence),
        (Rule::WritesRefused | Rule::NoQuorum, _) => evidence
            .trouble()
            .map(|trouble| health::explain(trouble, &evidence.silent_nodes(), evidence.own_command())),
        (Rule::Undecided, _) => health::undecided(lock, evidence),
        (Rule::LongWait | Rule::ManyWaiters, _) => about_waiting(lock, verdict, evidence),
        (Rule::SplitVote | Rule::Quorum, _) => about_votes(lock, verdict.rule, evidence),
        (Rule::Starved, _) => past.and_then(|past| starved(lock, past, evidence)),
        (Rule::TokenFellBack | Rule::ShortLease | Rule::ZombieRenew, Some(holder)) => {
            past.and_then(|past| about_past(lock, holder, verdict.rule, evidence, past))
        }
        (_, Some(holder)) => about_holder(lock, holder, verdict, evidence),
        (_, None) => None,
    }
    // What a verdict was about is there as long as the snapshot is.
    .unwrap_or_else(|| (nothing_wrong(lock, evidence), vec![]));
    Finding { rule: verdict.rule, severity: verdict.severity, sentence, next }
}

type Words = (String, Vec<Next>);

/// Not “all is well”: these rules know nothing of the work that is done under the lock, nor of a node that has not
/// answered.
fn nothing_found(evidence: &Evidence<'_>) -> String {
    match evidence.silent_nodes().as_slice() {
        [] => "Nothing wrong was found.".to_owned(),
        silent => {
            let nodes = sanitized(&silent.join(", "));
            format!("Not all is known yet: no answer from {nodes}. The other nodes show nothing wrong.")
        }
    }
}

fn deadlock(ring: &Cycle, evidence: &Evidence<'_>) -> Words {
    let several = ring.waits.iter().any(|wait| wait.connection != ring.waits[0].connection);
    let waits: Vec<String> = ring
        .waits
        .iter()
        .map(|wait| {
            let (waiter, holder) = (evidence.who(&wait.waiter), evidence.who(&wait.holder));
            let place =
                if several { format!(" in {}", sanitized(wait.connection.as_str())) } else { String::new() };
            let lock = format!("{}{place}", sanitized(&wait.lock));
            match &wait.through {
                None => format!("{waiter} waits for {lock}, held by {holder}"),
                Some(started) => {
                    let started = evidence.who(started);
                    format!("{waiter} started {started}, which waits for {lock}, held by {holder}")
                }
            }
        })
        .collect();
    let age = span(ring.age_ms());
    let order = Next::Do("let every program take these locks in the same order".into());
    if !ring.is_proved() {
        let sentence = format!(
            "May be a deadlock, unchanged for {age}: {}. It is one if in each of these clients the task that waits \
             also holds; the store knows clients, not their tasks.",
            waits.join("; ")
        );
        let look = Next::Do(
            "check in these programs whether one task holds one of the locks and waits for the next".into(),
        );
        return (sentence, vec![look, order]);
    }
    let mut next = Vec::new();
    if let Some(wait) = ring.cheapest()
        && let Some(token) = wait.fencing_token
        && sanitized(&wait.lock) == wait.lock
    {
        let (command, reason) = (evidence.command(&wait.connection), "'deadlock: taken last'");
        next.push(Next::Run(break_command(command, &wait.lock, token, reason)));
    }
    next.push(order);
    let sentence = format!(
        "Deadlock, standing for {age}: {}. Renewal keeps all of these leases alive, so nothing ends it.",
        waits.join("; ")
    );
    (sentence, next)
}

fn break_step(lock: &LockView, holder: &HolderView, evidence: &Evidence<'_>) -> Option<Next> {
    let token = holder.fencing_token?;
    if sanitized(&lock.name) != lock.name {
        let advice = "break it with the exact name from the JSON output: it has invisible characters";
        return Some(Next::Do(advice.into()));
    }
    Some(Next::Run(break_command(evidence.own_command(), &lock.name, token, "'...'")))
}

fn about_holder(
    lock: &LockView,
    holder: &HolderView,
    verdict: Verdict,
    evidence: &Evidence<'_>,
) -> Option<Words> {
    let who = evidence.holder(holder);
    let theirs = match lock.details.iter().find(|detail| detail.name == "library") {
        Some(library) => format!("Another program ({}) holds it", sanitized(&library.value)),
        None => "Another program holds it".into(),
    };
    let says = match sanitized(&holder.label) {
        label if label.is_empty() => "the store does not say who".to_owned(),
        label => format!("it says: {label}"),
    };
    let left = holder.remaining_ms.map(span);
    let free = if lock.holders.len() > 1 { "Its lease ends" } else { "Free" };
    let breaking = || break_step(lock, holder, evidence);
    let wait = |left: &str| Next::Do(format!("wait {left}"));
    Some(match verdict.rule {
        Rule::Stopped => {
            let pid = holder.client.as_ref().map(|id| evidence.place(id).1).unwrap_or_default();
            let end = left.map_or_else(String::new, |left| format!(" The lease ends in {left}."));
            let resume = Next::Run(format!("kill -CONT {pid}"));
            let sentence =
                format!("{who} is stopped (process state T): it can neither work, renew nor release.{end}");
            (sentence, [Some(resume), breaking()].into_iter().flatten().collect())
        }
        Rule::Foreign => {
            let end = match (left, Session::of(holder)) {
                (Some(left), _) => format!("Free in {left} unless extended."),
                (None, session) => {
                    format!("It lasts as long as its session, which ends {}.", session?.ends())
                }
            };
            (format!("{theirs}, and {says}. {end}"), vec![])
        }
        Rule::NoExpiry => (
            format!("{theirs} without an expiry: only that program can free it."),
            vec![Next::Do("ask the program that keeps this name; Polylatch leaves its data as it is".into())],
        ),
        Rule::NoExpiryDead => (
            format!("{who} holds it, but that process is gone, and no expiry is known: nothing may free it."),
            breaking().into_iter().collect(),
        ),
        Rule::HolderGone if left.is_none() => {
            let sentence = format!(
                "{who} holds it, but this host has no such process any more. Its session ends {}.",
                Session::of(holder)?.ends()
            );
            let wait = Next::Do("wait for the end of the session".into());
            (sentence, [Some(wait), breaking()].into_iter().flatten().collect())
        }
        Rule::HolderGone => {
            let left = left?;
            let doubt = if verdict.severity == Severity::Notice {
                " If renewals go on, it runs in a container with process numbers of its own."
            } else {
                ""
            };
            let sentence = format!(
                "{who} holds it, but this host has no such process any more. {free} in {left} at the latest.{doubt}"
            );
            (sentence, [Some(wait(&left)), breaking()].into_iter().flatten().collect())
        }
        Rule::RenewalsStopped if left.is_none() => {
            let (silent, every) = (span(evidence.silent_for_ms(holder)?), span(SIGN_EVERY_MS));
            let sentence = format!(
                "{who} has given no heartbeat for {silent}, one was due every {every}: it ended, hangs, or is cut \
                 off from the store. Its session ends {}.",
                Session::of(holder)?.ends()
            );
            let wait = Next::Do("wait for the end of the session".into());
            (sentence, [Some(wait), breaking()].into_iter().flatten().collect())
        }
        Rule::RenewalsStopped => {
            let beat = Beat::of(holder)?;
            let (since, every, left) = (span(beat.since_ms), span(beat.every_ms), span(beat.left_ms));
            let sentence = if verdict.severity == Severity::Notice {
                format!(
                    "{who} has never renewed, and most of its lease is over: it is of a fixed length, or its holder \
                     ended. {free} in {left} unless it renews."
                )
            } else {
                format!(
                    "{who} has not renewed for {since}, one was due every {every}: it ended, hangs, is cut off \
                     from the store, or is at its hold limit. {free} in {left} unless it renews."
                )
            };
            (sentence, [Some(wait(&left)), breaking()].into_iter().flatten().collect())
        }
        Rule::LateRenewal => {
            let beat = Beat::of(holder)?;
            let (since, every, left) = (span(beat.since_ms), span(beat.every_ms), span(beat.left_ms));
            let sentence = format!(
                "The renewal of {who} is late: none for {since}, one was due every {every}; {left} left."
            );
            (sentence, vec![Next::Do("look again in a moment".into())])
        }
        _ => return None,
    })
}

fn about_past(
    lock: &LockView,
    holder: &HolderView,
    rule: Rule,
    evidence: &Evidence<'_>,
    past: &LockHistory,
) -> Option<Words> {
    let who = evidence.holder(holder);
    Some(match rule {
        Rule::ZombieRenew => {
            let (held, usual) = (span(holder.held_for_ms?), span(past.usual_hold_ms()?));
            let sentence = format!(
                "{who} renews on time, but has held it for {held}; the longest of the holds before was {usual}. The \
                 work may hang while its renewal goes on."
            );
            let look = Next::Do("look at what that process does; max_hold or a beat would end this".into());
            (sentence, [Some(look), break_step(lock, holder, evidence)].into_iter().flatten().collect())
        }
        Rule::TokenFellBack => {
            let (before, now) = (past.fell_back(holder)?, holder.fencing_token?);
            let sentence = format!(
                "{who} holds it under token {now}, but token {before} was granted before: the store lost data, or \
                 its clock stepped back. A guarded resource refuses this holder, and an older holder may believe \
                 that it still has the lock."
            );
            (sentence, vec![Next::Run(format!("{} doctor", evidence.own_command()))])
        }
        Rule::ShortLease => {
            let (late, lease) = (past.beats_come_late(holder)?, holder.lease_ms?);
            let sentence = format!(
                "The renewals of {who} come {} apart, and the lease lasts {}: one more miss loses it.",
                span(late),
                span(lease)
            );
            (sentence, vec![Next::Do("take a longer lease, or find what holds the renewals up".into())])
        }
        _ => return None,
    })
}

fn starved(lock: &LockView, past: &LockHistory, evidence: &Evidence<'_>) -> Option<Words> {
    let (waiter, times) = past.starved(lock)?;
    let sentence = format!(
        "{} waits for {} and was passed over {} by clients that came later.",
        evidence.who(&waiter.client),
        span(waiter.waited_ms),
        count(times as usize, "time", "times")
    );
    Some((sentence, vec![Next::Do("leave the lock fair: no fifo(false), no --no-fifo".into())]))
}

fn about_votes(lock: &LockView, rule: Rule, evidence: &Evidence<'_>) -> Option<Words> {
    let tally = votes::tally(lock)?;
    let who = |camp: &Camp<'_>| camp.client.map_or_else(|| "another program".into(), |id| evidence.who(id));
    let nodes = |camp: &Camp<'_>| format!("{} of {} nodes", camp.nodes, tally.nodes);
    let silent = tally.nodes - tally.reached;
    let silent = match silent {
        0 => String::new(),
        _ => format!(" {} not answering.", count(silent, "node is", "nodes are")),
    };
    if rule == Rule::Quorum {
        let camp = tally.camps.first()?;
        let end = match camp.left_ms {
            Some(left) => format!("the last of it ends in {}", span(left)),
            None => "and it has no end there".to_owned(),
        };
        let sentence = format!(
            "No client holds it: {} still name {}, but {} have to; {end}.{silent}",
            nodes(camp),
            who(camp),
            tally.needed
        );
        let next = match camp.left_ms {
            Some(_) => vec![Next::Do("wait; the next caller counts the other nodes".into())],
            None => {
                vec![Next::Do("inspect the key on these nodes: Polylatch keys always have a TTL".into())]
            }
        };
        return Some((sentence, next));
    }
    let camps: Vec<_> = tally.camps.iter().map(|camp| format!("{} has {}", who(camp), nodes(camp))).collect();
    let sentence = format!(
        "Several contenders block each other: {}, and {} are needed.{silent}",
        camps.join(", "),
        tally.needed
    );
    let advice = "wait: they give up and try again after a random pause; if it stays, look for a client that \
                  takes nodes without releasing them";
    Some((sentence, vec![Next::Do(advice.into())]))
}

fn about_line(lock: &LockView, rule: Rule, evidence: &Evidence<'_>) -> Option<Words> {
    if rule == Rule::LockDelay {
        let delay = lock.details.iter().find(|detail| detail.name == "lock-delay")?;
        let sentence = format!(
            "Free, but in lock-delay ({}): the session of the last holder ended without a release, and Consul \
             refuses new holders for that time. Waiters are not at fault.",
            sanitized(&delay.value)
        );
        return Some((sentence, vec![Next::Do("wait, or give the lock a shorter lock-delay".into())]));
    }
    let head = lock.waiters.first()?;
    let who = evidence.who(&head.client);
    if rule == Rule::DeadHead {
        let sentence = format!(
            "The first in the queue, {who}, has given no heartbeat lately; the next hand-off skips it."
        );
        return Some((sentence, vec![]));
    }
    let state = if lock.holders.is_empty() { "Free" } else { "There is room" };
    let waited = span(head.waited_ms);
    if evidence.hangs_on_sessions() && lock.holders.is_empty() {
        let sentence = format!(
            "Free, but {who} has waited for {waited}: if the session of the last holder ended without a release, \
             Consul refuses new holders for the lock-delay (15 s unless set); or the lock is between two holders."
        );
        return Some((sentence, vec![Next::Do("wait for the end of the lock-delay".into())]));
    }
    let sentence = format!(
        "{state}, but {who} has waited for {waited}: between two holders, or a wake-up was lost and its next poll \
         takes the lock."
    );
    let advice = "look again in a moment; if it stays, that process is stopped, or cut off from the store";
    Some((sentence, vec![Next::Do(advice.into())]))
}

fn about_waiting(lock: &LockView, verdict: Verdict, evidence: &Evidence<'_>) -> Option<Words> {
    let live: Vec<_> = lock.waiters.iter().filter(|waiter| !waiter.silent).collect();
    let longest = live.iter().max_by_key(|waiter| waiter.waited_ms)?;
    let waited = span(longest.waited_ms);
    let holder = match lock.holders.first() {
        None => "No client holds it".to_owned(),
        Some(holder) => {
            let held = holder.held_for_ms.map(|held| format!(" for {}", span(held))).unwrap_or_default();
            format!("{} has held it{held}{}", evidence.holder(holder), sharing::and_others(lock))
        }
    };
    if verdict.rule == Rule::LongWait {
        let sentence = format!(
            "{} has waited{} for {waited}. {holder}.",
            evidence.who(&longest.client),
            sharing::wish(longest)
        );
        let advice = "ask the holder why it takes so long; give waiters a time limit (wait)";
        return Some((sentence, vec![Next::Do(advice.into())]));
    }
    let sentence =
        format!("{} wait, the longest for {waited}. {holder}.", count(live.len(), "client", "clients"));
    let advice = "hold it for a shorter time, split what it protects over several names, or use a semaphore";
    Some((sentence, vec![Next::Do(advice.into())]))
}

fn nothing_wrong(lock: &LockView, evidence: &Evidence<'_>) -> String {
    let Some(holder) = lock.holders.first() else {
        let Some(head) = lock.waiters.first() else {
            return "Free: no client holds it or waits.".into();
        };
        // A finding about it has not lasted long enough to be shown.
        if let Some(first) = lock.waiters.iter().find(|waiter| !waiter.silent) {
            let (who, waited) = (evidence.who(&first.client), span(first.waited_ms));
            return format!("Free, and {who} has waited for {waited}: the lock is between two holders.");
        }
        return format!(
            "Free: no client holds it. The {} recorded ({}{}) without a recent heartbeat: the next caller acquires \
             the lock.",
            if lock.waiters.len() > 1 { "waiters are" } else { "only waiter is" },
            evidence.who(&head.client),
            if lock.waiters.len() > 1 { " and others" } else { "" }
        );
    };
    let held = holder.held_for_ms.map(|ms| format!(" for {}", span(ms))).unwrap_or_default();
    let renewed = match (holder.renewals, holder.renewed_ago_ms) {
        (Some(1..), Some(ago)) => format!(", renewed {} ago", span(ago)),
        (Some(0), _) => ", first renewal not due yet".into(),
        _ => match evidence.heartbeat_ago_ms(holder) {
            Some(ago) => format!(
                ", last heartbeat {} ago (due every {}; renewal cannot be observed on this store)",
                span(ago),
                span(SIGN_EVERY_MS)
            ),
            None => ", whether it is renewed is not known".into(),
        },
    };
    let kept = match holder.idle_ago_ms {
        Some(ago) => format!(", kept between callers (none was in {} ago)", span(ago)),
        None => String::new(),
    };
    let who = evidence.holder(holder);
    let live: Vec<_> = lock.waiters.iter().filter(|waiter| !waiter.silent).collect();
    let line = match live.first() {
        None => "No client waits.".into(),
        Some(first) => {
            let waiting = count(live.len(), "client waits", "clients wait");
            format!("{waiting}, the first{} for {}.", sharing::wish(first), span(first.waited_ms))
        }
    };
    let nothing_found = nothing_found(evidence);
    match sharing::held(lock).as_str() {
        "held" => format!("Held{held} by {who}{renewed}{kept}. {line} {nothing_found}"),
        shared => {
            let (first, rest) = shared.split_at(1);
            let (first, others) = (first.to_uppercase(), sharing::and_others(lock));
            format!("{first}{rest} by {who}{held}{renewed}{others}. {line} {nothing_found}")
        }
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
