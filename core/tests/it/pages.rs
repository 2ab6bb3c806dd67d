//! The pages that people read: their links lead somewhere, and the README stays short.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All pages of the project, without what was built or installed.
fn pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.')
                && !["target", "node_modules", "vendor", "build", "dist"].contains(&&*name)
            {
                pages(&path, into);
            }
        } else if name.ends_with(".md") {
            into.push(path);
        }
    }
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut code = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    text.lines().filter(outside).collect()
}

/// The targets of `[text](target)`, without code spans.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Inside a code span a bracket is no link; every second piece between backticks is one.
    let without_code: String = prose(text).join("\n").split('`').step_by(2).collect::<Vec<_>>().join("x");
    let mut rest = &*without_code;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let end = rest.find(')').expect("the end of a link");
        found.push(rest[..end].to_owned());
    }
    found
}

/// The anchors of a page, as they are made from its headings.
fn anchors(text: &str) -> Vec<String> {
    let anchor = |line: &str| {
        let heading = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
    };
    prose(text).into_iter().filter_map(anchor).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut all = Vec::new();
    pages(root(), &mut all);
    assert!(all.len() > 15, "{all:?}");
    let (mut looked_at, mut broken) = (0, Vec::new());
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        for link in
            links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            // Without a path and a file name it is an item of the code, which rustdoc checks.
            if path.contains("::") {
                continue;
            }
            looked_at += 1;
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).iter().any(|known| known == anchor),
                Err(_) => anchor.is_empty() && target.exists(),
            };
            if !leads {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(looked_at > 50, "{looked_at} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let prose = prose(&readme);
    let words: usize = prose.iter().map(|line| line.split_whitespace().count()).sum();
    assert!(words <= 800, "{words} words");
    for line in prose {
        if line.starts_with('|') {
            let cell = line.split('|').find(|cell| cell.split_whitespace().count() > 12);
            assert_eq!(cell, None, "more than 12 words");
        } else {
            assert!(line.chars().count() <= 110, "more than 110 columns: {line}");
        }
    }
}

/// The table beside other libraries names the versions that the benchmarks install.
#[test]
fn the_readme_names_the_versions_that_are_measured() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let python = fs::read_to_string(root().join("bindings/python/bench/requirements.txt")).unwrap();
    let redis_py = python.lines().find_map(|line| line.strip_prefix("redis==")).expect("redis-py");
    assert!(readme.contains(&format!("redis-py {redis_py}")), "redis-py {redis_py}");
    let node = fs::read_to_string(root().join("bindings/node/bench/package.json")).unwrap();
    let redlock =
        node.split("\"redlock\": \"").nth(1).and_then(|rest| rest.split('"').next()).expect("redlock");
    assert!(readme.contains(&format!("redlock {redlock}")), "redlock {redlock}");
}

/// Pages are read in columns and in windows: no long lines, and no paragraphs in tables. What is stored has tables of its own.
#[test]
fn the_guide_has_short_lines_and_cells() {
    let mut all = Vec::new();
    pages(&root().join("core/docs"), &mut all);
    pages(&root().join("bindings"), &mut all);
    let mut long = Vec::new();
    for page in all.iter().filter(|page| !page.ends_with("wire-format.md") && !page.ends_with("cli.md")) {
        for line in prose(&fs::read_to_string(page).unwrap()) {
            let name = page.strip_prefix(root()).unwrap().display();
            if !line.starts_with('|') && line.chars().count() > 130 {
                long.push(format!("{name}: {line}"));
            }
            let cells =
                line.split('|').filter(|cell| line.starts_with('|') && cell.split_whitespace().count() > 25);
            long.extend(cells.map(|cell| format!("{name}: {cell}")));
        }
    }
    assert!(
        long.is_empty(),
        "{} lines of more than 130 columns, or cells of more than 25 words: {long:#?}",
        long.len()
    );
}

#[test]
fn the_page_of_reliability_counts_the_promises() {
    let rows = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let rows = rows.lines().filter(|line| line.starts_with("| I")).count();
    assert!(docs("reliability.md").contains(&format!("promises, I1 to I{rows}, ")), "there are {rows}");
}

