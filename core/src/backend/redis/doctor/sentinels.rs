//! Judges the Sentinels that name the master.

use std::time::Duration;

use crate::backend::redis::doctor::facts::Facts;
use crate::backend::redis::protocol::sentinels::Word;
use crate::snapshot::Check;

/// How `redis-cli` is called for the server that is master at the moment.
pub(crate) fn cli(facts: &Facts) -> String {
    match answers(facts).first() {
        Some((_, word)) => {
            let (host, port) = &word.master;
            facts.cli.replace("-h MASTER", &format!("-h {host} -p {port}"))
        }
        None => facts.cli.clone(),
    }
}

fn answers(facts: &Facts) -> Vec<(&String, &Word)> {
    let all = facts.sentinels.iter().flatten();
    all.filter_map(|(place, said)| Some((place, said.as_ref().ok()?))).collect()
}

pub(crate) fn checks(facts: &Facts) -> Option<Check> {
    const ID: &str = "sentinels";
    let asked = facts.sentinels.as_ref()?;
    let answers = answers(facts);
    let silent: Vec<_> =
        asked.iter().filter_map(|(place, said)| Some(format!("{place}: {}", said.as_ref().err()?))).collect();
    let known = answers.iter().filter_map(|(_, word)| word.number("num-other-sentinels")).max();
    let known = known.map_or(0, |others| others + 1).max(asked.len() as u64);
    let named = |(host, port): &(String, u16)| format!("{host}:{port}");
    let seen = format!("{} of {known} answer", answers.len());
    if answers.len() as u64 <= known / 2 && asked.len() as u64 > known / 2 {
        return Some(
            Check::problem(ID, "Too few Sentinels for a promotion", format!("{seen}; {}", silent.join("; ")))
                .means("When the primary fails, no replica takes over: a promotion needs more than half of the Sentinels.")
                .fix("Start the Sentinels that are down: redis-server sentinel.conf --sentinel"),
        );
    }
    let mut masters: Vec<_> = answers.iter().map(|(_, word)| named(&word.master)).collect();
    masters.dedup();
    if masters.len() > 1 {
        let each = answers.iter().map(|(place, word)| format!("{place} names {}", named(&word.master)));
        let each = each.collect::<Vec<_>>().join("; ");
        return Some(
            Check::warning(ID, "The Sentinels name different primaries", each)
                .means("A promotion is under way, or some Sentinels are cut off; clients believe the latest one.")
                .fix("Look again in a moment; if it stays so, fix the network between the Sentinels"),
        );
    }
    if !silent.is_empty() {
        return Some(
            Check::warning(ID, "A Sentinel does not answer", format!("{seen}; {}", silent.join("; ")))
                .means("One more that fails may leave too few for a promotion.")
                .fix("Start it, or correct the URL of every client"),
        );
    }
    if known < 3 {
        return Some(
            Check::warning(ID, "Fewer than three Sentinels", seen)
                .means("When one of them is lost together with the primary, the rest is no majority and promotes no replica.")
                .fix("Run three Sentinels on three machines"),
        );
    }
    let (_, word) = answers.first()?;
    let flags = word.fields.get("flags").map_or("", String::as_str);
    if flags.contains("down") {
        return Some(
            Check::warning(ID, "The Sentinels take the primary for down", format!("flags: {flags}"))
                .means("They may promote a replica at any moment; it may not know a lock that is held.")
                .fix("Fix the network from the Sentinels to the primary, or raise down-after-milliseconds"),
        );
    }
    let replicas = word.number("num-slaves").unwrap_or(0);
    let quorum = word.number("quorum").unwrap_or(0);
    let after = Duration::from_millis(word.number("down-after-milliseconds").unwrap_or(0));
    let seen = format!(
        "{seen} (quorum {quorum}), all name {}; {replicas} replicas; a primary that is silent for {after:?} is replaced",
        named(&word.master)
    );
    if quorum > known {
        let service = word.fields.get("name").map_or("SERVICE", String::as_str);
        return Some(
            Check::problem(ID, "The Sentinels can never agree", seen)
                .means("When the primary fails, no replica takes over: more Sentinels have to find it silent than there are.")
                .fix(format!("redis-cli -p 26379 SENTINEL SET {service} quorum {}   # at every Sentinel", known / 2 + 1)),
        );
    }
    if replicas == 0 && !word.fields.is_empty() {
        return Some(
            Check::warning(ID, "No replica could take over", seen)
                .means("When the primary fails, locks are out of reach until it is back.")
                .fix("Start a replica: redis-server --replicaof HOST PORT"),
        );
    }
    Some(Check::ok(ID, "the Sentinels agree", seen))
}
