//! What a node of a cluster is asked besides what every server is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::native::timers::in_time;
use crate::backend::redis::transport::stream::Stream;
use crate::error::Result;

impl NativePort {
    /// The most replicas that this server is known to have had.
    pub(crate) fn most_replicas(&self) -> u32 {
        self.0.most_replicas.load(Ordering::Relaxed)
    }

    /// This server is to have so many replicas as soon as they have found it.
    pub(crate) fn expect_replicas(&self, count: u32) {
        self.0.most_replicas.fetch_max(count, Ordering::Relaxed);
    }

    /// A connection of its own for a subscriber that speaks for itself: open and logged in.
    pub(crate) async fn subscriber(&self) -> Result<Box<dyn Stream>> {
        let shared = &self.0;
        let opening = async {
            let mut stream = shared.way.open().await?.stream;
            let login = shared.login.now();
            if let Some(password) = login.password() {
                let mut words = vec!["AUTH"];
                words.extend(login.username());
                words.push(password);
                log_in(&mut stream, &words).await.map_err(|error| shared.login_failed(error))?;
            }
            Ok(stream)
        };
        in_time(&shared.runtime, shared.timeout, opening).await.unwrap_or_else(|| Err(shared.silent()))
    }

    /// The client's own runtime.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// The time limit of a request.
    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }
}

/// Says who it is on a connection that nothing else was said on.
async fn log_in(stream: &mut Box<dyn Stream>, words: &[&str]) -> redis::RedisResult<()> {
    let mut command = Cmd::new();
    command.arg(words);
    stream.write_all(&command.get_packed_command()).await?;
    stream.flush().await?;
    // The answer is one line, and nothing can follow it before the next question.
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
    }
    match redis::parse_redis_value(&line)? {
        Value::ServerError(error) => Err(error.into()),
        _ => Ok(()),
    }
}
