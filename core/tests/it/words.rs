//! What people read is in the words of the field: no string of the product, no page, no public comment and no scenario has
//! a word that the glossary replaces.

use std::fs;
use std::path::{Path, PathBuf};

/// Each with what is written instead.
const REPLACED: &[(&str, &str)] = &[
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
    ("steps down", "downgrades"),
    ("steps up", "upgrades"),
    ("stand in", "are in, are queued"),
    ("stood in", "was in, was queued"),
    ("the line", "the queue"),
    ("anybody", "a client, any client"),
    ("someone", "a client, the operator"),
    ("signs of life", "heartbeats"),
    ("silent waiter", "stale waiter"),
    ("silent waiters", "stale waiters"),
    ("is told", "is notified, receives, reports"),
    ("are told", "are notified, receive, report"),
    ("was told", "was notified, received, reported"),
    ("be told", "be notified, receive, be distinguished"),
    ("for people", "for display"),
    ("errand", "caller-driven I/O"),
    ("give it back", "release it"),
    ("gives it back", "releases it"),
    ("giving back", "releasing"),
    ("giving it back", "releasing it"),
    ("giving them back", "releasing them"),
    ("sit out", "do not vote until"),
    ("wait out", "do not vote until"),
    ("waited out", "nothing is granted until"),
    ("stepped down", "downgraded"),
    ("stepped up", "upgraded"),
    ("stepping down", "downgrading"),
    ("stepping up", "upgrading"),
    ("way in which", "mode"),
    ("ways in which", "modes"),
    ("letters from", "messages from"),
    ("glances", "probes"),
    ("mending", "fixing"),
    ("errands", "caller-driven I/O"),
    ("harmless", "sanitized, safe"),
    ("a look", "a snapshot"),
    ("at a glance", "in one view"),
    ("picture", "snapshot, view"),
    ("the reading", "the snapshot"),
    ("each reading", "each snapshot"),
    ("in sight", "visible"),
    ("out of sight", "not visible"),
    ("dear", "expensive"),
    ("dearer", "more expensive"),
    ("been told", "been notified"),
    ("were told", "were notified"),
    ("brings its connection", "host-provided connection"),
    ("bring along", "host-provided"),
    ("brought along", "host-provided"),
    ("others changed", "other clients changed"),
    ("others still", "other clients still"),
    ("others will", "other clients will"),
    ("others cannot", "other clients cannot"),
    ("others can", "other clients can"),
    ("by others", "by other clients"),
    ("to others", "to other clients"),
    ("a master", "a primary"),
    ("the master", "the primary"),
    ("its masters", "its primaries"),
    ("is master", "is the primary"),
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

/// A text as it is searched: without ends of lines, in small letters.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The words of a text that are replaced, each with what is written instead.
fn replaced(text: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let text = plain(text);
    REPLACED.iter().filter(move |(word, _)| has_word(&text, word))
}

fn has_word(text: &str, word: &str) -> bool {
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
                for (word, instead) in replaced(&text) {
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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The files below a folder whose names end so, without tests and what was built.
fn files(folder: &str, ends: &[&str]) -> Vec<PathBuf> {
    fn below(folder: &Path, ends: &[&str], into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_built =
                ["target", "node_modules", "build", "vendor"].contains(&&*name) || name.starts_with('.');
            if path.is_dir() && !is_built && !name.to_lowercase().contains("test") {
                below(&path, ends, into);
            } else if ends.iter().any(|end| name.ends_with(end)) && !name.contains("test") {
                into.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&root().join(folder), ends, &mut found);
    found.sort();
    assert!(!found.is_empty(), "{folder} has no file {ends:?}");
    found
}

/// What of a source its readers see as documentation.
#[derive(Clone, Copy)]
enum Kind {
    /// All but blocks of code.
    Page,
    /// `///` and `//!`, before the tests of the file.
    Slashes,
    /// `#` at the beginning of a line.
    Hashes,
    /// Between `/**` and `*/`.
    Starred,
    /// Between triple quotes.
    Quoted,
    /// What is quoted in a source of a language with `//` or `#` comments: its messages.
    Strings,
    /// All of it.
    Whole,
}

/// The documentation in a source, with the rest as empty lines.
fn documentation(source: &str, kind: Kind) -> String {
    let lines = |prefixes: &[&str], source: &str| -> String {
        let kept = |line: &str| {
            let line = line.trim_start();
            let text = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix));
            text.unwrap_or_default().trim().to_owned() + "\n"
        };
        source.lines().map(kept).collect()
    };
    let between = |begin: &str, end: &str| -> String {
        let (mut kept, mut rest) = (String::new(), source);
        while let Some((before, inside)) = rest.split_once(begin) {
            let (text, after) = inside.split_once(end).unwrap_or((inside, ""));
            kept += &"\n".repeat(before.matches('\n').count());
            kept += &text
                .lines()
                .map(|line| line.trim_start_matches([' ', '*']).trim_end())
                .collect::<Vec<_>>()
                .join("\n");
            rest = after;
        }
        kept
    };
    match kind {
        Kind::Slashes => {
            lines(&["///", "//!"], source.split("#[cfg(test)]\nmod ").next().unwrap_or_default())
        }
        Kind::Hashes => lines(&["#"], source),
        Kind::Starred => between("/**", "*/"),
        Kind::Quoted => between("\"\"\"", "\"\"\""),
        Kind::Strings => source.lines().map(|line| strings(line) + "\n").collect(),
        Kind::Whole => source.to_owned(),
        Kind::Page => {
            let mut code = false;
            let kept = |line: &str| {
                let fence = line.trim_start().starts_with("```");
                code ^= fence;
                if code || fence { "\n".to_owned() } else { line.to_owned() + "\n" }
            };
            source.lines().map(kept).collect()
        }
    }
}

/// What a line has between quotes of one kind, without lines that are comments. A text over several lines is not seen.
fn strings(line: &str) -> String {
    let mut found = String::new();
    let mut rest = line.trim_start();
    if ["//", "#", "*", "/*"].iter().any(|comment| rest.starts_with(comment)) {
        return found;
    }
    while let Some(begin) = rest.find(['"', '\'', '`']) {
        let quote = &rest[begin..=begin];
        let (text, after) = rest[begin + 1..].split_once(quote).unwrap_or((&rest[begin + 1..], ""));
        found += text;
        found.push(' ');
        rest = after;
    }
    found
}

/// Where words stand that are replaced; a phrase may go over the end of a line.
fn replaced_words(text: &str, place: &str, into: &mut Vec<String>) {
    // Paragraphs, so that the line is near and one fault is named once.
    let mut line = 1;
    for paragraph in text.split("\n\n") {
        for (word, instead) in replaced(paragraph) {
            into.push(format!("{place}:{line}: {word:?}; write: {instead}"));
        }
        line += paragraph.matches('\n').count() + 2;
    }
}

#[test]
fn pages_and_public_comments_have_the_words_of_the_field() {
    let mut all: Vec<(PathBuf, Kind)> = Vec::new();
    let mut take = |paths: Vec<PathBuf>, kind| all.extend(paths.into_iter().map(|path| (path, kind)));
    take(
        ["README.md", "ARCHITECTURE.md", "SECURITY.md"].iter().map(|name| root().join(name)).collect(),
        Kind::Page,
    );
    for folder in ["core/docs", "core/src", "bindings", "examples", "inspector"] {
        take(files(folder, &[".md"]), Kind::Page);
    }
    // What is private here is the business of its developers.
    let private =
        ["backend", "driver", "caller_driven", "policy"].map(|name| root().join("core/src").join(name));
    let public = |path: &PathBuf| !private.iter().any(|folder| path.starts_with(folder));
    take(files("core/src", &[".rs"]).into_iter().filter(public).collect(), Kind::Slashes);
    take(vec![root().join("core/src/policy/fencing.rs")], Kind::Slashes);
    for folder in ["bindings/python/src", "bindings/c/src", "bindings/uniffi/src"] {
        take(files(folder, &[".rs"]), Kind::Slashes);
    }
    take(files("bindings/python/python", &[".py", ".pyi"]), Kind::Quoted);
    for folder in ["bindings/javascript/src", "bindings/node/js", "bindings/wasm/js"] {
        take(files(folder, &[".ts", ".cts", ".mts", ".cjs", ".mjs"]), Kind::Starred);
    }
    take(files("bindings/uniffi/kotlin/library", &[".kt"]), Kind::Starred);
    take(files("bindings/c/include", &[".h"]), Kind::Starred);
    take(files("bindings/uniffi/ruby/lib", &[".rb"]), Kind::Hashes);
    take(files("bindings/uniffi/swift/Sources", &[".swift"]), Kind::Slashes);
    // What the packages themselves say to their callers.
    for (folder, ends) in [
        ("bindings/python/python", &[".py"][..]),
        ("bindings/javascript/src", &[".ts"]),
        ("bindings/node/js", &[".cjs", ".mjs"]),
        ("bindings/wasm/js", &[".mjs"]),
        ("bindings/uniffi/kotlin/library", &[".kt"]),
        ("bindings/uniffi/ruby/lib", &[".rb"]),
        ("bindings/uniffi/swift/Sources", &[".swift"]),
    ] {
        take(files(folder, ends), Kind::Strings);
    }
    for folder in ["core/web/src", "inspector/model/src", "inspector/host/src"] {
        take(files(folder, &[".rs"]), Kind::Slashes);
    }
    // Examples are read as a whole.
    let programs = [".rs", ".py", ".mjs", ".kt", ".java", ".rb", ".go", ".php", ".cpp", ".html"];
    take(files("examples", &programs), Kind::Whole);
    take(files("inspector/grafana", &[".json"]), Kind::Whole);
    assert!(all.len() > 200, "{} files", all.len());

    let mut found = Vec::new();
    for (path, kind) in &all {
        let text = documentation(&fs::read_to_string(path).unwrap(), *kind);
        replaced_words(&text, &path.strip_prefix(root()).unwrap().display().to_string(), &mut found);
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

/// Redis' own word is said once, where the page of that store begins.
#[test]
fn pages_say_primary() {
    let mut found = Vec::new();
    for path in files("core/docs", &[".md"]).into_iter().chain(files("core/src/backend", &["docs.md"])) {
        let text = documentation(&fs::read_to_string(&path).unwrap(), Kind::Page);
        let prose: String = text.split('`').step_by(2).collect();
        found.extend(
            prose
                .lines()
                .filter(|line| has_word(&plain(line), "master") || has_word(&plain(line), "masters"))
                .map(str::to_owned),
        );
    }
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("Redis says master"), "{found:?}");
}

#[test]
fn scenarios_have_the_words_of_the_field() {
    let mut found = Vec::new();
    for path in files("tests/conformance/scenarios", &[".json"]) {
        let name = path.file_stem().unwrap().to_string_lossy().replace('_', " ");
        let text = fs::read_to_string(&path).unwrap();
        let about = text.lines().find(|line| line.contains("\"about\"")).expect("what it is about");
        replaced_words(&format!("{name}\n{about}"), &path.display().to_string(), &mut found);
    }
    let skips = root().join("tests/conformance/skips.json");
    replaced_words(&fs::read_to_string(skips).unwrap(), "skips.json", &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

/// What contributors are asked not to write is what is searched for: a word itself, or a phrase with it if the word has another
/// meaning too.
#[test]
fn the_glossary_is_what_is_searched_for() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let table = page.split("\n| not | but |\n").nth(1).expect("the glossary");
    let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let left = row.split('|').nth(1).unwrap().split(" (").next().unwrap().trim();
        for word in left.split(", ") {
            let is_searched =
                REPLACED.iter().any(|(phrase, _)| phrase.contains(word) || has_word(word, phrase));
            assert!(
                is_searched,
                "{word:?} is replaced in CONTRIBUTING.md, and REPLACED has no phrase for it"
            );
        }
    }
}

#[test]
fn documentation_is_found_where_it_is() {
    let rust = "/// One.\nfn a() {} // no\n//! Two\n#[cfg(test)]\nmod tests {\n/// no\n}";
    assert_eq!(documentation(rust, Kind::Slashes), "One.\n\nTwo\n");
    assert_eq!(documentation("a\n/** One\n * two. */ b", Kind::Starred), "\nOne\ntwo.");
    assert_eq!(documentation("x = 1\n\"\"\"One.\"\"\"\ny", Kind::Quoted), "\nOne.");
    assert_eq!(documentation("  say 'one' + \"two\"; // don't\n# 'no'", Kind::Strings), "one two t \n\n");
    assert_eq!(documentation("One\n```sh\nno\n```\ntwo", Kind::Page), "One\n\n\n\ntwo\n");
    let mut found = Vec::new();
    replaced_words("A caller.\n\nIt stands\nin line.", "page", &mut found);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("page:3: \"in line\""), "{found:?}");
}

#[test]
fn texts_are_found_where_they_are() {
    let source = "let a = \"one \\\"x\\\" \\\n    two\"; // \"no\"\nlet b = '\"';\nlet c = r#\"raw \"y\"\"#;\n#[cfg(test)]\nmod tests {\n\"t\"}";
    let found = literals(source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].0, found[1].0), (1, 4));
    assert!(has_word(&found[0].1, "two") && found[1].1 == "raw \"y\"", "{found:?}");
    assert!(has_word(&plain("It stands\n in LINE."), "in line") && !has_word("inlined lines", "in line"));
}
