//! Whether an answer is what a step expects.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::scenario::{Expect, Person, Verb};

/// Every error code with what may stand beside it; read from `errors.json`.
#[derive(Debug, Deserialize)]
pub struct ErrorTable {
    errors: Vec<ErrorRow>,
    idempotency_errors: Vec<ErrorRow>,
    lost_reasons: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ErrorRow {
    code: String,
    retry: String,
    effects: Vec<String>,
}

impl ErrorTable {
    /// Says what is wrong with an error as a binding told it, whatever the step expects.
    fn fault(&self, error: &Value) -> Option<String> {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let (code, retry, effect) = (text("code"), text("retry"), text("effect"));
        let mut rows = self.errors.iter().chain(&self.idempotency_errors);
        let Some(row) = rows.find(|row| row.code == code) else {
            return Some(format!("{code:?} is no code of errors.json"));
        };
        if row.retry != retry {
            return Some(format!("{code} with retry {retry:?}; errors.json says {:?}", row.retry));
        }
        if !row.effects.contains(&effect) {
            return Some(format!("{code} with effect {effect:?}; errors.json says {:?}", row.effects));
        }
        let reason = error["reason"].as_str();
        if (code == "lease_lost") != reason.is_some() {
            return Some(format!("{code} with reason {reason:?}; lease_lost has one, nothing else does"));
        }
        if let Some(reason) = reason
            && !self.lost_reasons.iter().any(|known| known == reason)
        {
            return Some(format!("{reason:?} is no reason of errors.json"));
        }
        if text("message").len() < 10 {
            return Some(format!("{code} without a sentence"));
        }
        None
    }
}

/// What is known so far: under which fencing token each guard was granted.
pub type Tokens = BTreeMap<String, u64>;

/// Says what is wrong with an answer; nothing if it is as expected.
pub fn fault(
    verb: Verb,
    expect: &Expect,
    answer: &Value,
    tokens: &Tokens,
    table: &ErrorTable,
) -> Option<String> {
    let error = &answer["error"];
    if !error.is_null() {
        if let Some(fault) = table.fault(error) {
            return Some(fault);
        }
        return wrong_error(expect, error);
    }
    if let Some(code) = &expect.error {
        return Some(format!("the error {code} was expected, but it went well: {answer}"));
    }
    if answer["canceled"] == true {
        return (expect.canceled != Some(true)).then(|| "it was canceled".into());
    }
    if expect.canceled == Some(true) {
        return Some(format!("a cancellation was expected: {answer}"));
    }
    let ok = &answer["ok"];
    if !ok.is_object() {
        return Some(format!("neither ok nor error: {answer}"));
    }
    let acquires = matches!(
        verb,
        Verb::Acquire | Verb::Try | Verb::LockAll | Verb::TryAll | Verb::Downgrade | Verb::Upgrade
    );
    let held = ok["held"].as_bool();
    if acquires && held.is_none() {
        return Some(format!("it does not say whether it is held: {answer}"));
    }
    if acquires && held != Some(expect.held.unwrap_or(true)) {
        return Some(format!("held: {}, expected: {}", held == Some(true), expect.held.unwrap_or(true)));
    }
    if let Some(reason) = &expect.reason
        && ok["reason"].as_str() != Some(reason)
    {
        return Some(format!("the reason {reason} was expected: {ok}"));
    }
    if let Some(outcome) = &expect.outcome
        && ok["outcome"].as_str() != Some(outcome)
    {
        return Some(format!("the outcome {outcome} was expected: {ok}"));
    }
    if let Some(locks) = &expect.locks {
        let told: Vec<_> = ok["locks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !told.iter().zip(locks).all(|(told, lock)| told.ends_with(&format!("/{lock}")))
            || told.len() != locks.len()
        {
            return Some(format!("guards for {locks:?} were expected, in this order: {told:?}"));
        }
    }
    if let Some(value) = &expect.value
        && ok["value"].as_str() != Some(value)
    {
        return Some(format!("the value {value:?} was expected: {ok}"));
    }
    if let Some(replayed) = expect.replayed
        && ok["replayed"].as_bool() != Some(replayed)
    {
        return Some(format!("replayed: {replayed} was expected: {ok}"));
    }
    if let Some(fault) = wrong_count(expect, ok) {
        return Some(fault);
    }
    wrong_token(expect, ok, tokens)
}

fn wrong_count(expect: &Expect, ok: &Value) -> Option<String> {
    let (count, expected) =
        expect.counts.iter().flatten().find(|(count, expected)| ok[count].as_u64() != Some(**expected))?;
    Some(format!("{expected} {count} were expected: {ok}"))
}

/// The events in the life of a lock. Others depend on how the machine and the store are doing.
const LIFE: [&str; 4] = ["waiting", "acquired", "released", "lost"];

/// Says what is wrong with what a callback was told of a lock so far.
pub fn wrong_events(expect: &Expect, answer: &Value) -> Option<String> {
    let Some(told) = answer["ok"]["events"].as_array() else { return Some(format!("no events: {answer}")) };
    let is_of_life = |event: &&str| event.split_once(' ').is_some_and(|(_, name)| LIFE.contains(&name));
    let told: Vec<_> = told.iter().filter_map(Value::as_str).filter(is_of_life).collect();
    let expected = expect.events.as_ref()?;
    (told != *expected).then(|| format!("the events {expected:?} were expected: {told:?}"))
}

fn wrong_error(expect: &Expect, error: &Value) -> Option<String> {
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    match &expect.error {
        None => Some(format!("it failed: {}: {}", text("code"), text("message"))),
        Some(code) if text("code") != code => {
            Some(format!("the error {code} was expected, not {}: {}", text("code"), text("message")))
        }
        Some(_) => {
            if let Some(reason) = &expect.reason
                && text("reason") != reason
            {
                return Some(format!("lost for the reason {reason} was expected, not {}", text("reason")));
            }
            let part = expect.message_has.as_ref()?;
            (!text("message").contains(part.as_str()))
                .then(|| format!("the message should have {part:?}: {}", text("message")))
        }
    }
}

fn wrong_token(expect: &Expect, ok: &Value, tokens: &Tokens) -> Option<String> {
    let token = ok["token"].as_u64();
    if let Some(token) = token
        && !(1..1 << 53).contains(&token)
    {
        return Some(format!("the fencing token {token} is not between 1 and 2^53"));
    }
    let known = |guard: &String| tokens.get(guard).copied();
    for guard in &expect.newer_than {
        match (token, known(guard)) {
            (Some(token), Some(other)) if token > other => {}
            (_, other) => {
                return Some(format!("the token {token:?} should be newer than that of {guard}, {other:?}"));
            }
        }
    }
    let guard = expect.same_token_as.as_ref()?;
    (token.is_none() || token != known(guard))
        .then(|| format!("the token {token:?} should be that of {guard}, {:?}", known(guard)))
}

/// What a person in a view is compared with: process id and language of an actor.
pub struct Known<'a> {
    pub tokens: &'a Tokens,
    pub actors: &'a dyn Fn(&str) -> Option<(u32, String)>,
}

/// Says what is wrong with the view of a lock.
pub fn wrong_view(expect: &Expect, view: &Value, known: &Known<'_>) -> Option<String> {
    for (what, expected) in [("holders", &expect.holders), ("waiters", &expect.waiters)] {
        let Some(expected) = expected else { continue };
        let seen = view[what].as_array().cloned().unwrap_or_default();
        // Waiters stand in line; holders beside each other, so each is looked for.
        let mut left: Vec<_> = seen.iter().collect();
        if seen.len() != expected.len() {
            return Some(format!("{} {what} were expected: {seen:?}", expected.len()));
        }
        for (index, person) in expected.iter().enumerate() {
            let place = if what == "waiters" {
                is(person, &seen[index], known).then_some(0)
            } else {
                left.iter().position(|seen| is(person, seen, known))
            };
            match place {
                Some(place) => drop(left.remove(place)),
                None => return Some(format!("{person:?} was expected among the {what}: {seen:?}")),
            }
        }
    }
    None
}

fn is(person: &Person, seen: &Value, known: &Known<'_>) -> bool {
    let text = |expected: &Option<String>, key: &str| {
        expected.as_ref().is_none_or(|expected| seen[key].as_str() == Some(expected))
    };
    let actor = person.actor.as_ref().is_none_or(|actor| {
        (known.actors)(actor).is_some_and(|(pid, language)| {
            seen["pid"].as_u64() == Some(pid.into()) && seen["language"].as_str() == Some(&language)
        })
    });
    let token = person.token_of.as_ref().is_none_or(|guard| {
        known.tokens.get(guard).is_some_and(|token| seen["token"].as_u64() == Some(*token))
    });
    let permits = person.permits.is_none_or(|permits| seen["permits"].as_u64() == Some(permits.into()));
    let renewed = person.renewals.is_none_or(|least| seen["renewals"].as_u64() >= Some(least.into()));
    text(&person.label, "label") && text(&person.mode, "mode") && actor && token && permits && renewed
}
