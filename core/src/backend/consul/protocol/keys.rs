//! Where everything stands in the key-value store, and how a lock's name becomes a folder.

use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::token::{ClientId, OwnerToken};

/// Longest prefix, in bytes.
const MAX_PREFIX: usize = 128;

/// The names of keys below one prefix. See `core/docs/wire-format.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: String,
    /// What stands before and after the name in the key of a mutex.
    lock_key: Option<(String, String)>,
}

impl Keys {
    pub(crate) fn new(prefix: &str, lock_key: Option<&str>) -> Result<Self> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidConfig, message));
        if prefix.is_empty() || prefix.len() > MAX_PREFIX || prefix.chars().any(char::is_control) {
            return invalid(format!(
                "the option prefix={prefix:?} must have 1 to {MAX_PREFIX} bytes without control characters"
            ));
        }
        if prefix.starts_with('/') || prefix.ends_with('/') || prefix.contains("//") {
            return invalid(format!(
                "the option prefix={prefix:?} must not begin or end with a slash, nor have two together"
            ));
        }
        let lock_key = match lock_key {
            None => None,
            Some(template) => match template.split_once("{name}") {
                Some((before, after))
                    if !after.contains("{name}") && !template.starts_with('/') && template.len() <= 256 =>
                {
                    Some((before.to_owned(), after.to_owned()))
                }
                _ => {
                    return invalid(format!(
                        "the option lock_key={template:?} must contain {{name}} once and not begin with a slash, for \
                         example service/{{name}}/leader"
                    ));
                }
            },
        };
        Ok(Self { prefix: prefix.to_owned(), lock_key })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Everything that belongs to locks and clients of this prefix.
    pub(crate) fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// The folder of one lock.
    pub(crate) fn folder(&self, name: &LockName) -> String {
        format!("{}/{}/", self.prefix, escaped(name.as_str()))
    }

    /// The key that is held: `FOLDER/.lock`, as `consul lock` has it, or by the template.
    pub(crate) fn lock(&self, name: &LockName) -> String {
        match &self.lock_key {
            Some((before, after)) => format!("{before}{}{after}", escaped(name.as_str())),
            None => format!("{}.lock", self.folder(name)),
        }
    }

    /// Whether the held key stands in the lock's own folder.
    pub(crate) fn lock_is_in_folder(&self) -> bool {
        self.lock_key.is_none()
    }

    /// What `.lock`, `.line/` and `.lease/` of one lock begin with, and nothing else.
    pub(crate) fn own(&self, name: &LockName) -> String {
        format!("{}.l", self.folder(name))
    }

    /// There as long as somebody may stand in line.
    pub(crate) fn line_open(&self, name: &LockName) -> String {
        format!("{}open", self.line(name))
    }

    /// What the places in line begin with.
    pub(crate) fn line(&self, name: &LockName) -> String {
        format!("{}.line/", self.folder(name))
    }

    pub(crate) fn contender(&self, name: &LockName, owner: OwnerToken, session: &str) -> String {
        format!("{}{}", self.line(name), leaf(owner, session))
    }

    pub(crate) fn lease(&self, name: &LockName, owner: OwnerToken, session: &str) -> String {
        format!("{}.lease/{}", self.folder(name), leaf(owner, session))
    }

    /// The contender key of Consul's own semaphores.
    pub(crate) fn permit(&self, name: &LockName, session: &str) -> String {
        format!("{}{session}", self.folder(name))
    }

    /// What concerns one client: its sessions, its record, letters to it.
    pub(crate) fn inbox(&self, client: &ClientId) -> String {
        self.inbox_at(&written(client))
    }

    fn inbox_at(&self, client: &str) -> String {
        format!("{}/.client/{client}/", self.prefix)
    }

    pub(crate) fn about(&self, client: &ClientId, session: &str) -> String {
        format!("{}about-{}", self.inbox(client), session.get(..8).unwrap_or(session))
    }

    /// What this client was refused for lock-delay, for display.
    pub(crate) fn refused(&self, client: &ClientId, session: &str) -> String {
        format!("{}delay-{}", self.inbox(client), session.get(..8).unwrap_or(session))
    }

    /// There as long as the session lives; its index is the epoch of the session's requests.
    pub(crate) fn marker(&self, client: &ClientId, session: &str) -> String {
        format!("{}session-{session}", self.inbox(client))
    }

    /// A letter to a client, which is named as in its own records: clients of another version spell
    /// their inbox in another way, and everybody finds what was written where its own record says.
    pub(crate) fn letter(&self, client: &str, owner: OwnerToken, session: &str) -> String {
        format!("{}{}", self.inbox_at(client), leaf(owner, session))
    }

    pub(crate) fn audit(&self) -> String {
        format!("{}/.audit", self.prefix)
    }

    /// What all keys of locks begin with whose name begins with this.
    pub(crate) fn below(&self, name_prefix: &str) -> String {
        // Whether the last slash or dot is escaped depends on what follows, so it stays out.
        let certain = name_prefix.trim_end_matches(['/', '.']);
        format!("{}/{}", self.prefix, escaped(certain))
    }

    /// Where the held keys of all mutexes begin, if not in the locks' folders.
    pub(crate) fn locks_elsewhere(&self) -> Option<&str> {
        self.lock_key.as_ref().map(|(before, _)| before.as_str())
    }

    /// What a key is, if it belongs to this prefix.
    pub(crate) fn read(&self, key: &str) -> Option<Key> {
        if let Some((before, after)) = &self.lock_key
            && let Some(name) =
                key.strip_prefix(before.as_str()).and_then(|rest| rest.strip_suffix(after.as_str()))
            && let Some(name) = unescaped(name)
            && LockName::new(&name).is_ok_and(|name| self.lock(&name) == key)
        {
            return Some(Key::OfLock(name, Part::Lock));
        }
        let rest = key.strip_prefix(self.prefix.as_str())?.strip_prefix('/')?;
        if rest == ".audit" {
            return Some(Key::Audit);
        }
        if let Some(rest) = rest.strip_prefix(".client/") {
            let (client, what) = rest.split_once('/')?;
            return Some(Key::OfClient(client_of(client), what.to_owned()));
        }
        // A segment of a name never begins with a dot, so the first that does ends it.
        for (at, _) in rest.match_indices("/.l") {
            let name = unescaped(&rest[..at])?;
            let part = match &rest[at + 1..] {
                ".lock" => Part::Lock,
                ".line/open" => Part::LineOpen,
                tail => match (tail.strip_prefix(".line/"), tail.strip_prefix(".lease/")) {
                    (Some(leaf), _) => Part::Contender(owner_of(leaf)?),
                    (_, Some(leaf)) => Part::Lease(owner_of(leaf)?),
                    _ => continue,
                },
            };
            return Some(Key::OfLock(name, part));
        }
        let (name, last) = rest.rsplit_once('/')?;
        is_session(last).then(|| unescaped(name)).flatten().map(|name| Key::OfLock(name, Part::Permit))
    }
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    Audit,
    OfClient(ClientId, String),
    OfLock(String, Part),
}