#[test]
fn every_page_beside_the_code_is_in_the_guide() {
    let guide = fs::read_to_string(root().join("core/docs/site/mkdocs.yml")).unwrap();
    let mut all = Vec::new();
    pages(&root().join("core/src/backend"), &mut all);
    pages(&root().join("bindings"), &mut all);
    assert!(all.len() > 10, "{all:?}");
    for page in all {
        let path = page.strip_prefix(root()).unwrap().display().to_string();
        assert!(guide.contains(&format!(": {path}\n")), "{path} is not in core/docs/site/mkdocs.yml");
    }
}

#[test]
fn every_page_with_rust_is_compiled() {
    let lib = fs::read_to_string(root().join("core/src/lib.rs")).unwrap();
    let (mut all, folder) = (Vec::new(), root().join("core/docs"));
    pages(&folder, &mut all);
    for page in all.iter().filter(|page| fs::read_to_string(page).unwrap().contains("\n```rust")) {
        let path = page.strip_prefix(&folder).unwrap().display().to_string();
        assert!(lib.contains(&format!("\"../docs/{path}\"")), "core/src/lib.rs does not compile {path}");
    }
}

/// Its lines without what indents them, as they stand in a file of tests, where a first line names the store of the test.
fn lines_of(text: &str) -> String {
    let text =
        text.replace("(url: \"redis://localhost\"", "(url: url").replace("(\"redis://localhost\"", "(url");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The blocks of a language on a page.
fn programs<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("\n```{language}\n");
    text.split(&fence).skip(1).map(|block| block.split_once("\n```").unwrap().0).collect()
}

/// The pages of the packages and of the guide, with their names.
fn pages_with_programs() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in ["bindings", "core/docs", "core/src"] {
        pages(&root().join(folder), &mut all);
    }
    let named = |page: PathBuf| {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(&page).unwrap())
    };
    all.into_iter().map(named).collect()
}

/// The programs of these languages stand once more in their tests, which compile and run them. Those of the other languages are
/// read from the page itself.
#[test]
fn the_programs_of_kotlin_java_and_swift_stand_in_their_tests() {
    let kotlin = "bindings/uniffi/kotlin/tests/src/test";
    let swift = "bindings/uniffi/swift/Tests/PolylatchTests";
    let pages = pages_with_programs();
    for (language, tests) in [
        ("kotlin", vec![format!("{kotlin}/kotlin/polylatch/PageTest.kt")]),
        ("java", vec![format!("{kotlin}/java/polylatch/PageInJavaTest.java")]),
        (
            "swift",
            ["PageTests", "IdempotencyTests", "TransactionsTests"]
                .map(|name| format!("{swift}/{name}.swift"))
                .into(),
        ),
    ] {
        let read = |path: &String| lines_of(&fs::read_to_string(root().join(path)).unwrap()) + "\n";
        let tests: String = tests.iter().map(read).collect();
        let mut compared = 0;
        for (page, text) in &pages {
            for program in programs(text, language) {
                let program = program.trim_start_matches("import Polylatch\n");
                assert!(
                    tests.contains(&lines_of(program)),
                    "{page}: no test runs this as it stands there:\n{program}"
                );
                compared += 1;
            }
        }
        assert!(compared > 2, "{language}: {compared} programs");
    }
}

/// Where programs of a language may stand, because there a test runs all of them. Rust's are documentation tests; `sh` on
/// the page of a package says how to build it.
#[test]
fn no_page_has_a_program_that_no_test_reads() {
    let read_by_tests = [
        ("bindings/c/", "c sh"),
        ("bindings/node/", "js ts sh"),
        ("bindings/python/", "python sh"),
        ("bindings/uniffi/kotlin/", "kotlin java"),
        ("bindings/uniffi/ruby/", "ruby"),
        ("bindings/uniffi/swift/", "swift"),
        ("bindings/wasm/", "js sh"),
        ("core/docs/", "js python kotlin java swift ruby rust"),
        ("core/docs/coming-from/", "sh"),
        ("core/docs/languages/", "sh"),
        ("core/docs/recipes/", "sh"),
        // Its commands are compared with `cli.md`.
        ("core/docs/operating.md", "sh"),
        ("core/src/", "rust"),
        // The rules of `consul_access`.
        ("core/src/backend/consul/", "hcl"),
        ("", "text json"),
    ];
    let mut unread = Vec::new();
    for (page, text) in pages_with_programs() {
        let known = |language: &str| {
            let of = |(folder, languages): &(&str, &str)| {
                page.starts_with(folder) && languages.split(' ').any(|known| known == language)
            };
            read_by_tests.iter().any(of)
        };
        let mut within = false;
        for line in text.lines() {
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            within = !within;
            if within && !known(language.split(',').next().unwrap_or_default()) {
                unread.push(format!("{page}: {line}"));
            }
        }
    }
    assert!(unread.is_empty(), "{unread:#?}");
}

