//! Which request is meant.

use std::collections::HashMap;

/// Describes requests. A plain text is a [`Pattern::Word`].
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Every request.
    Any,
    /// The command, in any case: `GET`, or with its subcommand `CLIENT SETNAME`.
    Command(String),
    /// A script that is run (EVAL, EVALSHA, FCALL and their read-only forms): its SHA-1, the name
    /// given to it with [`Proxy::name_script`](super::Proxy::name_script), a part of its source
    /// (the proxy remembers the source of what passed through it), or the function's name.
    Script(String),
    /// Some word after the command contains the text.
    Argument(String),
    /// The command, or the script, or a whole word after the command.
    Word(String),
    /// Both patterns match.
    Both(Box<Pattern>, Box<Pattern>),
}

impl Pattern {
    pub fn command(name: &str) -> Pattern {
        Pattern::Command(name.into())
    }

    pub fn script(text: &str) -> Pattern {
        Pattern::Script(text.into())
    }

    pub fn argument(text: &str) -> Pattern {
        Pattern::Argument(text.into())
    }

    /// Narrows the pattern: `Pattern::script("release").and(Pattern::argument("orders"))`.
    #[must_use]
    pub fn and(self, other: impl Into<Pattern>) -> Pattern {
        Pattern::Both(Box::new(self), Box::new(other.into()))
    }

    pub(super) fn matches(&self, words: &[Vec<u8>], scripts: &Scripts) -> bool {
        let arguments = words.get(1..).unwrap_or_default();
        match self {
            Pattern::Any => true,
            Pattern::Command(name) => is_command(words, name),
            Pattern::Script(text) => scripts.runs(words, text),
            Pattern::Argument(text) => arguments.iter().any(|word| contains(word, text)),
            Pattern::Word(text) => {
                is_command(words, text)
                    || scripts.runs(words, text)
                    || arguments.iter().any(|word| word == text.as_bytes())
            }
            Pattern::Both(one, other) => one.matches(words, scripts) && other.matches(words, scripts),
        }
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Pattern::Word(text.into())
    }
}

/// The scripts whose source went through the proxy, and the names given to some.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    sources: HashMap<String, Vec<u8>>,
    names: HashMap<String, String>,
}

impl Scripts {
    pub(super) fn name(&mut self, name: &str, source: &str) {
        self.names.insert(name.into(), sha1(source.as_bytes()));
    }

    /// Remembers the source a request carries.
    pub(super) fn learn(&mut self, words: &[Vec<u8>]) {
        let source = match words {
            [command, load, source, ..] if is(command, "SCRIPT") && load.eq_ignore_ascii_case(b"LOAD") => {
                source
            }
            [command, source, ..] if is(command, "EVAL") || is(command, "EVAL_RO") => source,
            _ => return,
        };
        self.sources.insert(sha1(source), source.clone());
    }

    fn runs(&self, words: &[Vec<u8>], text: &str) -> bool {
        let [command, script, ..] = words else {
            return false;
        };
        let sha = if is(command, "EVAL") || is(command, "EVAL_RO") {
            sha1(script)
        } else if is(command, "EVALSHA") || is(command, "EVALSHA_RO") {
            String::from_utf8_lossy(script).to_ascii_lowercase()
        } else if is(command, "FCALL") || is(command, "FCALL_RO") {
            return script == text.as_bytes();
        } else {
            return false;
        };
        let source = self.sources.get(&sha);
        sha.eq_ignore_ascii_case(text)
            || self.names.get(text) == Some(&sha)
            || source.is_some_and(|source| contains(source, text))
    }
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn is_command(words: &[Vec<u8>], name: &str) -> bool {
    let mut words = words.iter();
    let mut parts = name.split(' ');
    parts.all(|part| words.next().is_some_and(|word| is(word, part)))
}

fn contains(word: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    text.is_empty() || word.windows(text.len()).any(|window| window == text)
}

/// SHA-1 in hexadecimal: the name under which Redis keeps a script. (Not for secrets.)
fn sha1(message: &[u8]) -> String {
    let mut state: [u32; 5] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - message.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len();
    padded[end - 8..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut w = [0u32; 80];
        for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four"));
        }
        for i in 16..80 {
            w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in w.iter().enumerate() {
            let (f, k) = match i {
                0..20 => ((b & c) | (!b & d), 0x5a827999),
                20..40 => (b ^ c ^ d, 0x6ed9eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1bbcdc),
                _ => (b ^ c ^ d, 0xca62c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e);
            (e, d, c, b) = (d, c, b.rotate_left(30), a);
            a = next.wrapping_add(k).wrapping_add(*word);
        }
        for (sum, value) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(value);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split('|').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn sha1_agrees_with_the_published_vectors_around_the_padding_borders() {
        assert_eq!(sha1(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha1(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(sha1(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        let million = vec![b'a'; 1_000_000];
        assert_eq!(sha1(&million), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn a_script_is_found_by_hash_name_and_source_once_it_was_seen() {
        let source = "-- acquire: owner checked\nreturn 1";
        let run = words(&format!("evalsha|{}|1|k", sha1(source.as_bytes())));
        let mut scripts = Scripts::default();
        let found = |text: &str, scripts: &Scripts| Pattern::script(text).matches(&run, scripts);
        assert!(found(&sha1(source.as_bytes()), &scripts));
        assert!(!found("acquire", &scripts));
        scripts.learn(&words(&format!("SCRIPT|load|{source}")));
        assert!(found("-- acquire", &scripts));
        scripts.name("take", source);
        assert!(found("take", &scripts));
        assert!(!found("release", &scripts));
        let eval = words(&format!("EVAL|{source}|0"));
        assert!(Pattern::script("take").matches(&eval, &scripts));
    }

    #[test]
    fn words_commands_and_arguments_are_told_apart() {
        let scripts = Scripts::default();
        let request = words("client|setname|worker-1");
        let matches = |pattern: Pattern| pattern.matches(&request, &scripts);
        assert!(matches(Pattern::Any));
        assert!(matches(Pattern::command("CLIENT SETNAME")));
        assert!(!matches(Pattern::command("CLIENT LIST")));
        assert!(matches("worker-1".into()));
        assert!(!matches("worker".into()));
        assert!(matches(Pattern::argument("worker")));
        assert!(!matches(Pattern::argument("worker").and("SET")));
    }
}
