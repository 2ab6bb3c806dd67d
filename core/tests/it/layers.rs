//! Who may import whom: decisions stay free of I/O, backends do not know each other.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "nothing below {below}");
    found
}

#[test]
fn the_policy_imports_plain_values_only() {
    for (path, text) in sources("policy") {
        for line in text.lines().filter(|line| line.trim_start().starts_with("use ")) {
            let allowed = [
                "std::",
                "crate::clock::BootInstant",
                "crate::error::",
                "crate::mode::Mode",
                "crate::policy::",
                "super::",
            ];
            let what = line.trim_start().trim_start_matches("use ");
            assert!(allowed.iter().any(|start| what.starts_with(start)), "{}: {line}", path.display());
        }
        for forbidden in ["Instant::now", "SystemTime::now", "tokio", "std::net", "std::thread"] {
            assert!(!text.contains(forbidden), "{} uses {forbidden}", path.display());
        }
    }
}

#[test]
fn a_backend_imports_no_other_backend_and_not_the_facade() {
    for backend in ["consul", "memory", "redis", "redlock", "sqlite"] {
        for (path, text) in sources(&format!("backend/{backend}")) {
            // The differential test compares a backend with the specification; that is its purpose.
            if path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("differential")) {
                continue;
            }
            for other in ["consul", "memory", "redis", "redlock", "sqlite"]
                .into_iter()
                .filter(|other| *other != backend)
            {
                // A store of several servers is made of connections to single ones.
                let is_its_node = backend == "redlock" && other == "redis";
                let imports = text.contains(&format!("backend::{other}::"))
                    || text.contains(&format!("backend::{other};"));
                assert!(is_its_node || !imports, "{} imports {other}", path.display());
            }
            for upper in ["client::", "driver::", "guard::", "lock::"] {
                assert!(!text.contains(&format!("crate::{upper}")), "{} imports {upper}", path.display());
            }
        }
    }
}

#[test]
fn only_the_driver_and_the_backends_spawn() {
    for (path, text) in sources("") {
        let place = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
        if place.starts_with("driver") || place.starts_with("backend") || place.ends_with("service.rs") {
            continue;
        }
        // What a test starts beside the code is the test's.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        assert!(!text.contains("tokio::spawn") && !text.contains("thread::spawn"), "{}", path.display());
    }
}
