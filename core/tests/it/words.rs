//! What people read is in the words of the field: no string of the product has a word that the glossary replaces.

use std::fs;
use std::path::Path;

/// Each with what is written instead.
const REPLACED: [(&str, &str); 22] = [
    ("in line", "queued, in the queue"),
    ("stands in", "is in, is queued"),
    ("whoever", "the caller, the client that"),
    ("somebody", "another client, a client"),
    ("nobody", "no client, no process"),
    ("give back", "release"),
    ("gives back", "releases"),
    ("given back", "released"),
    ("gave back", "released"),
    ("be had", "available, acquire"),
    ("had together", "all or none"),
    ("sign of life", "heartbeat"),
    ("sits out", "does not vote until"),
    ("waits out", "does not vote until"),
    ("glance", "probe"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("brings along", "host-provided"),
    ("anew", "again"),
    ("step down", "downgrade"),
    ("step up", "upgrade"),
];

/// The text literals of a source with their lines, without those of its tests. Good enough for sources that rustfmt has
/// been over: a quote in a character literal is `'"'`, and raw strings have at most one `#`.
fn literals(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        line += rest[..at].matches('\n').count();
        let here = &rest[at..];
        let length = if here.starts_with("//") {
            here.find('\n').unwrap_or(here.len())
        } else if here.starts_with('"') {
            let raw = rest[..at].ends_with("r#") || rest[..at].ends_with("r") && !rest[..at].ends_with("er");
            let end = end_of_text(here, raw, rest[..at].ends_with("r#"));
            found.push((line, here[1..end].replace("\\\n", " ")));
            line += here[..end].matches('\n').count();
            end + 1
        } else if here.starts_with("'\"'") {
            3
        } else if here.starts_with("'\\\"'") {
            4
        } else {
            1
        };
        rest = &here[length.min(here.len())..];
    }
    found
}

/// Where the text that begins here ends: at its closing quote.
fn end_of_text(here: &str, raw: bool, hash: bool) -> usize {
    let bytes = here.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !raw => at += 1,
            b'"' if !hash || bytes.get(at + 1) == Some(&b'#') => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn has_word(text: &str, word: &str) -> bool {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        ![before, after].into_iter().flatten().any(|c| c.is_alphanumeric() || c == '_')
    })
}

fn look_at(folder: &Path, into: &mut Vec<String>, texts: &mut usize) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // What tests say, only developers read.
        if name.contains("test") || name == "differential.rs" {
            continue;
        }
        if path.is_dir() {
            look_at(&path, into, texts);
        } else if name.ends_with(".rs") {
            let source = fs::read_to_string(&path).unwrap();
            let mut found = literals(&source);
            // The comments of the command line are its help.
            if path.components().any(|part| part.as_os_str() == "cli") {
                let help = source.lines().enumerate().filter_map(|(at, line)| {
                    Some((at + 1, line.trim_start().strip_prefix("///")?.to_owned()))
                });
                found.extend(help);
            }
            for (line, text) in found {
                *texts += 1;
                for (word, instead) in REPLACED.iter().filter(|(word, _)| has_word(&text, word)) {
                    into.push(format!("{}:{line}: {text:?} has {word:?}; write: {instead}", path.display()));
                }
            }
        }
    }
}

#[test]
fn texts_for_people_have_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut texts) = (Vec::new(), 0);
    for folder in ["core", "inspector", "bindings"] {
        if folder == "core" {
            look_at(&root.join("core/src"), &mut found, &mut texts);
            continue;
        }
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let sources = entry.unwrap().path().join("src");
            if sources.join("lib.rs").exists() || sources.join("main.rs").exists() {
                look_at(&sources, &mut found, &mut texts);
            }
        }
    }
    assert!(texts > 3_000, "{texts} texts");
    assert!(found.is_empty(), "{} texts:\n{}", found.len(), found.join("\n"));
}

#[test]
fn texts_are_found_where_they_are() {
    let source = "let a = \"one \\\"x\\\" \\\n    two\"; // \"no\"\nlet b = '\"';\nlet c = r#\"raw \"y\"\"#;\n#[cfg(test)]\nmod tests {\n\"t\"}";
    let found = literals(source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].0, found[1].0), (1, 4));
    assert!(has_word(&found[0].1, "two") && found[1].1 == "raw \"y\"", "{found:?}");
    assert!(has_word("It stands\n in LINE.", "in line") && !has_word("inlined lines", "in line"));
}
