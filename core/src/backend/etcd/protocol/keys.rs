//! Where everything stands: `PREFIX/NAME/LEASE` for a contender, as etcd's own recipe has it.
//!
//! A name is one part of the path: `/` is `%2F` and `%` is `%25` in it, or the locks `a` and `a/b` would meet. Parts
//! that begin with a dot are ours, so a name that does begins with `%2E`.

use std::fmt::Write;

/// Longest prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 128;

/// The keys of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: String,
}

/// What a key is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A contender of a lock, ours or another program's.
    Contender {
        name: String,
    },
    Client,
    Broken,
}

impl Keys {
    /// Errors: a sentence with the rule.
    pub(crate) fn new(prefix: &str) -> Result<Self, String> {
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
            return Err(format!(
                "the prefix must have 1 to {MAX_PREFIX_BYTES} bytes without control characters"
            ));
        }
        let bare = prefix.strip_prefix('/').unwrap_or(prefix);
        if bare.split('/').any(str::is_empty) {
            return Err("the prefix has an empty part; write parts with one slash between them".into());
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The folder of everything.
    pub(crate) fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// The folder of a lock's contenders.
    pub(crate) fn folder(&self, name: &str) -> String {
        format!("{}/{}/", self.prefix, encoded(name))
    }

    /// Where the folders of locks begin whose name starts so. Not a folder itself.
    pub(crate) fn below(&self, name_prefix: &str) -> String {
        format!("{}/{}", self.prefix, encoded(name_prefix))
    }

    /// The key of a contender: its lease in hexadecimal, without leading zeros (`clientv3/concurrency/mutex.go`).
    pub(crate) fn contender(&self, name: &str, lease: i64) -> String {
        format!("{}{lease:x}", self.folder(name))
    }

    pub(crate) fn clients(&self) -> String {
        format!("{}/.client/", self.prefix)
    }

    pub(crate) fn broken(&self) -> String {
        format!("{}/.broken/", self.prefix)
    }

    /// One broken lease; later ones sort behind.
    pub(crate) fn broken_at(&self, at_ms: u64, fence: u64) -> String {
        format!("{}{at_ms:020}-{fence}", self.broken())
    }

    /// What a key of this store is. `None` for what no client of a lock has written.
    pub(crate) fn read(&self, key: &str) -> Option<Key> {
        let (folder, leaf) = key.strip_prefix(&self.prefix)?.strip_prefix('/')?.split_once('/')?;
        match folder {
            ".client" => Some(Key::Client),
            ".broken" => Some(Key::Broken),
            _ => {
                i64::from_str_radix(leaf, 16).ok()?;
                Some(Key::Contender { name: decoded(folder)? })
            }
        }
    }
}

/// The end of the range of all keys that begin so (etcd, "API reference", `range_end`).
pub(crate) fn range_end(start: &str) -> Vec<u8> {
    let mut end = start.as_bytes().to_vec();
    // No UTF-8 byte is the largest one, so the last can always be raised.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, character) in name.char_indices() {
        match character {
            '/' | '%' => _ = write!(out, "%{:02X}", character as u32),
            '.' if at == 0 => out.push_str("%2E"),
            _ => out.push(character),
        }
    }
    out
}

/// The name that is encoded so. `None` if no name is.
fn decoded(part: &str) -> Option<String> {
    let name = percent_encoding::percent_decode_str(part).decode_utf8().ok()?;
    // Only what we write ourselves: `a%62` is no other spelling of `ab`.
    (encoded(&name) == part).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_come_back() {
        let keys = Keys::new("p/q").unwrap();
        for (name, folder) in [
            ("a", "p/q/a/"),
            ("a/b", "p/q/a%2Fb/"),
            ("a%2Fb", "p/q/a%252Fb/"),
            (".client", "p/q/%2Eclient/"),
            ("Größe 🔒", "p/q/Größe 🔒/"),
        ] {
            assert_eq!(keys.folder(name), folder);
            let key = keys.contender(name, 0x1f);
            assert_eq!(key, format!("{folder}1f"));
            assert_eq!(keys.read(&key), Some(Key::Contender { name: name.into() }), "{key}");
        }
        assert_eq!(keys.read("p/q/.client/x"), Some(Key::Client));
        for key in ["p/q/a", "p/q/a/", "p/q/a/zz", "p/q/a%62/1f", "p/other/a/1f", "p/q/a/b/1f"] {
            assert_eq!(keys.read(key), None, "{key}");
        }
    }

    #[test]
    fn ranges_end_behind_everything_that_begins_so() {
        assert_eq!(range_end("p/a/"), b"p/a0");
    }

    #[test]
    fn prefixes_have_no_empty_parts() {
        for prefix in ["a", "/a", "a/b"] {
            assert!(Keys::new(prefix).is_ok(), "{prefix}");
        }
        for prefix in ["", "/", "a/", "a//b", "a\nb"] {
            assert!(Keys::new(prefix).is_err(), "{prefix:?}");
        }
    }
}
