//! Renewing leases: one statement for a single lease in the row of its lock, one transaction for any other.

use std::collections::{BTreeMap, HashSet};

use crate::backend::RenewItem;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::link::Tries;
use crate::backend::rows::server::read::{lease, now};
use crate::backend::rows::server::store::Store;
use crate::backend::rows::server::window::Lease;
use crate::backend::rows::server::{Session as _, commit, rollback};
use crate::backend::rows::{Now, ceil_ms, signed};
use crate::error::Result;

use super::protocol::statements::{
    Renewed, begin, clock, leases, lock, renew_alone, write_renewed, write_renewed_beside,
};
use super::server::Mysql;
use super::transport::session::Session;

/// Owner and fence of the extended leases.
type Extended = HashSet<(String, i64)>;

pub(super) async fn renew(store: &Store<Mysql>, items: &[RenewItem]) -> Result<Extended> {
    if let [item] = items {
        let answers = store.ask(&[renew_alone(item)], true).await?;
        if !answers[0].is_empty() {
            return Ok(HashSet::from([(item.contender.owner.to_hex(), signed(item.fence.get()))]));
        }
    }
    let mut tries = Tries::default();
    loop {
        let done = async {
            let lent = store.link.lend().await?;
            let done = renew_on(&lent.session, items).await;
            lent.end(done).await
        };
        match done.await {
            Ok(extended) => return Ok(extended),
            Err(failure) => tries.again(failure, true)?,
        }
    }
}

/// As by every other step, the rows of the locks are locked in the order of their names, before the time is read.
async fn renew_on(session: &Session, items: &[RenewItem]) -> std::result::Result<Extended, Failure> {
    let mut names: Vec<_> = items.iter().map(|item| item.contender.name.as_str().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    let answers = session.ask(&[begin(), lock(&names), clock(), leases(&names)], false).await?;
    let [_, locks, clock, beside] = answers.as_slice() else { return Ok(Extended::new()) };
    let now = now(clock.first().map_or(0, |row| row.int(0)));
    let mut own: BTreeMap<String, Lease> = BTreeMap::new();
    for row in locks {
        own.extend(lease(row, 3).map(|lease| (row.text(0), lease)));
    }
    let mut shared: BTreeMap<(String, String), Lease> = BTreeMap::new();
    for row in beside {
        shared.extend(lease(row, 1).map(|lease| ((row.text(0), lease.holder.owner.clone()), lease)));
    }
    let (mut extended, mut in_rows, mut statements) = (Extended::new(), Vec::new(), Vec::new());
    for item in items {
        let name = item.contender.name.as_str();
        let owner = item.contender.owner.to_hex();
        let is_alive =
            |lease: &&Lease| lease.holder.is(&owner, item.fence) && lease.holder.ends_ms > now.clock_ms;
        if let Some(lease) = own.get(name).filter(is_alive) {
            in_rows.push(renewed(item, lease, now));
        } else if let Some(lease) = shared.get(&(name.to_owned(), owner.clone())).filter(is_alive) {
            statements.push(write_renewed_beside(&renewed(item, lease, now)));
        } else {
            continue;
        }
        extended.insert((owner, signed(item.fence.get())));
    }
    if !in_rows.is_empty() {
        statements.push(write_renewed(&in_rows));
    }
    if statements.is_empty() {
        session.ask(&[rollback()], false).await?;
    } else {
        statements.push(commit());
        session.ask(&statements, true).await?;
    }
    Ok(extended)
}

/// What [`renew_alone`] does in the server.
fn renewed(item: &RenewItem, lease: &Lease, now: Now) -> Renewed {
    let (asked, length) = (ceil_ms(item.lease), ceil_ms(item.length));
    let other_length = length.max(lease.holder.ends_ms - now.begun_ms).max(asked);
    let is_other = lease.lease_ms != length;
    Renewed {
        name: item.contender.name.as_str().to_owned(),
        owner: lease.holder.owner.clone(),
        lease_ms: if is_other { other_length } else { lease.lease_ms },
        first_ms: if is_other && item.renewals == 0 { other_length } else { lease.first_ms },
        ends_ms: lease.holder.ends_ms.max(now.begun_ms + asked),
        renewals: i64::from(item.renewals),
        renewed_ms: now.clock_ms,
    }
}
