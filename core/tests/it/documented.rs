//! Every public item of the packages has a comment: Kotlin, Swift, Ruby, TypeScript and the C header by their sources. Rust has a
//! lint for it (`missing_docs`), and Python is asked at run time (`bindings/python/tests/test_package.py`).

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn sources(folder: &str, end: &str) -> Vec<PathBuf> {
    fn below(folder: &Path, end: &str, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !["target", "node_modules", ".build"].iter().any(|built| path.ends_with(built)) {
                    below(&path, end, into);
                }
            } else if path.to_string_lossy().ends_with(end) {
                into.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&root().join(folder), end, &mut found);
    found.sort();
    assert!(!found.is_empty(), "{folder} has no {end}");
    found
}

/// How one language writes declarations and comments, by the lines of a source.
struct Language {
    /// Whether a line begins a public declaration that needs a comment.
    declares: fn(&str) -> bool,
    /// Whether a line before a declaration belongs to it, and the comment is before that.
    belongs: fn(&str) -> bool,
    /// Whether a line is the end of a comment.
    comments: fn(&str) -> bool,
}

/// The declarations without a comment, and how many there are in all.
fn undocumented(source: &str, language: &Language) -> (Vec<(usize, String)>, usize) {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let (mut missing, mut all) = (Vec::new(), 0);
    for (at, _) in source.lines().enumerate().filter(|(_, line)| (language.declares)(line)) {
        let line = lines[at];
        all += 1;
        let above = lines[..at].iter().rev().find(|line| !(language.belongs)(line));
        // A line may carry its own comment.
        if !above.is_some_and(|line| (language.comments)(line)) && !(language.comments)(line) {
            missing.push((at + 1, line.to_owned()));
        }
    }
    (missing, all)
}

fn check(paths: &[PathBuf], language: &Language, at_least: usize) {
    let (mut found, mut all) = (Vec::new(), 0);
    for path in paths {
        let (missing, count) = undocumented(&fs::read_to_string(path).unwrap(), language);
        all += count;
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        found.extend(missing.into_iter().map(|(line, text)| format!("{path}:{line}: {text}")));
    }
    assert!(all >= at_least, "only {all} declarations are seen");
    assert!(found.is_empty(), "{} of {all} have no comment:\n{}", found.len(), found.join("\n"));
}

fn word(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.starts_with(&format!("{word} ")))
}

const KOTLIN: Language = Language {
    // What overrides has the comment of what it overrides; a companion has none to say.
    declares: |line| {
        let line = line.trim();
        line.starts_with("public ") && !line.contains("override ") && !line.contains("companion object")
    },
    belongs: |line| line.starts_with('@'),
    comments: |line| line.ends_with("*/"),
};

const SWIFT: Language = Language {
    declares: |line| word(line.trim(), &["public", "open"]) && !line.contains("override "),
    // A remark for developers may be between.
    belongs: |line| line.starts_with('@') || line.starts_with("// "),
    comments: |line| line.starts_with("///"),
};

const C: Language = Language {
    declares: |line| {
        // A prototype begins a line; its parameters on further lines do not.
        let is_prototype =
            line.contains(" pl_") && line.contains('(') && line.starts_with(char::is_alphanumeric);
        let is_guard = line == "#define POLYLATCH_H";
        is_prototype || word(line, &["enum", "typedef", "struct", "#define"]) && !is_guard
    },
    belongs: |line| line.starts_with("#if"),
    comments: |line| line.ends_with("*/"),
};

#[test]
fn every_public_item_of_kotlin_is_documented() {
    check(&sources("bindings/uniffi/kotlin/library/src/main", ".kt"), &KOTLIN, 150);
}

#[test]
fn every_public_item_of_swift_is_documented() {
    check(&sources("bindings/uniffi/swift/Sources/Polylatch", ".swift"), &SWIFT, 80);
}

#[test]
fn every_item_of_the_c_header_is_documented() {
    check(&sources("bindings/c/include", ".h"), &C, 60);
}

const RUBY: Language = Language {
    // What makes an object is documented with its class, and Ruby says what `inspect` is.
    declares: |line| {
        let line = line.trim();
        let is_known = line == "def inspect" || line.starts_with("def initialize");
        word(line, &["attr_reader", "attr_accessor", "attr_writer", "def", "class"]) && !is_known
    },
    belongs: |_| false,
    comments: |line| line.starts_with("# ") || line.contains(" # "),
};

/// A source of Ruby without what is not public: classes and modules that are marked so, and what is below `private`.
fn public_ruby(source: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut kept, mut hidden_until) = (String::new(), None);
    for line in source.lines() {
        let is_marked = word(line.trim(), &["class", "module"]) && line.contains("# :nodoc:");
        if hidden_until.is_none() && is_marked {
            hidden_until = Some(indent(line));
        } else if hidden_until.is_none() && line.trim() == "private" {
            hidden_until = Some(indent(line) - 2);
        } else if hidden_until == Some(indent(line)) && line.trim() == "end" {
            hidden_until = None;
        } else if hidden_until.is_none() {
            kept += line;
        }
        kept.push('\n');
    }
    kept
}

#[test]
fn every_public_item_of_ruby_is_documented() {
    let (mut found, mut all) = (Vec::new(), 0);
    for path in sources("bindings/uniffi/ruby/lib", ".rb") {
        // How Ruby waits for the native half, which has no item of the package.
        if path.ends_with("waiting.rb") {
            continue;
        }
        let (missing, count) = undocumented(&public_ruby(&fs::read_to_string(&path).unwrap()), &RUBY);
        all += count;
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        found.extend(missing.into_iter().map(|(line, text)| format!("{path}:{line}: {text}")));
    }
    assert!(all >= 100, "only {all} declarations are seen");
    assert!(found.is_empty(), "{} of {all} have no comment:\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_has_no_comment_is_found() {
    let kotlin =
        "/** One. */\n@JvmStatic\npublic fun a() = 1\n\npublic fun b() = 2\npublic override fun c() = 3";
    assert_eq!(undocumented(kotlin, &KOTLIN), (vec![(5, "public fun b() = 2".to_owned())], 2));
    let swift = "    /// One.\n    // Why.\n    public let a: Int\n    let b: Int\n    public init() {}";
    assert_eq!(undocumented(swift, &SWIFT), (vec![(5, "public init() {}".to_owned())], 2));
    let c = "/**\n * One.\n */\nint pl_a(int b,\n         struct PlC *c);\n\nint pl_d(void);";
    assert_eq!(undocumented(c, &C), (vec![(7, "int pl_d(void);".to_owned())], 2));
    let ruby = "  # One.\n  class A\n    def b; end\n    private\n\n    def c; end\n  end\n  class D # :nodoc:\n    def e; end\n  end\n";
    assert_eq!(undocumented(&public_ruby(ruby), &RUBY), (vec![(3, "def b; end".to_owned())], 2));
}
