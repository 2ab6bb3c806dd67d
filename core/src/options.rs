//! What a caller can ask of an acquisition and of a client: parsed and validated once, then trusted.

use std::time::Duration;

use crate::capability::Capability;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{DEFAULT_LEASE, MAX_LEASE, MAX_WAIT, MIN_LEASE, in_range};
use crate::mode::Mode;
use crate::name::{LockName, check_label};
use crate::params::Params;
#[cfg(all(
    test,
    any(feature = "redis", feature = "http", feature = "postgres", feature = "mysql", feature = "zookeeper")
))]
use crate::params::take_apart;
pub(crate) use crate::policy::acquisition::Wait;
use crate::policy::lease::LeasePlan;
use crate::policy::waiting::WaitTimes;
use crate::snapshot::check_words;

/// What a caller asked for, as it was given.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub name: String,
    pub lease: Option<Duration>,
    pub wait: Wait,
    pub label: String,
    pub owner: Option<String>,
    pub max_hold: Option<Duration>,
    pub beat_every: Option<Duration>,
    /// `None` where nothing was said: in order if the store keeps one.
    pub fifo: Option<bool>,
    pub renew: bool,
    /// How long the lease may stay with the client after a release, if it may.
    pub keep_idle: Option<Duration>,
    /// Why the leases of the holders are to be ended, if they are.
    pub steal: Option<String>,
    pub mode: Mode,
}

impl Asked {
    /// Whether a lease that was kept can be what is asked for: with these options the rest of it is checked, too.
    pub(crate) fn may_be_kept(&self) -> bool {
        let wait = match self.wait {
            Wait::For(wait) => wait,
            Wait::No | Wait::Forever => Duration::ZERO,
        };
        wait <= MAX_WAIT && check_keep_idle(self).is_ok()
    }
}

/// What a caller asked for, checked.
#[derive(Debug, Clone)]
pub(crate) struct AcquireOptions {
    pub name: LockName,
    pub wait: Wait,
    pub label: String,
    pub owner: Option<String>,
    pub barge: bool,
    pub keep_idle: Option<Duration>,
    /// Why the leases of the holders are to be ended, if they are.
    pub steal: Option<String>,
    pub mode: Mode,
    pub plan: LeasePlan,
    pub times: WaitTimes,
}

impl AcquireOptions {
    /// Checks what was asked against the rules and against what the store can do.
    pub(crate) fn check(asked: &Asked, settings: &Settings, capability: &Capability) -> Result<Self> {
        let name = LockName::new(&asked.name)?;
        let lock = |error: Error| error.on_lock(name.as_str());
        check_label(&asked.label).map_err(lock)?;
        asked.mode.check().map_err(lock)?;
        check_abilities(asked, capability).map_err(lock)?;
        check_steal(asked).map_err(lock)?;
        check_keep_idle(asked).map_err(lock)?;
        let lease = asked.lease.unwrap_or(settings.lease);
        in_range("lease", lease, capability.min_lease, capability.max_lease).map_err(lock)?;
        if let Wait::For(wait) = asked.wait {
            in_range("wait", wait, Duration::ZERO, MAX_WAIT).map_err(lock)?;
        }
        for (option, value) in [("max_hold", asked.max_hold), ("beat_every", asked.beat_every)] {
            if let Some(value) = value {
                in_range(option, value, MIN_LEASE, MAX_WAIT).map_err(lock)?;
                if !asked.renew {
                    return Err(lock(Error::new(
                        ErrorKind::InvalidArgument,
                        format!("{option} limits renewals, but renew is off; leave one of them out"),
                    )));
                }
            }
        }
        if let Some(owner) = &asked.owner
            && (owner.is_empty() || owner.len() > 128)
        {
            return Err(lock(Error::new(
                ErrorKind::InvalidArgument,
                format!("the owner id has {} bytes; 1 to 128 are allowed", owner.len()),
            )));
        }
        let provisional = if asked.renew { settings.provisional.min(lease) } else { lease };
        let first = [asked.max_hold, asked.beat_every].into_iter().flatten().fold(provisional, Duration::min);
        // A grant whose push is lost must be found by a poll before it ends: C ≥ 2P + a round trip.
        let near = settings.poll.min(first / 3).max(Duration::from_millis(10));
        Ok(Self {
            name,
            wait: asked.wait,
            label: asked.label.clone(),
            owner: asked.owner.clone(),
            barge: asked.fifo == Some(false),
            keep_idle: asked.keep_idle,
            steal: asked.steal.clone(),
            mode: asked.mode,
            plan: LeasePlan {
                lease,
                first,
                renew: asked.renew,
                max_hold: asked.max_hold,
                beat_every: asked.beat_every,
                phase: Duration::ZERO,
                cohort: 0,
            },
            times: WaitTimes::every(near, settings.enter_on_push),
        })
    }
}

/// What holds for a whole client; every one is an option of the URL and of the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Lease of a lock that does not say.
    pub lease: Duration,
    /// First lease of a renewed lock: bounds how long an orphan can block.
    pub provisional: Duration,
    /// Poll interval of the first waiters in the queue.
    pub poll: Duration,
    /// Time limit of one request to the store.
    pub timeout: Duration,
    /// Trust a push under rules R1–R5; otherwise it only triggers a poll.
    pub enter_on_push: bool,
}

