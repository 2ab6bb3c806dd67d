//! Judges the way to the server: permissions, pushes, clocks, encryption, and the keys of this prefix.

use std::time::Duration;

use crate::backend::redis::doctor::Transport;
use crate::backend::redis::doctor::facts::{Counter, Facts, Locks};
use crate::backend::redis::doctor::server::user;
use crate::backend::redis::doctor::trials::{Outcome, Push};
use crate::snapshot::Check;
use crate::snapshot::examination::size;

/// Fencing tokens stay below 2^53, so that every language can count them.
const LARGEST_TOKEN: u64 = 1 << 53;

pub(crate) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        permissions(facts),
        push(facts),
        counter(facts),
        keys(facts),
        clock(facts),
        latency(facts),
        encryption(facts),
        login(facts),
        idle_limit(facts),
        push_buffer(facts),
    ]
}

fn permissions(facts: &Facts) -> Check {
    const ID: &str = "permissions";
    let with = |outcome: Outcome| {
        let found = facts.trials.iter().filter(move |trial| trial.outcome == outcome);
        found.map(|trial| trial.command).collect::<Vec<_>>()
    };
    let (commands, keys) = (with(Outcome::NoCommand), with(Outcome::NoKeys));
    let (channels, missing) = (with(Outcome::NoChannels), with(Outcome::Missing));
    let user = user(facts);
    if !missing.is_empty() {
        return Check::problem(
            ID,
            "The server lacks commands",
            format!("unknown here: {}", missing.join(", ")),
        )
        .means("Locks cannot be taken. Some hosted services rename or remove commands.")
        .fix("Use a server that has these commands, or remove rename-command from its configuration");
    }
    let not_tried = with(Outcome::NotTried);
    if commands.is_empty() && keys.is_empty() && channels.is_empty() {
        let tried = facts.trials.len() - not_tried.len();
        if !not_tried.is_empty() {
            let rest = not_tried.join(", ");
            let detail = format!("{tried} tried as user {user}; not tried without writing: {rest}");
            return Check::ok(ID, "all tried commands are allowed", detail);
        }
        return Check::ok(ID, "all needed commands are allowed", format!("{tried} tried as user {user}"));
    }
    let mut seen = Vec::new();
    let mut rules = Vec::new();
    if !commands.is_empty() {
        seen.push(format!("may not run {}", commands.join(", ")));
        rules.extend(commands.iter().map(|command| format!("+{command}")));
    }
    if !keys.is_empty() {
        seen.push(format!("may not use the keys {}* with {}", facts.keys_start, keys.join(", ")));
        rules.push(format!("'~{}*'", facts.keys_start));
    }
    if !channels.is_empty() {
        seen.push(format!("may not publish to {}*", facts.channels_start));
        rules.push(format!("'&{}*'", facts.channels_start));
    }
    if !not_tried.is_empty() {
        seen.push(format!("not tried without the others: {}", not_tried.join(", ")));
    }
    // Publishing is the only thing that locks can do without.
    let only_push = commands.iter().all(|command| *command == "publish") && keys.is_empty();
    let (check, means) = if only_push {
        (
            Check::warning as fn(_, &'static str, String) -> Check,
            "Waiters are not woken by messages; they poll, so handing over takes seconds.",
        )
    } else {
        (
            Check::problem as fn(_, &'static str, String) -> Check,
            "Locks fail with backend_rejected, some only when a client waits or inspects.",
        )
    };
    check(ID, "The user lacks permissions", format!("user {user} {}", seen.join("; ")))
        .means(means)
        .fix(format!("redis-cli ACL SETUSER {user} {}", rules.join(" ")))
}

fn push(facts: &Facts) -> Check {
    const ID: &str = "push";
    let means = "The next waiter is not notified and polls, so a hand-off takes seconds.";
    match &facts.push {
        Push::Heard(trip) => {
            Check::ok(ID, "messages arrive", format!("a message to this client's own inbox took {trip:.1?}"))
        }
        Push::NotSubscribed => Check::warning(
            ID,
            "Messages cannot be received",
            format!("subscribing to {}* is refused", facts.channels_start),
        )
        .means(means)
        .fix(format!(
            "redis-cli ACL SETUSER {} +subscribe +unsubscribe '&{}*'",
            user(facts),
            facts.channels_start
        )),
        Push::NotPublished(code) => Check::warning(
            ID,
            "Messages cannot be sent",
            format!("PUBLISH to {}* is refused ({code})", facts.channels_start),
        )
        .means(means)
        .fix(format!("redis-cli ACL SETUSER {} +publish '&{}*'", user(facts), facts.channels_start)),
        Push::Silent => Check::warning(
            ID,
            "Messages get lost",
            "published to this client's own inbox, and nothing came within 1 s",
        )
        .means(means)
        .fix("redis-cli PUBSUB CHANNELS   # a proxy in between may not pass subscriptions on: connect directly"),
    }
}

fn counter(facts: &Facts) -> Check {
    const ID: &str = "fencing-counter";
    let key = &facts.counter_key;
    let means = "Every grant draws its fencing token here; without it none can be made.";
    match &facts.counter {
        Counter::Absent => Check::ok(ID, "fencing counter not started yet", format!("{key} does not exist")),
        Counter::Unknown => Check::unknown(ID, "The fencing counter cannot be read", format!("GET {key} is refused")),
        Counter::Foreign => Check::problem(ID, "The fencing counter is not a number", format!("{key} holds other data"))
            .means(means)
            .fix(format!("Find out who wrote it (redis-cli TYPE {key}); then use another prefix= in the URL, or: redis-cli DEL {key}")),
        Counter::At(number) if *number >= LARGEST_TOKEN => {
            Check::problem(ID, "The fencing counter is too large", format!("{key} is {number}, above 2^53"))
                .means("Tokens of this size are not exact in every language, and fail.")
                .fix("Use another prefix= in the URL of every client and of what checks tokens")
        }
        Counter::At(number) => match facts.clock {
            Some(clock) if *number > clock.now_us + 60_000_000 => {
                let ahead = Duration::from_micros(number - clock.now_us);
                Check::warning(ID, "The fencing counter is ahead of the clock", format!("{key} is {ahead:.0?} ahead of the server's clock"))
                    .means("The clock was set back. If the data is lost now, new tokens are smaller than old ones.")
                    .fix("Keep the data (appendonly yes) and fix the server's clock: chronyc tracking")
            }
            _ => Check::ok(ID, "fencing counter is sane", format!("{key} is {number}")),
        },
    }
}

fn keys(facts: &Facts) -> Check {
    const ID: &str = "keys";
    match &facts.locks {
        Locks::Read { count, foreign, .. } if foreign.is_empty() => {
            let full = if *count >= 1000 { "at least " } else { "" };
            Check::ok(
                ID,
                "nothing foreign under our keys",
                format!("{full}{count} locks held or waited for under {}*", facts.keys_start),
            )
        }
        Locks::Read { foreign, .. } => {
            let shown: Vec<_> = foreign.iter().take(3).map(|name| format!("{name:?}")).collect();
            Check::warning(
                ID,
                "Other programs' data under lock names",
                format!("{} locks, such as {}", foreign.len(), shown.join(", ")),
            )
            .means("These names cannot be locked as long as the data is there; it is never overwritten.")
            .fix("polylatch ls   # ask who owns them, or use another prefix= in the URL")
        }
        Locks::Foreign(why) => Check::problem(ID, "Foreign data under our keys", why.clone())
            .means("Listing or taking locks fails, because a key that we own holds something else.")
            .fix("Use another prefix= in the URL, or remove the foreign key"),
        Locks::Unknown(why) => Check::unknown(ID, "The locks cannot be listed", why.clone())
            .means("polylatch ls and show fail for this user."),
    }
}

fn clock(facts: &Facts) -> Check {
    const ID: &str = "clock";
    let Some(clock) = facts.clock else {
        return Check::unknown(ID, "The server's clock cannot be read", "TIME is refused")
            .means("The scripts of locks read it, so locks fail as well.")
            .fix(format!("redis-cli ACL SETUSER {} +time", user(facts)));
    };
    let off = clock.ahead_ms.unsigned_abs();
    let side = if clock.ahead_ms < 0 { "behind" } else { "ahead of" };
    let seen = format!("{off} ms {side} this machine, give or take {} ms", clock.within_ms);
    if off <= 1000 + clock.within_ms {
        return Check::ok(ID, "clocks agree", seen);
    }
    let far = off > 60_000;
    let seen = format!("the server's clock is {} s {side} this machine's", off / 1000);
    let check = if far { Check::warning } else { Check::notice };
    check(ID, "Clocks disagree", seen)
        .means(
            "No lease depends on it. But a clock that is then set back can shorten the order of fencing tokens \
             after a loss of data, and times shown to people are wrong.",
        )
        .fix("chronyc tracking   # on both machines; step the wrong one while no lock is held")
}

fn latency(facts: &Facts) -> Check {
    const ID: &str = "latency";
    let mut trips = facts.trips.clone();
    trips.sort_unstable();
    let (Some(median), Some(worst)) = (trips.get(trips.len() / 2), trips.last()) else {
        return Check::unknown(ID, "Latency was not measured", "no round trip");
    };
    let seen = format!("median {median:.1?}, worst {worst:.1?} of {} round trips", trips.len());
    if *worst >= Duration::from_secs(1) || *median >= Duration::from_millis(100) {
        return Check::warning(ID, "The server answers slowly", seen)
            .means("Short leases have too little time for their renewals; taking a lock costs this much.")
            .fix("redis-cli SLOWLOG GET 5   # and use leases of at least 15s");
    }
    if *median >= Duration::from_millis(10) {
        return Check::notice(ID, "The server is far away", seen)
            .means("Every acquisition takes at least one round trip.");
    }
    Check::ok(ID, "answers fast", seen)
}

fn encryption(facts: &Facts) -> Check {
    const ID: &str = "encryption";
    match &facts.transport {
        Transport::Tls => Check::ok(ID, "encrypted", "TLS, certificate checked"),
        Transport::Unix => Check::ok(ID, "stays on this machine", "a unix socket"),
        Transport::Plain { loopback: true, host } => {
            Check::ok(ID, "stays on this machine", format!("no TLS, {host} is this machine"))
        }
        Transport::Plain { host, .. } => Check::warning(
            ID,
            "Not encrypted",
            format!("redis:// without TLS to {host}"),
        )
        .means(
            "Anyone on the network path can read the password and owner tokens, and break or take any lock.",
        )
        .fix("Use rediss://HOST:PORT in the URL, with tls-port on the server"),
    }
}

fn login(facts: &Facts) -> Check {
    const ID: &str = "login";
    let local = matches!(facts.transport, Transport::Unix | Transport::Plain { loopback: true, .. });
    match (facts.has_password, local) {
        (true, _) => Check::ok(ID, "password wanted", format!("logged in as {}", user(facts))),
        (false, true) => Check::ok(ID, "no password, local only", "this way leads from this machine only"),
        (false, false) => Check::warning(ID, "No password", "the server let this client in without one")
            .means("Anyone who reaches the port can break every lock and read who holds it.")
            .fix("redis-cli ACL SETUSER default '>PASSWORD'   # then redis://:PASSWORD@HOST or password_env= in the URL"),
    }
}

fn idle_limit(facts: &Facts) -> Check {
    const ID: &str = "idle-limit";
    match facts.setting("timeout").and_then(|text| text.parse::<u64>().ok()) {
        None => {
            Check::unknown(ID, "The limit for idle connections cannot be seen", "CONFIG GET is not allowed")
        }
        Some(0) => Check::ok(ID, "idle connections are kept", "timeout 0"),
        Some(secs @ 60..) => {
            Check::ok(ID, "idle connections are kept long enough", format!("timeout {secs}"))
        }
        Some(secs) => {
            Check::notice(ID, "Idle connections are closed early", format!("timeout {secs} (seconds)"))
                .means("Between rare locks clients have to connect again, which makes the next one slower.")
                .fix("redis-cli CONFIG SET timeout 0")
        }
    }
}

fn push_buffer(facts: &Facts) -> Check {
    const ID: &str = "push-buffer";
    let Some(limits) = facts.setting("client-output-buffer-limit") else {
        return Check::unknown(ID, "The limit for messages cannot be seen", "CONFIG GET is not allowed");
    };
    // "normal 0 0 0 slave … pubsub hard soft seconds"
    let after = limits.split_whitespace().skip_while(|word| *word != "pubsub").skip(1);
    let hard = after.take(1).find_map(|word| word.parse::<u64>().ok());
    match hard {
        Some(hard @ 1..=1_048_575) => Check::notice(
            ID,
            "Slow listeners are cut off early",
            format!("pubsub clients may have {} waiting", size(hard)),
        )
        .means("A client that is busy for a moment loses its subscription, and polls until it is back.")
        .fix("redis-cli CONFIG SET client-output-buffer-limit 'pubsub 32mb 8mb 60'"),
        Some(0) | None => Check::ok(ID, "room for messages", "pubsub clients have no limit"),
        Some(hard) => {
            Check::ok(ID, "room for messages", format!("pubsub clients may have {} waiting", size(hard)))
        }
    }
}
