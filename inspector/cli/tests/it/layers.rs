//! Which crate of the inspector may know which: the model knows no screen, no runtime and no file, and the two programs
//! do not know each other.

use std::fs;
use std::path::{Path, PathBuf};

/// A crate, what its manifest must not name, and what its code must not name.
const RULES: [(&str, &[&str], &[&str]); 4] = [
    (
        "model",
        &[
            "polylatch-inspector-host",
            "polylatch-cli",
            "polylatch-inspector\"",
            "egui",
            "eframe",
            "ratatui",
            "crossterm",
            "clap",
            "tokio",
            "rustix",
            "libc",
        ],
        &[
            "host::",
            "egui",
            "tokio::",
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "SystemTime::now",
            "Instant::now",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "host",
        &["polylatch-cli", "polylatch-inspector\"", "egui", "eframe", "ratatui", "crossterm", "clap"],
        &["egui", "ratatui", "crossterm"],
    ),
    ("cli", &["polylatch-inspector\"", "egui", "eframe"], &["egui", "polylatch_inspector::"]),
    ("window", &["polylatch-cli", "ratatui", "crossterm"], &["polylatch_cli", "ratatui", "crossterm"]),
];

fn inspector() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Keys and packages of all dependency tables, those for tests included; comments are left out.
fn dependencies(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().map(|line| line.split('#').next().unwrap_or_default());
    let tables = lines.scan(false, |inside, line| {
        if let Some(title) = line.trim().strip_prefix('[') {
            *inside = title.contains("dependencies");
        }
        Some((*inside, line))
    });
    tables.filter(|(inside, _)| *inside).map(|(_, line)| line).collect()
}

/// The code of a crate, file by file, without comments and without its tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name.ends_with("tests") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                found.push((path, code.join("\n")));
            }
        }
    }
    found
}

#[test]
fn the_model_knows_no_screen_and_the_programs_not_each_other() {
    let mut broken = Vec::new();
    for (name, packages, words) in RULES {
        let folder = inspector().join(name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let dependencies = dependencies(&manifest);
        assert!(dependencies.len() > 3, "{name}: its dependencies were not found");
        for package in packages {
            let used = |line: &&str| {
                let quoted = format!("\"{package}");
                line.starts_with(package.trim_end_matches('"')) && !package.ends_with('"')
                    || line.contains(&quoted)
            };
            broken
                .extend(dependencies.iter().filter(|line| used(line)).map(|line| format!("{name}: {line}")));
        }
        let sources = sources(&folder.join("src"));
        assert!(sources.len() > 5, "{name}: only {} files", sources.len());
        for (path, code) in sources {
            let named = words.iter().filter(|word| code.contains(**word));
            broken.extend(named.map(|word| format!("{name}: {} names {word}", path.display())));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn verdicts_are_reached_without_words() {
    let model = inspector().join("model/src");
    for (file, above) in [
        ("verdict.rs", &["super::"][..]),
        ("beat.rs", &["evidence", "judge", "explain", "finding::", "rows", "store", "fleet"]),
        ("evidence.rs", &["judge", "explain", "finding::", "rows", "store::", "fleet"]),
        ("judge.rs", &["explain::", "finding::", "rows", "store::", "fleet"]),
        ("explain.rs", &["rows", "store::", "fleet"]),
        ("rows.rs", &["store::", "fleet::"]),
        ("store.rs", &["fleet"]),
    ] {
        let text = fs::read_to_string(model.join(file)).unwrap();
        let imports: Vec<_> =
            text.lines().filter(|line| line.trim_start().starts_with("use super::")).collect();
        for word in above {
            let found = imports.iter().find(|line| line.contains(word));
            assert!(found.is_none(), "{file} imports what stands above it: {found:?}");
        }
    }
}
