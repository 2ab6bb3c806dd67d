//! Who may import whom. Every module stands above all that it imports, decisions and protocols are free of I/O, and
//! stores do not know each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate from the ground up: each imports only those before it. What a store is opened with
/// (`backend`) stands before the stores, and the facade after them.
const FLOORS: &[&str] = &[
    "error",
    "host",
    "url_check",
    "limits",
    "mode",
    "name",
    "token",
    "params",
    "clock",
    "client_info",
    "wakeups",
    "caller_driven",
    "policy",
    "prometheus",
    "stats",
    "observe",
    "capability",
    "snapshot",
    "options",
    "address",
    "tls",
    "credential",
    "service",
    "backend",
    "records",
    "contenders",
    "rows",
    "http",
    "memory",
    "mysql",
    "postgres",
    "sqlite",
    "redis",
    "redlock",
    "consul",
    "etcd",
    "zookeeper",
    "driver",
    "registry",
    "fork",
    "resource",
    "inspect",
    "guard",
    "lock",
    "lock_all",
    "idempotency",
    "client",
    "tower",
    "blocking",
];

const STORES: [&str; 9] =
    ["consul", "etcd", "memory", "mysql", "postgres", "redis", "redlock", "sqlite", "zookeeper"];

/// What a store of several Redis servers is made of.
const NODE_PARTS: [&str; 4] = ["config", "inspect", "protocol", "transport"];

struct Source {
    /// Relative to `src`.
    place: PathBuf,
    /// Without comments and without tests.
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name == "tests" || name == "differential" || name == "patterns" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && name != "lib" {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
                let place = path.strip_prefix(&root).unwrap().to_owned();
                found.push(Source { place, text: code.join("\n") });
            }
        }
    }
    assert!(found.len() > 100, "only {} files", found.len());
    found
}

impl Source {
    fn parts(&self) -> Vec<String> {
        let place = self.place.with_extension("");
        let parts = place.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        parts.filter(|part| part != "mod").collect()
    }

    /// The store that it belongs to.
    fn store(&self) -> Option<String> {
        let parts = self.parts();
        (parts[0] == "backend").then(|| parts.get(1).cloned()).flatten()
    }

    fn floor(&self) -> String {
        self.store().unwrap_or_else(|| self.parts()[0].clone())
    }

    /// The paths of this crate that it names, as `a::b::c`.
    fn named(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, _) in self.text.match_indices("crate::") {
            let rest = &self.text[at + "crate::".len()..];
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
            found.push(rest[..end].trim_end_matches(':').to_owned());
            // Of several stores in braces, each.
            if let Some(list) = rest[end..].strip_prefix('{').filter(|_| rest.starts_with("backend::{")) {
                let list = list.split('}').next().unwrap_or_default();
                found.extend(list.split(',').map(|part| format!("backend::{}", part.trim())));
            }
        }
        found
    }
}

fn floor_of(path: &str) -> &str {
    let mut parts = path.split("::");
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("backend", Some(store)) if STORES.contains(&store) => store,
        (module, _) => module,
    }
}

#[test]
fn every_module_stands_above_what_it_imports() {
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let mut unknown = BTreeSet::new();
    for source in sources() {
        let own = source.floor();
        let Some(at) = floor(&own) else {
            unknown.insert(own);
            continue;
        };
        for path in source.named() {
            let imported = floor_of(&path);
            // Items of the crate's root are re-exports of the facade: only what stands above it may name them.
            let is_public = imported.starts_with(char::is_uppercase);
            let below = if is_public { floor("client") } else { floor(imported) };
            assert!(
                imported == own || below.is_some_and(|below| below < at),
                "{} imports {path}, which stands above {own}",
                source.place.display()
            );
        }
    }
    assert!(unknown.is_empty(), "say in FLOORS where these stand: {unknown:?}");
}

#[test]
fn a_store_imports_no_other_store() {
    for source in sources() {
        let Some(store) = source.store() else { continue };
        for path in source.named() {
            let other = floor_of(&path);
            if !STORES.contains(&other) || other == store {
                continue;
            }
            let part = path.split("::").nth(2).unwrap_or_default();
            let is_its_node = store == "redlock" && other == "redis" && NODE_PARTS.contains(&part);
            // Its configuration is re-exported by the store.
            let is_config = store == "redlock" && path == "backend::redis::RedisConfig";
            assert!(is_its_node || is_config, "{} imports {path}", source.place.display());
        }
    }
}

#[test]
fn only_the_registry_names_a_store() {
    for source in sources() {
        let own = source.floor();
        // Guards at a resource speak its protocol; only a file has to be closed before a fork.
        if STORES.contains(&own.as_str()) || ["registry", "resource", "fork"].contains(&own.as_str()) {
            continue;
        }
        for path in source.named() {
            assert!(!STORES.contains(&floor_of(&path)), "{} names {path}", source.place.display());
        }
    }
}

#[test]
fn decisions_and_protocols_do_no_io_and_read_no_clock() {
    let mut seen = 0;
    for source in sources() {
        let parts = source.parts();
        let is_protocol = parts[0] == "backend" && parts.get(2).is_some_and(|part| part == "protocol");
        if parts[0] != "policy" && !is_protocol {
            continue;
        }
        seen += 1;
        for forbidden in [
            "::now()",
            "wall_ms(",
            "wall_us(",
            "tokio",
            "std::net",
            "std::thread",
            "std::fs",
            "rusqlite",
            "hyper",
            "redis::Value",
            "redis::Cmd",
            "redis::aio",
            "async fn",
            ".await",
            "SystemClock",
        ] {
            assert!(!source.text.contains(forbidden), "{} uses {forbidden}", source.place.display());
        }
    }
    assert!(seen > 15, "only {seen} files");
}

#[test]
fn only_the_driver_the_stores_and_what_goes_on_for_a_caller_spawn() {
    for source in sources() {
        let parts = source.parts();
        if ["driver", "backend", "service", "caller_driven"].contains(&parts[0].as_str()) {
            continue;
        }
        let spawns = source.text.contains("tokio::spawn") || source.text.contains("thread::spawn");
        assert!(!spawns, "{} spawns", source.place.display());
    }
}
