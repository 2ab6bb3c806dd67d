//! What these nodes together can and cannot promise.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::redis::protocol::call::Data;
use crate::backend::redis::transport::port::ServerFacts;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::gate::Shape;
use crate::backend::redlock::transport::node::Node;
use crate::error::Result;
use crate::policy::admission::Standing;
use crate::policy::fencing::FenceQuality;
use crate::policy::quorum::Quorum;
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH,
};
use crate::snapshot::{Check, Examination, Promise};

fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.0} s", time.as_secs_f64())
    }
}

/// Clocks of nodes may differ by this much before tokens need a second round trip.
const CLOCKS_APART: Duration = Duration::from_secs(30);

/// What was seen of one node.
struct Seen {
    place: String,
    standing: Standing,
    failure: Option<String>,
    unfit: bool,
    /// The key to delete on a node that belongs to another store.
    other_gate: Option<String>,
    now_ms: Option<u64>,
    /// The longest lease that is recorded there, in ms; 0 before any client took a lock.
    longest_ms: Option<u64>,
    facts: Option<ServerFacts>,
    append_only: Option<bool>,
}

impl Inner {
    pub(crate) async fn examine(self: Arc<Self>) -> Result<Examination> {
        self.look_at_all().await;
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let mut seen = see(node, node.standing(&self.shape)).await;
            if node.unfit().is_some_and(|unfit| unfit.2) {
                seen.other_gate = Some(self.shape.gate.clone());
            }
            nodes.push(seen);
        }
        let fencing = self.fencing(0..self.nodes.len());
        // The longest lease of any client counts.
        Ok(judge(self.quorum, &nodes, &self.shape, fencing, self.all_tls))
    }
}

async fn see(node: &Arc<Node>, standing: Standing) -> Seen {
    let reached = standing != Standing::Unknown;
    let (mut facts, mut append_only) = (None, None);
    if reached {
        facts = node.port().facts().await.ok();
        let asked = node.port().ask(["CONFIG", "GET", "appendonly"].map(str::to_owned).to_vec()).await;
        if let Ok(Ok(Data::List(pair))) = asked
            && let Some(Ok(value)) = pair.get(1).map(Data::text)
        {
            append_only = Some(value == "yes");
        }
    }
    Seen {
        place: node.place.clone(),
        standing,
        failure: node.failure(),
        unfit: node.unfit().is_some(),
        other_gate: None,
        now_ms: node.looked().map(|look| look.clock.node_ms).filter(|_| reached),
        longest_ms: node.looked().map(|look| look.longest_ms).filter(|_| reached),
        facts,
        append_only,
    }
}

fn judge(quorum: Quorum, nodes: &[Seen], shape: &Shape, fencing: FenceQuality, all_tls: bool) -> Examination {
    let max_lease = shape.quarantine();
    let mut findings = vec![reach(quorum, nodes), votes(quorum, nodes, max_lease), number(quorum)];
    findings.extend(nodes.iter().filter(|node| node.unfit).map(|node| {
        let check = Check::problem(
            "node",
            format!("{} cannot be a node", node.place),
            node.failure.clone().unwrap_or_default(),
        );
        match &node.other_gate {
            Some(gate) => check.means("Its vote is missing until the record is deleted").fix(format!(
                "If no store of that size uses this prefix any more: redis-cli -u redis://{} del {gate}",
                node.place
            )),
            None => check
                .means("Its vote is missing, and this URL is refused for locking")
                .fix("Fix the cause above, or name another server in its place"),
        }
    }));
    findings.extend(nodes.iter().filter_map(eviction));
    findings.push(clocks(nodes));
    findings.push(leases(nodes, shape));
    findings.push(persistence(nodes, max_lease));
    if !all_tls {
        findings.push(Check::notice(
            "transport",
            "Not every connection is encrypted",
            "Passwords and owner tokens cross the network in the clear",
        ));
    }
    let versions: Vec<_> = nodes.iter().filter_map(|node| node.facts.as_ref()?.version.clone()).collect();
    let version = versions.first().map(|version| format!("Redis {version} on {} nodes", quorum.nodes()));
    Examination::new("redlock", version, findings, promises(quorum, nodes, shape, fencing))
}

