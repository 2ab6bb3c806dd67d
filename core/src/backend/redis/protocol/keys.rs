//! Keys and channels of one prefix. See `core/docs/wire-format.md`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::spelling::key_name;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;

/// What follows the prefix in the keys of the store as a whole.
const OWN_KEYS: [&str; 5] = ["fence", "locks", "epoch", "audit", "clients"];

/// How this client spells keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix: String,
    lock_before: String,
    lock_after: String,
    /// The user gave a template, so other libraries use the same key.
    is_template: bool,
    /// How the keys of those who wait, and of their signs of life, end.
    line: &'static str,
    life: &'static str,
    inbox_before: String,
}

impl Keys {
    /// `template` says how a lock's own key is spelled, with `{name}` where the name goes as it is: that is
    /// what another library does, and a key that is spelled in another way would be another lock.
    pub(crate) fn new(prefix: &str, template: Option<&str>) -> Result<Self> {
        if prefix.is_empty()
            || prefix.len() > 128
            || prefix.chars().any(|c| c.is_control() || c.is_whitespace() || "{}*?[]%".contains(c))
        {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                format!(
                    "the option prefix={prefix:?} must be 1 to 128 bytes without spaces and without {{ }} * ? [ ] %"
                ),
            ));
        }
        let usual = format!("{prefix}:{{{{name}}}}:lock");
        let template = template.filter(|template| *template != usual);
        let (lock_before, lock_after) = match template {
            None => (format!("{prefix}:{{"), "}:lock".to_owned()),
            Some(template) => match template.split_once("{name}") {
                Some((before, after)) if !after.contains("{name}") => (before.into(), after.into()),
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidConfig,
                        format!(
                            "the option lock_key={template:?} must contain {{name}} exactly once, for example \
                             redlock:{{name}}"
                        ),
                    ));
                }
            },
        };
        let inbox_before = [prefix, ":inbox:"].concat();
        Ok(Self {
            prefix: prefix.to_owned(),
            lock_before,
            lock_after,
            is_template: template.is_some(),
            line: "line",
            life: "life",
            inbox_before,
        })
    }

    /// The keys of one shard of a cluster: a store of its own under a prefix whose hash tag keeps all of them
    /// in one slot. Who waits in several shards hears of all in one place.
    pub(crate) fn of_a_shard(self, tag: &str) -> Self {
        let prefix = format!("{}:{{{tag}}}", self.prefix);
        Self { lock_before: format!("{prefix}:{{"), prefix, ..self }
    }

    /// The keys of one node of several. Whoever waits there stands under another key: a release on this
    /// node alone must not grant it anything.
    pub(crate) fn of_a_node(self) -> Self {
        Self { line: "crowd", life: "crowd-life", ..self }
    }

    /// Whether these are the keys of one shard of a cluster.
    pub(crate) fn is_a_shard(&self) -> bool {
        self.prefix.ends_with('}')
    }

    /// A key that belongs to the store as a whole.
    pub(crate) fn named(&self, what: &str) -> String {
        format!("{}:{what}", self.prefix)
    }

    /// A name as it stands in keys and in the index: with a template as it is, otherwise escaped.
    pub(crate) fn spell(&self, name: &LockName) -> String {
        if self.is_template { name.as_str().to_owned() } else { key_name(name) }
    }

    /// Whether other libraries use the keys of locks, too.
    pub(crate) fn are_shared(&self) -> bool {
        self.is_template
    }

    /// Undoes [`Keys::spell`].
    pub(crate) fn name_of<'n>(&self, spelled: &'n str) -> Cow<'n, str> {
        match self.is_template {
            true => Cow::Borrowed(spelled),
            false => percent_decode_str(spelled).decode_utf8_lossy(),
        }
    }

    /// Refuses a name that a template turns into a key of the store's own.
    pub(crate) fn check(&self, name: &LockName) -> Result<()> {
        if !self.is_template {
            return Ok(());
        }
        let key = self.lock(name);
        let rest = key.strip_prefix(self.prefix.as_str()).and_then(|rest| rest.strip_prefix(':'));
        let is_own = rest.is_some_and(|rest| {
            OWN_KEYS.contains(&rest)
                || ["{", "client:", "redlock:"].iter().any(|start| rest.starts_with(start))
        });
        if is_own {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "with lock_key= the lock {name:?} has the key {key:?}, which the store uses itself; use another name, \
                     or another prefix="
                ),
            ));
        }
        Ok(())
    }

    /// A key that belongs to one lock.
    pub(crate) fn of_lock(&self, name: &LockName, what: &str) -> String {
        format!("{}:{{{}}}:{what}", self.prefix, self.spell(name))
    }

    pub(crate) fn lock(&self, name: &LockName) -> String {
        [&self.lock_before, self.spell(name).as_str(), &self.lock_after].concat()
    }

    /// The six keys of every script that can grant, in its order.
    pub(crate) fn granting(&self, name: &LockName) -> Vec<String> {
        self.granting_spelled(&self.spell(name))
    }

    /// As [`Keys::granting`], for a name that is spelled already. There is room for the keys of holders
    /// that share.
    pub(crate) fn granting_spelled(&self, spelled: &str) -> Vec<String> {
        let mut keys = Vec::with_capacity(9);
        keys.push([&self.lock_before, spelled, &self.lock_after].concat());
        keys.push(self.of_name(spelled, self.line));
        keys.push(self.of_name(spelled, self.life));
        keys.extend([self.counter(), self.index(), [&self.prefix, ":epoch"].concat()]);
        keys
    }

    /// The three keys of the usual cases, from which their scripts spell the others.
    pub(crate) fn usual(&self, spelled: &str) -> Vec<String> {
        let lock = [&self.lock_before, spelled, &self.lock_after].concat();
        vec![lock, self.of_name(spelled, "line"), self.counter()]
    }

    /// The key of a record of idempotent work, by its spelled name.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn record(&self, spelled: &str) -> String {
        self.of_name(spelled, "idem")
    }

    /// What all keys of records match, also those of the shards of a cluster.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn records(&self) -> String {
        format!("{}:*{{*}}:idem", self.prefix.replace('\\', "\\\\"))
    }

    /// The spelled name in the key of a record. Names have no braces.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn record_in(key: &str) -> Option<&str> {
        let (_, name) = key.strip_suffix("}:idem")?.rsplit_once('{')?;
        Some(name)
    }

    /// The key of what stands beside a lock under its name.
    fn of_name(&self, spelled: &str, what: &str) -> String {
        [&self.prefix, ":{", spelled, "}:", what].concat()
    }

    /// Says whether a key is one of the store's own. The keys of locks are not where a template makes them:
    /// those may be held by another library.
    pub(crate) fn is_ours(&self, key: &str) -> bool {
        key.strip_prefix(self.prefix.as_str()).is_some_and(|rest| rest.starts_with(':'))
    }

    /// The lock that a template gives this key.
    pub(crate) fn shared_name<'k>(&self, key: &'k str) -> Option<&'k str> {
        let name = key.strip_prefix(self.lock_before.as_str())?.strip_suffix(self.lock_after.as_str())?;
        (self.is_template && !name.is_empty()).then_some(name)
    }

    /// The key of holders that share.
    pub(crate) fn holders(&self, spelled: &str) -> String {
        self.of_name(spelled, "holders")
    }

    /// The keys of holders that share: who, and their details.
    pub(crate) fn sharing(&self, name: &LockName) -> [String; 2] {
        self.sharing_spelled(&self.spell(name))
    }

    /// As [`Keys::sharing`], for a name that is spelled already.
    pub(crate) fn sharing_spelled(&self, spelled: &str) -> [String; 2] {
        [self.holders(spelled), self.of_name(spelled, "details")]
    }

    /// The key of the deadlines of waiters.
    pub(crate) fn deadlines(&self, name: &LockName) -> String {
        self.of_lock(name, "until")
    }

    pub(crate) fn counter(&self) -> String {
        [&self.prefix, ":fence"].concat()
    }

    pub(crate) fn index(&self) -> String {
        [&self.prefix, ":locks"].concat()
    }

    /// Whether grants are withheld, and the longest lease of clients with `guarantee=strict`.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn gate(&self) -> [String; 2] {
        [[&self.prefix, ":epoch"].concat(), [&self.prefix, ":longest"].concat()]
    }

    pub(crate) fn audit(&self) -> String {
        format!("{}:audit", self.prefix)
    }

    pub(crate) fn clients(&self) -> String {
        format!("{}:clients", self.prefix)
    }

    pub(crate) fn client_before(&self) -> String {
        format!("{}:client:", self.prefix)
    }

    pub(crate) fn inbox_before(&self) -> String {
        self.inbox_before.clone()
    }

    /// As [`Keys::inbox_before`], in the slot of a shard of a cluster.
    pub(crate) fn inbox_in_slot_before(&self) -> String {
        [&self.prefix, ":inbox:"].concat()
    }

    /// What stands before and after a name in the keys of a lock and of its line, and after it in the
    /// key of holders that share.
    pub(crate) fn around_names(&self) -> [String; 5] {
        [
            self.lock_before.clone(),
            self.lock_after.clone(),
            format!("{}:{{", self.prefix),
            format!("}}:{}", self.line),
            "}:holders".to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_one_hash_tag_and_the_prefix() {
        let keys = Keys::new("polylatch", None).unwrap();
        let name = LockName::new("orders/{42}").unwrap();
        assert_eq!(keys.lock(&name), "polylatch:{orders/%7B42%7D}:lock");
        assert_eq!(keys.granting(&name)[1], "polylatch:{orders/%7B42%7D}:line");
        let other = Keys::new("polylatch", Some("redlock:{name}")).unwrap();
        assert_eq!(other.lock(&LockName::new("a").unwrap()), "redlock:a");
        let usual = Keys::new("polylatch", Some("polylatch:{{name}}:lock")).unwrap();
        assert_eq!(usual, keys, "the usual spelling is no template");
        for (prefix, template) in
            [("", None), ("a b", None), ("a{", None), ("p", Some("no-name")), ("p", Some("{name}{name}"))]
        {
            assert_eq!(Keys::new(prefix, template).unwrap_err().code(), "invalid_config");
        }
    }

    #[test]
    fn a_template_takes_the_name_as_it_is_and_no_key_of_the_store() {
        let shared = Keys::new("polylatch", Some("redlock:{name}")).unwrap();
        let bare = Keys::new("polylatch", Some("{name}")).unwrap();
        for text in ["{order}:1", "100%", "a}b{c", "{}", "a%7Bb", "two words", "Größe"] {
            let name = LockName::new(text).unwrap();
            assert_eq!(shared.lock(&name), format!("redlock:{text}"));
            assert_eq!(shared.name_of(&shared.spell(&name)), text);
            assert_eq!(shared.shared_name(&shared.lock(&name)), Some(text));
            assert!(shared.check(&name).is_ok() && bare.check(&name).is_ok());
            assert_eq!(shared.granting(&name)[1], format!("polylatch:{{{text}}}:line"));
        }
        for own in ["polylatch:fence", "polylatch:{a}:line", "polylatch:client:x", "polylatch:redlock:gate"] {
            let error = bare.check(&LockName::new(own).unwrap()).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().contains("another prefix="), "{error}");
        }
    }
}
