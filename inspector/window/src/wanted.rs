//! A lock that the arguments or a link name: it is selected as soon as it is there.

use super::app::App;
use model::link::Link;
use model::text::{clock_time, sanitized};
use model::{ConnectionId, Fleet, RowKey, filter};

/// What is to be selected.
#[derive(Debug)]
pub struct Wanted {
    /// Only there, if it is known.
    connection: Option<ConnectionId>,
    lock: String,
    /// Somebody was told that it is not there so far.
    told: bool,
}

impl Wanted {
    /// Where it is; or whether every connection that may have it was read without finding it.
    fn look(&self, fleet: &Fleet, now_ms: u64) -> Result<RowKey, bool> {
        let may_have = |id: &ConnectionId| self.connection.as_ref().is_none_or(|wanted| wanted == id);
        let mut stores = fleet.stores().iter().filter(|store| may_have(&store.connection().id)).peekable();
        let mut missing = stores.peek().is_some();
        for store in stores {
            let key = RowKey { connection: store.connection().id.clone(), lock: self.lock.as_str().into() };
            if fleet.find(&key).is_some() {
                return Ok(key);
            }
            missing &= store.is_fresh(now_ms);
        }
        Err(missing)
    }
}

impl App {
    /// Takes the lock or the link of the arguments. A recording is open by now, connections are not.
    pub(super) fn want_what_arguments_name(&mut self) {
        let Some(text) = self.args.link.clone() else {
            let named = self.args.lock.clone();
            self.wanted = named.map(|lock| Wanted { connection: None, lock, told: false });
            return;
        };
        let link = match Link::parse(&text) {
            Ok(link) => link,
            Err(message) => return self.toasts.failed(format!("the link cannot be used: {message}")),
        };
        if let Some(at_ms) = link.at_ms {
            self.go_to_moment(at_ms);
        }
        match link.lock {
            Some(lock) => {
                self.wanted = Some(Wanted { connection: Some(link.connection), lock, told: false });
            }
            None => self.locks.set_filter(&filter::of_connection(&link.connection)),
        }
    }

    fn go_to_moment(&mut self, at_ms: u64) {
        let time = clock_time(at_ms, 0);
        match &mut self.replaying {
            Some(replaying) => {
                let (from, to) = replaying.replay.span();
                replaying.replay.seek(at_ms.clamp(from, to));
                if !(from..=to).contains(&at_ms) {
                    self.toasts.failed(format!("The link is about {time} UTC, which this recording does not cover."));
                }
            }
            None => self.toasts.failed(format!(
                "The link is about {time} UTC, and this is the present. To see that moment, give the recording of it: \
                 --replay FILE."
            )),
        }
    }

    /// Connects the saved connection that the link names, if it was not connected with the others, and says
    /// so if there is none.
    pub(super) fn connect_what_the_link_names(&mut self) {
        let Some(link) = self.args.link.as_deref().and_then(|text| Link::parse(text).ok()) else { return };
        if self.replaying.is_some() || self.with_fleet(|fleet| fleet.store(&link.connection).is_some()) {
            return;
        }
        let name = link.connection.as_str();
        match self.saved.connections.iter().find(|saved| saved.name == name).cloned() {
            Some(saved) => self.connect(&saved),
            None => self.toasts.failed(format!(
                "The link leads to the connection {}, and none of that name is saved here. Save it under this name, or \
                 start with --url URL --lock NAME.",
                sanitized(name)
            )),
        }
    }

    /// Selects the wanted lock once it is seen.
    pub(super) fn look_for_the_wanted(&mut self) {
        let Some(wanted) = self.wanted.take() else { return };
        let now_ms = self.now_ms();
        match self.with_fleet(|fleet| wanted.look(fleet, now_ms)) {
            Ok(key) => {
                self.locks.select(Some(key));
                self.settings.details_open = true;
            }
            Err(missing) => {
                if missing && !wanted.told {
                    self.toasts.failed(format!(
                        "{} is neither held nor waited for. It is selected as soon as it is.",
                        sanitized(&wanted.lock)
                    ));
                }
                self.wanted = Some(Wanted { told: wanted.told || missing, ..wanted });
            }
        }
    }
}
