//! Passwords in the platform's keyring: the Secret Service of Linux desktops, the Keychain of macOS, the
//! Credential Manager of Windows.
//!
//! A keyring may ask its user to unlock it, so it is asked beside the window, never by it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use model::saved::SavedConnection;
use model::text::sanitized;

/// Keeps secrets by name.
pub trait Keyring: Debug + Send + Sync {
    /// Returns what is kept; `None` if nothing is. May block. Errors: a sentence without the secret.
    fn get(&self, name: &str) -> Result<Option<String>, String>;

    /// Keeps a secret in the place of the one before. May block. Errors: a sentence without the secret.
    fn set(&self, name: &str, secret: &str) -> Result<(), String>;

    /// Forgets a secret; there may be none. May block. Errors: a sentence.
    fn forget(&self, name: &str) -> Result<(), String>;
}

/// The keyring of this platform.
#[derive(Debug, Clone, Copy, Default)]
pub struct Platform;

/// Under which its entries stand.
const SERVICE: &str = "polylatch-inspector";

impl Platform {
    fn entry(name: &str) -> Result<keyring::v1::Entry, String> {
        if let Err(error) = keyring::v1::Entry::store_status() {
            return Err(why(error));
        }
        keyring::v1::Entry::new(SERVICE, name).map_err(|error| why(&error))
    }
}

impl Keyring for Platform {
    fn get(&self, name: &str) -> Result<Option<String>, String> {
        match Self::entry(name)?.get_password() {
            Ok(secret) => Ok(Some(secret)),
            Err(keyring::v1::Error::NoEntry) => Ok(None),
            Err(error) => Err(why(&error)),
        }
    }

    fn set(&self, name: &str, secret: &str) -> Result<(), String> {
        Self::entry(name)?.set_password(secret).map_err(|error| why(&error))
    }

    fn forget(&self, name: &str) -> Result<(), String> {
        match Self::entry(name)?.delete_credential() {
            Ok(()) | Err(keyring::v1::Error::NoEntry) => Ok(()),
            Err(error) => Err(why(&error)),
        }
    }
}

/// Some of the errors carry what was read, so only their kind is told where that may be.
fn why(error: &keyring::v1::Error) -> String {
    use keyring::v1::Error;
    match error {
        Error::PlatformFailure(cause) | Error::NoStorageAccess(cause) => sanitized(&cause.to_string()),
        Error::NoDefaultStore => "this system has none, or it does not run".into(),
        Error::TooLong(what, most) => format!("its {} may have {most} characters at most", sanitized(what)),
        Error::Ambiguous(_) => "it has several entries of this name; remove all but one".into(),
        _ => "its entry is not one that this program wrote; remove it there".into(),
    }
}

/// What came of asking. Without `Debug`, which would show a secret.
pub(super) enum Answer {
    /// The secret of a connection that is to be connected.
    Looked(Box<SavedConnection>, Result<Option<String>, String>),
    /// A secret was to be kept or forgotten.
    Changed(Result<(), String>),
}

/// Asks a keyring beside the window: one question after the other, so that what is forgotten last is not
/// kept by an earlier question that took longer, and its user is asked to unlock it once.
pub(super) struct Asking {
    keyring: Arc<dyn Keyring>,
    questions: Sender<Question>,
    send: Sender<Answer>,
    answers: Receiver<Answer>,
}

type Question = Box<dyn FnOnce(&dyn Keyring) -> Answer + Send>;

impl Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("keyring", &self.keyring).finish_non_exhaustive()
    }
}

impl Asking {
    pub(super) fn new(keyring: Arc<dyn Keyring>, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        let (questions, asked) = channel::<Question>();
        let (send, answers) = channel();
        let (keyring_there, send_there) = (Arc::clone(&keyring), send.clone());
        // If there is no such thread, the first question finds that out.
        let _ = std::thread::Builder::new().name("keyring".into()).spawn(move || {
            for question in asked {
                // Without a window there is nobody left to tell.
                let _ = send_there.send(question(&*keyring_there));
                wake();
            }
        });
        Self { keyring, questions, send, answers }
    }

    /// Looks for the secret of a connection.
    pub(super) fn look(&self, connection: &SavedConnection) {
        let connection = Box::new(connection.clone());
        self.ask(move |keyring| {
            let found = keyring.get(&entry_name(&connection));
            Answer::Looked(connection, found)
        });
    }

    /// Keeps the secret of a connection.
    pub(super) fn keep(&self, connection: &SavedConnection, secret: &str) {
        let (name, secret) = (entry_name(connection), secret.to_owned());
        self.ask(move |keyring| Answer::Changed(keyring.set(&name, &secret)));
    }

    /// Forgets the secret of a connection.
    pub(super) fn forget(&self, connection: &SavedConnection) {
        let name = entry_name(connection);
        self.ask(move |keyring| Answer::Changed(keyring.forget(&name)));
    }

    /// Returns what has come of it so far.
    pub(super) fn answers(&self) -> Vec<Answer> {
        self.answers.try_iter().collect()
    }

    fn ask(&self, question: impl FnOnce(&dyn Keyring) -> Answer + Send + 'static) {
        if self.questions.send(Box::new(question)).is_err() {
            let _ = self.send.send(Answer::Changed(Err("nothing is left that could ask it".into())));
        }
    }
}

/// Under which name a connection's secret is kept. It belongs to a place as well as to a name: a URL that was
/// changed asks anew instead of sending the password somewhere else.
pub(super) fn entry_name(connection: &SavedConnection) -> String {
    format!("{} {}", connection.name, connection.url)
}