fn count(nodes: &[Seen], which: impl Fn(&Seen) -> bool) -> usize {
    nodes.iter().filter(|node| which(node)).count()
}

fn reach(quorum: Quorum, nodes: &[Seen]) -> Check {
    let reached = count(nodes, |node| node.standing != Standing::Unknown);
    let away = nodes.iter().filter(|node| node.standing == Standing::Unknown && !node.unfit);
    let why: Vec<_> = away
        .map(|node| format!("{} ({})", node.place, node.failure.as_deref().unwrap_or("no answer")))
        .collect();
    let title = format!("{reached} of {} nodes answer, {} are needed", quorum.nodes(), quorum.needed());
    if why.is_empty() && reached == quorum.nodes() {
        return Check::ok("nodes", title, "All nodes answer");
    }
    let detail = if why.is_empty() { "See the nodes below".to_owned() } else { why.join("; ") };
    if reached < quorum.needed() {
        return Check::problem("nodes", title, detail)
            .means("No lock can be acquired or renewed")
            .fix("Start the nodes that are down, and look at the network between");
    }
    let spare = reached - quorum.needed();
    Check::warning("nodes", title, detail)
        .means(format!("Locks go on; {spare} more nodes may fail before they stop"))
        .fix("Start the nodes that are down, and look at the network between")
}

fn votes(quorum: Quorum, nodes: &[Seen], max_lease: Duration) -> Check {
    let voting = count(nodes, |node| matches!(node.standing, Standing::Voting { .. }));
    let closed: Vec<_> = nodes
        .iter()
        .filter_map(|node| match node.standing {
            Standing::Closed { left, .. } => Some(format!("{} for another {}", node.place, span(left))),
            _ => None,
        })
        .collect();
    let title = format!("{voting} of {} nodes vote", quorum.nodes());
    if closed.is_empty() && voting >= quorum.needed() {
        return Check::ok("votes", title, "No node has restarted lately");
    }
    let detail = if closed.is_empty() {
        "Too few nodes answer".into()
    } else {
        format!("Closed: {}", closed.join(", "))
    };
    let check = if voting >= quorum.needed() {
        Check::notice("votes", title, detail)
    } else {
        Check::problem("votes", title, detail)
    };
    check
        .means(format!(
            "A node that restarted, was promoted or was emptied, or whose clock moved forward, does not vote for {}, \
             until every lease it may have lost has expired",
            span(max_lease)
        ))
        .fix("Wait; nodes are let in by any client that is at work")
}

fn number(quorum: Quorum) -> Check {
    let (nodes, failures) = (quorum.nodes(), quorum.covering() - 1);
    let detail = format!("{nodes} nodes, a majority is {}, {failures} may fail", quorum.needed());
    if nodes == 1 {
        Check::notice("number", "One node decides alone", detail)
            .means("Nothing may fail, and after a loss of data the order of tokens rests on its clock")
            .fix("Use redis: for one server, or name 3 or 5 nodes")
    } else if nodes.is_multiple_of(2) {
        Check::notice("number", "An even number of nodes", detail)
            .means("One node less would survive as many failures")
            .fix("Use an odd number of nodes")
    } else {
        Check::ok("number", "An odd number of nodes", detail)
    }
}

fn eviction(node: &Seen) -> Option<Check> {
    let facts = node.facts.as_ref()?;
    let (limit, policy) = (facts.max_memory.filter(|limit| *limit > 0)?, facts.eviction_policy.as_deref()?);
    (policy != "noeviction").then(|| {
        Check::warning(
            "eviction",
            format!("{} may evict locks", node.place),
            format!("maxmemory={limit}, maxmemory-policy={policy}"),
        )
        .means("A held lock or the counter of tokens may vanish there, unnoticed")
        .fix(format!("redis-cli -u redis://{} config set maxmemory-policy noeviction", node.place))
    })
}

fn clocks(nodes: &[Seen]) -> Check {
    let times: Vec<_> = nodes.iter().filter_map(|node| node.now_ms).collect();
    let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else {
        return Check::unknown("clocks", "Clocks", "No node answered");
    };
    let apart = Duration::from_millis(last - first);
    let detail = format!("They differ by {} or less", span(apart));
    if apart <= CLOCKS_APART {
        let detail =
            format!("{detail}. A difference does no harm; a step does, and its node is then quarantined");
        return Check::ok("clocks", "The nodes' clocks agree", detail);
    }
    Check::warning("clocks", "The nodes' clocks differ", format!("They differ by about {}", span(apart)))
        .means("Tokens keep their order, but every acquisition needs a second round trip")
        .fix("Run a time service such as chrony on every node")
}

