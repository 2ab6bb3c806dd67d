//! Connections: from arguments, from the saved ones, from the form.

use std::collections::HashMap;
use std::time::Duration;

use super::app::App;
use super::dialogs::Dialog;
use super::dialogs::secret::SecretDialog;
use super::doing::every;
use super::keyring::{Answer, Asking, entry_name};
use host::poll::Target;
use model::saved::{SavedConnection, SecretSource, names_for};
use model::text::sanitized;
use model::{Alarms, ConnectionId};

/// How often a new connection is read, unless its settings say otherwise, if a snapshot is expensive.
pub(super) const EVERY_MS: u64 = 1_000;

/// Secrets that were typed in this run, by connection and place as in the keyring: a URL that was changed
/// does not get the secret of the one before. Never shown.
#[derive(Default)]
pub struct Secrets(HashMap<String, String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// A store that answers quickly is read five times as often, so that a change is seen soon.
fn quick(every_ms: u64) -> Duration {
    every((every_ms / 5).max(100))
}

impl App {
    /// Connects what the arguments name; without such, every saved connection that needs no question,
    /// or else what `POLYLATCH_URL` names.
    pub(super) fn connect_at_start(&mut self) {
        match Alarms::new(self.saved.alerts.clone()) {
            Ok(alarms) => {
                if let Some(live) = &self.live {
                    live.set_alarms(alarms);
                }
            }
            Err(message) => self.toasts.failed(format!("alert rules: {message}")),
        }
        self.want_what_arguments_name();
        if self.replaying.is_some() {
            return;
        }
        self.start_demo_if_asked();
        if self.args.demo {
            return;
        }
        let mut urls = self.args.url.clone();
        if urls.is_empty() && self.saved.connections.is_empty() {
            urls.extend(std::env::var("POLYLATCH_URL").ok().filter(|url| !url.is_empty()));
        }
        for url in &urls {
            self.connect_url(url);
        }
        if urls.is_empty() {
            for saved in self.saved.connections.clone() {
                if saved.secret != SecretSource::Prompt {
                    self.connect(&saved);
                }
            }
        }
        self.connect_what_the_link_names();
    }

    /// Connects to the store that programs use if none is named: that of `POLYLATCH_URL`, or else a file of this user.
    pub(super) fn connect_default(&mut self) {
        let url = match std::env::var("POLYLATCH_URL").ok().filter(|url| !url.is_empty()) {
            Some(url) => Ok(url),
            None => host::poll::default_store().map_err(|error| sanitized(&error.to_string())),
        };
        match url {
            Ok(url) => self.connect_url(&url),
            Err(message) => self.toasts.failed(format!("the default store cannot be opened: {message}")),
        }
    }

    fn connect_url(&mut self, url: &str) {
        match SavedConnection::from_url(&self.free_name(url), url) {
            Ok((mut connection, secret)) => {
                connection.every_ms = EVERY_MS;
                self.transient.push(connection.clone());
                self.connect_with(&connection, secret.as_deref());
            }
            Err(message) => self.toasts.failed(message),
        }
    }

    /// Connects; asks for the secret if it has to.
    pub(super) fn connect(&mut self, saved: &SavedConnection) {
        let known = self.known_secret(saved);
        match (&saved.secret, known) {
            (SecretSource::Prompt, None) => self.ask_for_secret(saved, String::new()),
            (SecretSource::Keyring, None) => match &self.asking {
                Some(asking) => asking.look(saved),
                None => self.ask_for_secret(saved, String::new()),
            },
            (SecretSource::Env { variable }, None) => {
                self.toasts.failed(format!("{}: the environment variable {variable} is not set", saved.name));
            }
            (_, known) => self.connect_with(saved, known.as_deref()),
        }
    }

    fn ask_for_secret(&mut self, saved: &SavedConnection, note: String) {
        self.dialog = Some(Dialog::Secret(SecretDialog::new(saved.clone(), note)));
    }

    /// Takes what the keyring has answered meanwhile.
    pub(super) fn take_keyring_answers(&mut self) {
        for answer in self.asking.as_ref().map(Asking::answers).unwrap_or_default() {
            match answer {
                // It was changed or removed while its user was asked to unlock the keyring.
                Answer::Looked(saved, _) if !self.is_known(&saved) => {}
                Answer::Looked(saved, Ok(Some(secret))) => self.connect_with(&saved, Some(&secret)),
                // One question at a time; the connection's place in the rail asks again.
                Answer::Looked(..) if self.dialog.is_some() => {}
                Answer::Looked(saved, Ok(None)) => {
                    self.ask_for_secret(&saved, "The keyring has none for this connection so far.".into());
                }
                Answer::Looked(saved, Err(why)) => {
                    self.ask_for_secret(&saved, format!("The keyring cannot be read: {why}."));
                }
                Answer::Changed(Ok(())) => {}
                Answer::Changed(Err(why)) => {
                    self.toasts.failed(format!("the keyring did not take the change: {why}"));
                }
            }
        }
    }

    fn is_known(&self, connection: &SavedConnection) -> bool {
        self.saved.connections.iter().chain(&self.transient).any(|known| known == connection)
    }

    /// Connects with a secret that was typed, and keeps it where the connection wants it kept.
    pub(super) fn connect_with_typed(&mut self, saved: &SavedConnection, secret: &str) {
        if let Some(asking) = self.asking.as_ref().filter(|_| saved.secret == SecretSource::Keyring) {
            asking.keep(saved, secret);
        }
        self.connect_with(saved, Some(secret));
    }

    /// Connects with a secret.
    pub(super) fn connect_with(&mut self, saved: &SavedConnection, secret: Option<&str>) {
        if let Some(secret) = secret {
            self.secrets.0.insert(entry_name(saved), secret.to_owned());
        }
        let Some(live) = &self.live else { return };
        let target = Target {
            id: ConnectionId::new(&saved.name),
            url: saved.url_with(secret),
            quick: quick(saved.every_ms),
            every: every(saved.every_ms),
            prefix: Some(saved.prefix.clone()).filter(|prefix| !prefix.is_empty()),
            foreign: saved.foreign.clone(),
            read_only: saved.is_read_only(),
        };
        live.watch(saved.connection(), target);
    }

    /// The secret of a connection, if it need not be asked for.
    pub(super) fn known_secret(&self, saved: &SavedConnection) -> Option<String> {
        if let Some(typed) = self.secrets.0.get(&entry_name(saved)) {
            return Some(typed.clone());
        }
        match &saved.secret {
            SecretSource::Env { variable } => std::env::var(variable).ok(),
            SecretSource::None | SecretSource::Prompt | SecretSource::Keyring => None,
        }
    }

    /// Takes a connection from the form, and connects it.
    pub(super) fn put_connection(
        &mut self,
        old: Option<&str>,
        connection: SavedConnection,
        secret: Option<String>,
        save: bool,
    ) {
        if let (Some(old), Some(live)) = (old.filter(|old| *old != connection.name), &self.live) {
            live.forget(&ConnectionId::new(old));
        }
        if save {
            let place = self.saved.connections.iter().position(|known| Some(known.name.as_str()) == old);
            match place {
                Some(place) => {
                    let old = std::mem::replace(&mut self.saved.connections[place], connection.clone());
                    let elsewhere = connection.secret != SecretSource::Keyring
                        || (&old.name, &old.url) != (&connection.name, &connection.url);
                    if let Some(asking) = &self.asking
                        && old.secret == SecretSource::Keyring
                        && elsewhere
                    {
                        asking.forget(&old);
                    }
                }
                None => self.saved.connections.push(connection.clone()),
            }
            self.save_saved();
        } else {
            self.transient.retain(|known| known.name != connection.name);
            self.transient.push(connection.clone());
        }
        match secret {
            Some(secret) => self.connect_with_typed(&connection, &secret),
            None => self.connect(&connection),
        }
    }

    /// Forgets a connection for good.
    pub(super) fn remove_connection(&mut self, name: &str) {
        if let Some(live) = &self.live {
            live.forget(&ConnectionId::new(name));
        }
        let is_it = |known: &mut SavedConnection| known.name == name;
        let transient: Vec<_> = self.transient.extract_if(.., is_it).collect();
        let removed: Vec<_> = self.saved.connections.extract_if(.., is_it).collect();
        for connection in transient.iter().chain(&removed) {
            self.secrets.0.remove(&entry_name(connection));
            if let Some(asking) = &self.asking
                && connection.secret == SecretSource::Keyring
            {
                asking.forget(connection);
            }
        }
        if !removed.is_empty() {
            self.save_saved();
        }
    }

    /// A name for a URL that no other connection has: its host or file, and what tells it apart from another one there.
    pub(super) fn free_name(&self, url: &str) -> String {
        let [name, longer] = names_for(url);
        let all = || self.saved.connections.iter().chain(&self.transient);
        let is_free = |name: &String| !all().any(|known| known.name == *name);
        let numbered = (2_u32..).map(|number| format!("{longer} {number}"));
        [name, longer.clone()].into_iter().chain(numbered).find(is_free).unwrap_or(longer)
    }
}