/// Commands that the guide's own tests do not run, because they wait for a terminal or until they are ended, are at least those of
/// `cli.md`, with its options and all that it requires. Another test holds that page to what `--help` prints.
#[test]
fn the_commands_of_the_pages_are_complete() {
    let help = docs("cli.md");
    let mut all = pages_with_programs();
    all.push(("README.md".to_owned(), fs::read_to_string(root().join("README.md")).unwrap()));
    let (mut compared, mut wrong) = (0, Vec::new());
    for (page, text) in &all {
        for line in programs(text, "sh").into_iter().flat_map(str::lines) {
            let Some(words) = line.strip_prefix("polylatch ") else { continue };
            let words = words.split(" #").next().unwrap().split(" -- ").next().unwrap();
            let words: Vec<_> = words.split_whitespace().collect();
            // `idem run` has a section of its own.
            let section = |count: usize| {
                let title = format!("\n## polylatch {}\n", words.get(..count)?.join(" "));
                Some(help.split_once(&title)?.1.split("\n## ").next().unwrap())
            };
            let section = section(2).or_else(|| section(1)).unwrap_or_else(|| panic!("{page}: {line}"));
            let usage = section.lines().find(|line| line.starts_with("Usage: ")).expect("a usage");
            let known: Vec<_> = section.split(|c: char| c != '-' && !c.is_alphanumeric()).collect();
            let options = |words: &str| -> Vec<String> {
                words
                    .split(' ')
                    .filter(|word| word.starts_with("--") && word.len() > 2)
                    .map(str::to_owned)
                    .collect()
            };
            let given = options(&words.join(" "));
            let unknown = given.iter().find(|option| !known.contains(&option.as_str()));
            let required = options(usage);
            let missing = required.iter().find(|option| !given.contains(option));
            if unknown.or(missing).is_some() {
                wrong.push(format!("{page}: {line}: unknown {unknown:?}, missing {missing:?}"));
            }
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} commands");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The text of a page below `core/docs`.
fn docs(name: &str) -> String {
    fs::read_to_string(root().join("core/docs").join(name)).unwrap()
}

#[test]
fn every_error_code_has_its_cause_and_its_remedy_on_the_page() {
    let page = docs("errors.md");
    for kind in polylatch::ErrorKind::ALL {
        let code = kind.code();
        let section = page.split(&format!("\n### `{code}`\n")).nth(1).unwrap_or_else(|| panic!("no {code}"));
        assert!(section.split("\n#").next().unwrap().trim().len() > 20, "{code} is not explained");
        assert!(page.contains(&format!("| `{}` |", kind.retry().code())), "no {}", kind.retry().code());
    }
    let table = fs::read_to_string(root().join("tests/conformance/errors.json")).unwrap();
    let of_work = table.split("\"idempotency_errors\"").nth(1).unwrap();
    let codes: Vec<_> =
        of_work.split("\"code\": \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(codes.len() >= 5, "{codes:?}");
    for code in codes {
        let section = page.split(&format!("\n### `{code}`\n")).nth(1).unwrap_or_else(|| panic!("no {code}"));
        assert!(section.split("\n#").next().unwrap().trim().len() > 20, "{code} is not explained");
    }
    for reason in polylatch::LostReason::ALL {
        assert!(page.contains(&format!("| `{}` |", reason.code())), "no {}", reason.code());
    }
}

#[test]
fn every_finding_is_in_the_catalogue() {
    let page = docs("findings.md");
    let rules = fs::read_to_string(root().join("inspector/model/src/verdict.rs")).unwrap();
    let codes: Vec<_> =
        rules.lines().filter_map(|line| line.split_once(" => \"")?.1.strip_suffix("\",")).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in &codes {
        assert!(page.contains(&format!("\n| `{code}` |")), "no {code}");
    }
    let told = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(told, codes.len(), "the catalogue has a finding that the rules do not have");
}