/// A longer lease of another program is known from the nodes that recorded it, and from nowhere else.
fn leases(nodes: &[Seen], shape: &Shape) -> Check {
    let own = shape.max_lease;
    let recorded = nodes.iter().filter_map(|node| node.longest_ms).max().unwrap_or(0);
    let longest = Duration::from_millis(recorded);
    let silent = match count(nodes, |node| node.longest_ms.is_none()) {
        0 => String::new(),
        silent => format!("; {silent} nodes did not answer and may have recorded a longer one"),
    };
    if longest <= own {
        let detail = format!("This URL names {}, and no node has recorded a longer one{silent}", span(own));
        return Check::ok("max_lease", "The longest lease is known", detail);
    }
    let on = count(nodes, |node| node.longest_ms == Some(recorded));
    Check::notice(
        "max_lease",
        "Programs name different max_lease",
        format!(
            "The longest is {}, recorded on {on} of {} nodes, and this URL names {}{silent}",
            span(longest),
            nodes.len(),
            span(own)
        ),
    )
    .means(
        "If those nodes lose the record or do not answer, a program that names less quarantines a changed node for \
         too short a time, and a lock may be held twice",
    )
    .fix(format!("Name max_lease={}ms in every program", longest.as_millis()))
}

fn persistence(nodes: &[Seen], max_lease: Duration) -> Check {
    let kept = count(nodes, |node| node.append_only == Some(true));
    let known = count(nodes, |node| node.append_only.is_some());
    if known == 0 {
        return Check::unknown("persistence", "Persistence", "This user may not call CONFIG GET");
    }
    Check::ok(
        "persistence",
        format!("{kept} of {known} nodes keep their data over a restart"),
        format!(
            "It is not needed: a restarted node does not vote for {}. With appendonly a held lock stays on it meanwhile",
            span(max_lease)
        ),
    )
}

fn promises(quorum: Quorum, nodes: &[Seen], shape: &Shape, fencing: FenceQuality) -> Vec<Promise> {
    let sits_out = format!("a node that changed does not vote for {}", span(shape.quarantine()));
    // What lost everything at once looks like a new store to a client that has just started.
    let remembers = nodes.iter().all(|node| node.append_only == Some(true));
    let restart = match (shape.strict, remembers) {
        (true, _) => Promise::yes(AFTER_RESTART, format!("guarantee=strict, in every client: {sits_out}")),
        (false, true) => {
            Promise::yes(AFTER_RESTART, format!("{sits_out}, and all keep their data (appendonly)"))
        }
        (false, false) => Promise::no(
            AFTER_RESTART,
            "if all nodes restart without data together, a new client takes the store for a new one \
             (guarantee=strict waits, appendonly remembers)",
        ),
    };
    let evicts = nodes.iter().any(|node| eviction(node).is_some());
    let failures = quorum.covering() - 1;
    let exclusion = if evicts {
        Promise::no(EXCLUSION, "a node may evict a held lock; set maxmemory-policy noeviction")
    } else {
        Promise::yes(EXCLUSION, format!("any two majorities of {} nodes share one", quorum.nodes()))
    };
    let order = match fencing {
        FenceQuality::Strict => Promise::yes(FENCING_ORDER, "a majority has every token before it is used"),
        _ => Promise::no(FENCING_ORDER, "after a loss of data it rests on the nodes' clocks"),
    };
    vec![
        exclusion,
        restart,
        Promise::yes(AFTER_FAILOVER, format!("{sits_out}; a promoted replica counts as changed")),
        if failures == 0 {
            Promise::no(AFTER_WIPE, "there is no other node that could remember")
        } else {
            Promise::yes(
                AFTER_WIPE,
                format!("as long as no more than {failures} nodes lose their data together"),
            )
        },
        order,
        Promise::yes(PUSH, "a released node notifies the client that has waited longest there"),
        Promise::no(FIFO, "the nodes have no common order"),
    ]
}
