//! Looks at every master as at a server of its own, and at the cluster that they make.

use std::sync::Arc;

use crate::backend::redis::cluster::{Inner, slots};
use crate::backend::redis::config::{Address, Place};
use crate::backend::redis::doctor::cli;
use crate::backend::redis::transport::port::Port;
use crate::error::Result;
use crate::snapshot::{Check, Examination, Holds, Promise};

/// Errors: only if a master cannot be reached.
pub(crate) async fn examine(inner: Arc<Inner>) -> Result<Examination> {
    inner.nodes.refresh().await?;
    let masters = inner.nodes.masters();
    let mut all: Option<Examination> = None;
    for (address, first, last) in &masters {
        // A shard of which this master is in charge.
        let Some(shard) = (0..slots::SHARDS).find(|shard| (*first..=*last).contains(&slots::slot(*shard)))
        else {
            continue;
        };
        let mut one = crate::backend::redis::cluster::Backend::examine(&**inner.shard(shard)).await?;
        let (seed, own) = (cli(&inner.config.place), cli(&Place::At(address.clone())));
        for check in &mut one.findings {
            check.fix = check.fix.replace(&seed, &own);
            check.detail = format!("{address}: {}", check.detail);
        }
        all = Some(match all {
            Some(before) => worst_of(before, one),
            None => one,
        });
    }
    let check = cluster(&inner, &masters).await?;
    let Some(mut all) = all else {
        return Ok(Examination::new("redis", None, vec![check], Vec::new()));
    };
    all.findings.insert(0, check);
    Ok(Examination::new("redis", all.version, all.findings, all.promises))
}

/// Of each finding and promise the worse one.
fn worst_of(mut before: Examination, one: Examination) -> Examination {
    for check in one.findings {
        match before.findings.iter_mut().find(|known| known.id == check.id) {
            Some(known) if known.severity < check.severity => *known = check,
            Some(_) => {}
            None => before.findings.push(check),
        }
    }
    let rank = |promise: &Promise| match promise.holds {
        Holds::Yes => 0,
        Holds::Unknown => 1,
        Holds::No => 2,
    };
    for promise in one.promises {
        if let Some(known) = before.promises.iter_mut().find(|known| known.id == promise.id)
            && rank(known) < rank(&promise)
        {
            *known = promise;
        }
    }
    before
}

async fn cluster(inner: &Inner, masters: &[(Address, u16, u16)]) -> Result<Check> {
    const ID: &str = "cluster";
    let Some((address, ..)) = masters.first() else {
        return Ok(Check::problem(ID, "No node has slots", "CLUSTER SLOTS is empty")
            .means("No lock can be taken.")
            .fix("redis-cli --cluster create HOST:PORT HOST:PORT HOST:PORT"));
    };
    let own = cli(&Place::At(address.clone()));
    let info = inner.nodes.port(address)?.ask(vec!["CLUSTER".into(), "INFO".into()]).await?;
    let Ok(info) = info.map(|info| info.text().unwrap_or_default()) else {
        return Ok(Check::unknown(
            ID,
            "The state of the cluster cannot be seen",
            "CLUSTER INFO is not allowed",
        )
        .fix(format!("{own} CLUSTER INFO   # as an administrator")));
    };
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let assigned = field("cluster_slots_ok").unwrap_or("?");
    let mut names: Vec<_> = masters.iter().map(|(address, ..)| address.to_string()).collect();
    names.sort();
    names.dedup();
    let seen = format!(
        "{} primaries ({}), {assigned} of {} slots served; a push is {}",
        names.len(),
        names.join(", "),
        slots::SLOTS,
        if inner.nodes.publishes_in_slots() {
            "a grant"
        } else {
            "a reason to ask (that needs Redis 7.0 and +pubsub)"
        }
    );
    if field("cluster_state") != Some("ok") {
        return Ok(Check::problem(ID, "The cluster does not serve all slots", seen)
            .means("Locks in the slots without a node cannot be acquired, renewed or released.")
            .fix(format!("{own} --cluster check {address}   # then start the nodes that are down")));
    }
    Ok(Check::ok(ID, "all slots are served", seen))
}
