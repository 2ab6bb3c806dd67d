//! A network of a test's own, in which the flow of established connections can be dropped by the kernel.
//!
//! The test runs itself again in a new network namespace: nothing of this machine's network is touched, and the
//! namespace is gone with the process, whatever happens.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

/// Set in the process that runs in the namespace.
const INSIDE: &str = "POLYLATCH_TEST_IN_NAMESPACE";

/// Says that a part of the tests cannot run here; `tests/run` repeats it at its end.
pub fn left_out(what: &str, why: &str) {
    eprintln!("{what} is left out: {why}");
    if let Some(path) = env::var_os("POLYLATCH_LEFT_OUT")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = writeln!(file, "{what}: {why}");
    }
}

/// Runs `work` in a network of its own, in a process that runs only this test, named in full. Reports it as left
/// out where the machine does not allow that.
///
/// Panics if the test fails there.
#[track_caller]
pub fn in_own_network(test: &str, work: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return work();
    }
    let probe = "ip link set lo up && nft add table inet polylatch";
    if let Err(why) = succeeds(inside().args(["sh", "-c", probe])) {
        return left_out(test, &format!("no network namespace with nftables here ({why})"));
    }
    let program = env::current_exe().expect("a test knows its program");
    let script = "ip link set lo up && exec \"$0\" \"$@\"";
    let mut command = inside();
    command.args(["sh", "-c", script]).arg(program).args(["--exact", test, "--nocapture"]).env(INSIDE, "yes");
    let status = command.status().expect("unshare has just worked");
    assert!(status.success(), "in a network of its own: {status}");
}

/// Drops every packet of the connections to a local port that are established now, in both directions and for
/// good. Returns how many there are.
#[track_caller]
pub fn drop_established(port: u16) -> usize {
    assert!(env::var_os(INSIDE).is_some(), "only in a network of its own");
    let peers = peers_of(port);
    if peers.is_empty() {
        return 0;
    }
    let list = peers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let rules = format!(
        "add table inet polylatch\n\
         add chain inet polylatch input {{ type filter hook input priority 0; }}\n\
         add rule inet polylatch input tcp dport {port} tcp sport {{ {list} }} drop\n\
         add rule inet polylatch input tcp sport {port} tcp dport {{ {list} }} drop\n"
    );
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    let mut nft = command.spawn().expect("nft runs");
    nft.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("nft reads");
    assert!(nft.wait().expect("nft ends").success(), "{rules}");
    peers.len()
}

fn inside() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net"]);
    command
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// The other ends of the established connections whose local port this is, over IPv4.
fn peers_of(port: u16) -> Vec<u16> {
    let table = fs::read_to_string("/proc/self/net/tcp").expect("this is Linux");
    let of_line = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let [local, peer, state] = [fields.next()?, fields.next()?, fields.next()?];
        let number = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
        (state == "01" && number(local)? == port).then(|| number(peer)).flatten()
    };
    table.lines().filter_map(of_line).collect()
}
