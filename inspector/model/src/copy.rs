//! Commands to copy: what to type to look, to verify and to break, in our own tool and in the store's.

use polylatch::inspect::LockView;

use super::connection::Connection;
use super::finding::Next;
use super::fleet::Fleet;
use super::rows::RowKey;
use super::text::{break_command, name_argument, sanitized, shell_word};

/// A command line for a POSIX shell, quoted, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyCommand {
    /// What it does, in a few words.
    pub title: String,
    /// The command line.
    pub text: String,
    /// It changes the store.
    pub changes: bool,
}

impl CopyCommand {
    fn look(title: impl Into<String>, text: String) -> Self {
        Self { title: title.into(), text, changes: false }
    }
}

/// Returns the commands for a lock, ours first. There are none for a name with invisible characters: what
/// is pasted would not be what was seen.
pub fn commands(fleet: &Fleet, key: &RowKey) -> Vec<CopyCommand> {
    let (Some(store), Some(lock)) = (fleet.store(&key.connection), fleet.lock(key)) else {
        return Vec::new();
    };
    let backend = store.snapshot().map(|snapshot| &*snapshot.backend).unwrap_or_default();
    of_lock(store.connection(), backend, lock)
}

/// Returns the command that helps: that of the most severe finding which has one, or else the one that explains the lock.
pub fn that_helps(fleet: &Fleet, key: &RowKey) -> Option<String> {
    let next = fleet.explain(key).into_iter().flat_map(|finding| finding.next);
    let mut steps = next.filter_map(|step| match step {
        Next::Run(command) => Some(command),
        Next::Do(_) => None,
    });
    steps.next().or_else(|| commands(fleet, key).into_iter().next().map(|command| command.text))
}

/// Returns the commands for a lock of a connection.
pub fn of_lock(connection: &Connection, backend: &str, lock: &LockView) -> Vec<CopyCommand> {
    if sanitized(&lock.name) != lock.name {
        return Vec::new();
    }
    let command = &connection.command;
    let mut found = vec![CopyCommand::look("show", show_command(command, lock))];
    for holder in &lock.holders {
        if let Some(token) = holder.fencing_token {
            found.push(CopyCommand {
                title: "break".into(),
                text: break_command(command, &lock.name, token, "'...'"),
                changes: true,
            });
        }
    }
    if sanitized(&connection.shown_url) != connection.shown_url {
        return found;
    }
    // What the store holds is asked for with its own tool, without writing.
    let key = lock.details.iter().find(|detail| detail.name == "key").map(|detail| detail.value.as_str());
    let key = key.filter(|key| sanitized(key) == *key);
    match (backend, key) {
        ("redlock", Some(key)) => found.extend(redlock(connection, lock, key)),
        ("redis", Some(key)) => found.extend(redis(connection, lock, key)),
        ("sqlite", _) => found.extend(sqlite(connection, lock)),
        ("consul", Some(key)) => found.extend(consul(connection, lock, key)),
        ("etcd", _) => found.extend(holders(connection, lock, "key", etcd)),
        ("zookeeper", _) => found.extend(holders(connection, lock, "node", zookeeper)),
        _ => {}
    }
    found
}

/// What the tool of a store reads of each holder, whose place in the store the detail of this name is.
fn holders(
    connection: &Connection,
    lock: &LockView,
    place: &str,
    read: fn(&str, &str) -> Option<String>,
) -> Vec<CopyCommand> {
    let url = connection.shown_url.split('?').next().unwrap_or_default();
    let places = lock.holders.iter().flat_map(|holder| &holder.details).filter(|detail| detail.name == place);
    let places = places.filter(|detail| sanitized(&detail.value) == detail.value);
    let read = places.filter_map(|detail| read(url, &detail.value));
    read.map(|text| CopyCommand::look(format!("read the {place}"), text)).collect()
}

/// `etcdctl` takes user and password from `ETCDCTL_USER`.
fn etcd(url: &str, key: &str) -> Option<String> {
    let (scheme, hosts) = match url.split_once("://")? {
        ("etcd", rest) => ("http", rest),
        ("etcd+https", rest) => ("https", rest),
        _ => return None,
    };
    let hosts: Vec<_> = members(hosts).split(',').map(|host| format!("{scheme}://{host}")).collect();
    let told = shell_word(&format!("--endpoints={}", hosts.join(",")));
    Some(format!("etcdctl {told} get {}", name_argument(key)))
}

fn zookeeper(url: &str, node: &str) -> Option<String> {
    let hosts = members(url.strip_prefix("zookeeper://")?);
    // Paths in the store are absolute, so without the chroot.
    Some(format!("zkCli.sh -server {} get {}", shell_word(hosts), name_argument(node)))
}