/// A key in a lock's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Lock,
    LineOpen,
    Contender(OwnerToken),
    Lease(OwnerToken),
    /// The contender key of a semaphore's session.
    Permit,
}

/// A client id as it stands in keys and records: some servers refuse keys with a colon, which every id
/// has. All but letters, digits, `.`, `-` and `_` is `=` and two hex digits.
pub(crate) fn written(client: &ClientId) -> String {
    let mut out = String::with_capacity(client.as_str().len() + 4);
    for byte in client.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => out.push(byte.into()),
            other => out.push_str(&format!("={other:02X}")),
        }
    }
    out
}

/// Reads [`written`] back. What has a colon was written by version 0.1, which wrote ids as they are.
pub(crate) fn client_of(text: &str) -> ClientId {
    let decoded = || {
        let mut parts = text.split('=');
        let mut bytes = parts.next()?.as_bytes().to_vec();
        for part in parts {
            let (byte, rest) = part.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(byte, 16).ok()?);
            bytes.extend_from_slice(rest.as_bytes());
        }
        String::from_utf8(bytes).ok()
    };
    let id = (!text.contains(':')).then(decoded).flatten();
    ClientId::from_stored(id.as_deref().unwrap_or(text))
}

/// Whether every server takes this key: those of Consul 1.21.5 refuse all other characters.
pub(crate) fn is_plain(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b",_./-?&=".contains(&byte))
}

/// Who and under which session: a key that died with its session is under lock-delay, so the same
/// owner under a new session needs another.
fn leaf(owner: OwnerToken, session: &str) -> String {
    format!("{}-{}", owner.to_hex(), session.get(..8).unwrap_or(session))
}

/// Reads the owner back out of a [`leaf`].
pub(crate) fn owner_of(leaf: &str) -> Option<OwnerToken> {
    OwnerToken::from_hex(leaf.split_once('-')?.0)
}