impl Settings {
    /// Takes the options that every backend has out of a URL's parameters.
    pub(crate) fn from_params(params: &mut Params) -> Result<Self> {
        let settings = Self {
            lease: params.duration("lease", DEFAULT_LEASE, MIN_LEASE, MAX_LEASE)?,
            provisional: params.duration(
                "provisional",
                Duration::from_secs(3),
                Duration::from_millis(300),
                Duration::from_secs(60),
            )?,
            poll: params.duration(
                "poll",
                Duration::from_secs(1),
                Duration::from_millis(10),
                Duration::from_secs(20),
            )?,
            timeout: params.duration(
                "timeout",
                Duration::from_secs(3),
                Duration::from_millis(50),
                Duration::from_secs(60),
            )?,
            enter_on_push: params.choice("push", &[("enter", true), ("hint", false)], true)?,
        };
        if settings.provisional < settings.poll * 2 + Duration::from_millis(100) {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                format!(
                    "provisional={:?} is too short for poll={:?}: a lost push is found by the next poll, so \
                     provisional must be at least twice poll and 100 ms; raise provisional or lower poll",
                    settings.provisional, settings.poll
                ),
            ));
        }
        Ok(settings)
    }

    /// First leases for stores whose sessions expire, where none were asked for: half of the lease, for which a
    /// session that is renewed in time always lasts. Orphans end with their session, so a shorter one would gain
    /// nothing, and would not outlast the election of a leader.
    #[cfg(any(feature = "http", feature = "zookeeper"))]
    pub(crate) fn half_of_the_lease(self) -> Self {
        let half = (self.lease / 2).max(self.poll * 2 + Duration::from_millis(100));
        Self { provisional: half, ..self }
    }
}

/// Refuses what the store says that it cannot do.
fn check_abilities(asked: &Asked, capability: &Capability) -> Result<()> {
    let store = capability.backend;
    if asked.mode != Mode::Mutex && !capability.sharing {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{store} cannot keep {}: its locks have one holder only; use a plain lock, or another store",
                asked.mode.kind()
            ),
        ));
    }
    if asked.fifo == Some(true) && !capability.fifo {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{store} cannot promise first come, first served: its nodes have no common order; leave fifo out, \
                 or use another store"
            ),
        ));
    }
    Ok(())
}

/// A thief excludes all others, and says why.
fn check_steal(asked: &Asked) -> Result<()> {
    let Some(reason) = &asked.steal else { return Ok(()) };
    let invalid = |message: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message));
    if !matches!(asked.mode, Mode::Mutex | Mode::Write) {
        return invalid("only an exclusive lock can be stolen: a plain lock, or one for writing");
    }
    if asked.owner.is_some() {
        return invalid(
            "a lock that is stolen is not entered again by an owner id; leave steal or owner out",
        );
    }
    check_words("reason", reason)
}

/// A lease that outlives its callers has nothing that belongs to one of them.
fn check_keep_idle(asked: &Asked) -> Result<()> {
    let Some(keep_idle) = asked.keep_idle else { return Ok(()) };
    in_range("keep_idle", keep_idle, MIN_LEASE, MAX_LEASE)?;
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if asked.mode != Mode::Mutex {
        return invalid(format!("keep_idle is for a plain lock; leave it out for {}", asked.mode.kind()));
    }
    let others = [
        ("owner", asked.owner.is_some()),
        ("max_hold", asked.max_hold.is_some()),
        ("beat_every", asked.beat_every.is_some()),
        ("renew=false", !asked.renew),
        ("steal", asked.steal.is_some()),
    ];
    match others.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => invalid(format!(
            "keep_idle lets one lease serve one caller after the other, and {option} is about a single one; leave one of \
             them out"
        )),
        None => Ok(()),
    }
}

/// Reads a URL by the rules of one store alone, without opening it.
#[cfg(all(
    test,
    any(feature = "redis", feature = "http", feature = "postgres", feature = "mysql", feature = "zookeeper")
))]
pub(crate) fn read<C>(
    url: &str,
    from_url: impl FnOnce(&str, &str, &mut Params, &Settings) -> Result<C>,
) -> Result<C> {
    let (scheme, target, mut params) = take_apart(url)?.expect("the URL has a scheme");
    let settings = Settings::from_params(&mut params)?;
    let config = from_url(scheme, target, &mut params, &settings)?;
    params.finish()?;
    Ok(config)
}

/// Each URL is refused with a message that says this.
#[cfg(all(test, any(feature = "redis", feature = "http", feature = "zookeeper")))]
#[track_caller]
pub(crate) fn assert_refused<C: std::fmt::Debug>(read: fn(&str) -> Result<C>, cases: &[(&str, &str)]) {
    for (url, part) in cases {
        let error = read(url).expect_err(url);
        assert_eq!(error.code(), "invalid_config", "{url}");
        assert!(error.to_string().contains(part), "{url}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> Params {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap();
            (key.to_owned(), value.to_owned())
        });
        Params::new("redis", pairs).unwrap()
    }

    #[test]
    fn unknown_and_out_of_range_options_are_named_with_their_rule() {
        let mut unknown = params("leese=5s");
        Settings::from_params(&mut unknown).unwrap();
        let error = unknown.finish().unwrap_err().to_string();
        assert!(
            error.contains("\"leese\"") && error.contains("lease, poll, provisional, push, timeout"),
            "{error}"
        );
        for (query, part) in [
            ("lease=1ms", "lease=1ms must be between 100ms and 86400s"),
            ("lease=5", "has no unit"),
            ("push=maybe", "must be one of enter, hint"),
            ("poll=10s", "provisional must be at least twice poll"),
        ] {
            let error = Settings::from_params(&mut params(query)).unwrap_err();
            assert_eq!(error.code(), "invalid_config");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