/// Hosts and ports without a user and a path.
fn members(rest: &str) -> &str {
    let authority = rest.split('/').next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Returns the command that explains a lock. `command` is how this program is called.
pub fn show_command(command: &str, lock: &LockView) -> String {
    let foreign = if is_foreign_key(lock) { "--foreign " } else { "" };
    format!("{command} show {foreign}{}", name_argument(&lock.name))
}

/// Says whether this is another library's lock under a key of its own, and not such data under a key of ours.
pub fn is_foreign_key(lock: &LockView) -> bool {
    lock.mode == "foreign" && lock.details.iter().any(|detail| detail.name == "library")
}

/// `redis-cli` takes the password from `REDISCLI_AUTH`.
fn redis(connection: &Connection, lock: &LockView, key: &str) -> Vec<CopyCommand> {
    let url = connection.shown_url.split('?').next().unwrap_or_default();
    let cli = match url.split_once(':') {
        Some(("redis" | "rediss", _)) => format!("redis-cli -u {}", shell_word(url)),
        Some(("redis+unix", path)) => {
            format!("redis-cli -s {}", shell_word(path.strip_prefix("//").unwrap_or(path)))
        }
        Some(("redis+cluster", hosts)) => {
            let host = hosts.trim_start_matches('/').split([',', '/']).next().unwrap_or_default();
            format!("redis-cli -c -u {}", shell_word(&format!("redis://{host}")))
        }
        // Sentinels know where the master is; their own data is not the locks'.
        _ => return Vec::new(),
    };
    let word = shell_word(key);
    let mut found = Vec::new();
    if lock.mode == "foreign" && lock.details.iter().any(|detail| detail.value == "hash") {
        found.push(CopyCommand::look("read the key", format!("{cli} HGETALL {word}")));
    } else if matches!(&*lock.mode, "mutex" | "foreign") {
        found.push(CopyCommand::look("read the key", format!("{cli} GET {word}")));
    }
    if let Some(family) = key.strip_suffix(":lock").filter(|_| lock.mode != "foreign") {
        if matches!(&*lock.mode, "rw" | "semaphore") {
            let holders = shell_word(&format!("{family}:holders"));
            found.push(CopyCommand::look(
                "read the holders",
                format!("{cli} ZRANGE {holders} 0 -1 WITHSCORES"),
            ));
        }
        if !lock.waiters.is_empty() {
            let line = shell_word(&format!("{family}:line"));
            found.push(CopyCommand::look("read the queue", format!("{cli} ZRANGE {line} 0 -1 WITHSCORES")));
        }
    }
    found.push(CopyCommand::look("read its time to live", format!("{cli} PTTL {word}")));
    found
}

/// Each node is asked by itself: that is what the votes are made of.
fn redlock(connection: &Connection, lock: &LockView, key: &str) -> Vec<CopyCommand> {
    let scheme = if connection.shown_url.starts_with("redlocks:") { "rediss" } else { "redis" };
    let ask = |node: &str| {
        let url = shell_word(&format!("{scheme}://{node}"));
        let text = format!("redis-cli -u {url} GET {}", shell_word(key));
        CopyCommand::look(format!("read the key on {node}"), text)
    };
    let plain = |node: &&str| sanitized(node) == **node;
    lock.votes.iter().map(|vote| vote.node.as_str()).filter(plain).map(ask).collect()
}

fn sqlite(connection: &Connection, lock: &LockView) -> Vec<CopyCommand> {
    let Some(path) = connection.shown_url.strip_prefix("sqlite:") else { return Vec::new() };
    let path = path.split('?').next().unwrap_or_default();
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    let path = shell_word(&path);
    let name = lock.name.replace('\'', "''");
    let select = |what: &str, table: &str, order: &str| {
        let sql = format!("SELECT {what} FROM {table} WHERE name = '{name}' ORDER BY {order}");
        format!("sqlite3 -readonly -header {path} {}", shell_word(&sql))
    };
    // Never the owner: it is the right to release.
    let lease = "fence, client, label, mode, permits, lease_ms, renewals, ends_ms";
    let mut found = vec![CopyCommand::look("read the lease", select(lease, "lease", "fence"))];
    if !lock.waiters.is_empty() {
        let waiter = "ticket, client, label, mode, permits, since_ms";
        found.push(CopyCommand::look("read the queue", select(waiter, "waiter", "ticket")));
    }
    found
}

fn consul(connection: &Connection, lock: &LockView, key: &str) -> Vec<CopyCommand> {
    let url = connection.shown_url.split('?').next().unwrap_or_default();
    let address = match url.split_once("://") {
        Some(("consul+https", host)) => format!("https://{host}"),
        Some(("consul", host)) => format!("http://{host}"),
        _ => return Vec::new(),
    };
    // The tool takes the token from CONSUL_HTTP_TOKEN.
    let address = address.trim_end_matches('/');
    let told = shell_word(&format!("-http-addr={address}"));
    let mut found = vec![CopyCommand::look(
        "read the key",
        format!("consul kv get {told} -detailed {}", name_argument(key)),
    )];
    let session = lock.holders.iter().flat_map(|holder| &holder.details).chain(&lock.details);
    if let Some(session) = session.into_iter().find(|detail| detail.name == "session") {
        // By standard input: everyone on the machine can read the arguments of a process. `printf` is none.
        let url = shell_word(&format!("{address}/v1/session/info/{}", session.value));
        found.push(CopyCommand::look(
            "read the session",
            format!("printf 'X-Consul-Token: %s' \"$CONSUL_HTTP_TOKEN\" | curl -sH @- {url}"),
        ));
    }
    found
}
