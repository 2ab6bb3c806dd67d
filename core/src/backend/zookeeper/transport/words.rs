//! Commands of four letters, which tell an operator how a member is (ZooKeeper, "The Four Letter Words").

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::member::Member;

/// The longest answer that is read.
const MOST_BYTES: u64 = 64 << 10;

/// What a member answers. `None` if it cannot be reached, or answers nothing in time.
pub(crate) async fn ask(member: &Member, word: &str, limit: Duration) -> Option<String> {
    let asked = async {
        let mut stream = member.connect().await.ok()?;
        stream.write_all(word.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        let mut answer = Vec::new();
        // What was read counts, also if TLS was not ended as it should be.
        let _ = stream.take(MOST_BYTES).read_to_end(&mut answer).await;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(limit, asked).await.ok()?.filter(|answer| !answer.is_empty())
}

/// What stands behind this at the beginning of a line.
pub(crate) fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Whether the member refuses this command, by `4lw.commands.whitelist`.
pub(crate) fn is_refused(answer: &str) -> bool {
    answer.contains("is not in the whitelist")
}