/// Whether a text has the form of a session id.
fn is_session(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A name as part of a key: percent signs, dots that begin a segment, and slashes without a segment
/// before or after them are escaped. So folders nest as the names do, `.lock` and its like are never
/// part of a name, and the HTTP server has no reason to tidy the path.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut segment_begins = true;
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '%' => out.push_str("%25"),
            '.' if segment_begins => out.push_str("%2E"),
            '/' if segment_begins || characters.peek().is_none() => out.push_str("%2F"),
            '/' => {
                out.push('/');
                segment_begins = true;
                continue;
            }
            other => out.push(other),
        }
        segment_begins = false;
    }
    out
}

fn unescaped(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|name| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new("polylatch", None).unwrap()
    }

    #[test]
    fn names_become_folders_and_come_back() {
        let lock = |name: &str| keys().lock(&LockName::new(name).unwrap());
        assert_eq!(lock("orders/42"), "polylatch/orders/42/.lock");
        let names = [
            "a",
            "A",
            "a/b",
            "/a",
            "a/",
            "a//b",
            "/",
            "//",
            ".",
            "..",
            "a/../b",
            ".lock",
            "a/.line/x",
            "100%",
            "a%2Fb",
            "Größe",
            "🔒",
            "a b?c#d",
            "a/.",
            "x/a.b",
            ".l",
            "a/.l",
        ];
        let mut seen = std::collections::HashSet::new();
        for name in names {
            let key = lock(name);
            assert!(seen.insert(key.clone()), "{name:?} met another at {key}");
            assert!(!key.contains("//") && !key.contains("/../"), "{key}");
            assert_eq!(keys().read(&key), Some(Key::OfLock(name.into(), Part::Lock)), "{key}");
        }
    }

    #[test]
    fn every_key_is_recognised() {
        let name = LockName::new("a/b").unwrap();
        let owner = OwnerToken::from_hex("00112233445566778899aabbccddeeff").unwrap();
        let session = "03728c09-2062-b76f-1615-ea71761caff2";
        let client = ClientId::from_stored("web-1:42:0a0b0c0d");
        let keys = keys();
        let of = |part| Some(Key::OfLock("a/b".into(), part));
        assert_eq!(keys.read(&keys.contender(&name, owner, session)), of(Part::Contender(owner)));
        assert_eq!(keys.read(&keys.lease(&name, owner, session)), of(Part::Lease(owner)));
        assert_eq!(keys.read(&keys.permit(&name, session)), of(Part::Permit));
        assert_eq!(keys.read(&keys.line_open(&name)), of(Part::LineOpen));
        assert_eq!(
            keys.read(&keys.about(&client, session)),
            Some(Key::OfClient(client, "about-03728c09".into()))
        );
        assert_eq!(keys.read(&keys.audit()), Some(Key::Audit));
        assert_eq!(keys.read("polylatch/a/b/other"), None);
        assert_eq!(keys.read("elsewhere/a/.lock"), None);
    }

    #[test]
    fn keys_about_clients_are_taken_by_every_server() {
        let keys = keys();
        let session = "03728c09-2062-b76f-1615-ea71761caff2";
        let mut seen = std::collections::HashSet::new();
        for id in ["web-1:42:0a0b0c0d", "web-1=3A42:0:a", "a%:1:b", "Größe:1:c", "=:1:d", "a=:1:d", "_.-:1:e"]
        {
            let client = ClientId::from_stored(id);
            let text = written(&client);
            assert!(seen.insert(text.clone()), "{id} met another at {text}");
            assert_eq!(client_of(&text), client);
            let owner = OwnerToken::from_hex("00112233445566778899aabbccddeeff").unwrap();
            for key in [
                keys.inbox(&client),
                keys.about(&client, session),
                keys.refused(&client, session),
                keys.marker(&client, session),
                keys.letter(&text, owner, session),
            ] {
                assert!(is_plain(&key) && key.starts_with(&keys.inbox(&client)), "{key}");
            }
        }
        assert_eq!(written(&ClientId::from_stored("web-1:42:0a0b0c0d")), "web-1=3A42=3A0a0b0c0d");
        // As version 0.1 wrote them, and what nobody wrote.
        for text in ["web-1:42:0a0b0c0d", "a=:1:b", "odd=zz", "odd=4", "odd=é"] {
            assert_eq!(client_of(text).as_str(), text);
        }
    }

    #[test]
    fn a_prefix_of_names_is_a_prefix_of_keys() {
        let keys = keys();
        for (prefix, name) in
            [("a/", "a/1"), ("a/", "a//1"), ("a", "a.b"), ("a.", "a.b"), ("", ".x"), (".", "./x")]
        {
            let key = keys.lock(&LockName::new(name).unwrap());
            assert!(key.starts_with(&keys.below(prefix)), "{prefix:?} {key}");
        }
    }
}
