//! What the lock of the demo protects: a sum behind a socket that checks fencing tokens itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylatch::FencingToken;
use polylatch::resource::http::{Rejection, RequestGate};
use polylatch::resource::{Refused, Sequencer};
use tokio::sync::mpsc::UnboundedSender;

use super::story::Report;

const LONGEST_REQUEST: u64 = 4096;

/// Neither side waits longer for the other.
const PATIENCE: Duration = Duration::from_secs(2);

fn socket(folder: &Path) -> PathBuf {
    folder.join("ledger.sock")
}

/// Serves the ledger on a thread of its own until the process ends; tells every write.
pub(super) fn serve(folder: &Path, lock: String, told: UnboundedSender<Report>) -> io::Result<()> {
    let listener = UnixListener::bind(socket(folder))?;
    std::thread::spawn(move || {
        let gate = RequestGate::new();
        let mut sum = 0;
        for stream in listener.incoming().flatten() {
            // A writer that hangs up is its own problem.
            let _ = answer(&stream, &gate, &lock, &mut sum, &told);
        }
    });
    Ok(())
}

fn answer(
    mut stream: &UnixStream,
    gate: &RequestGate,
    lock: &str,
    sum: &mut u64,
    told: &UnboundedSender<Report>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_REQUEST)).read_line(&mut line)?;
    let line = line.trim_end();
    let who = line.parse::<Sequencer>().ok();
    let who = who.as_ref().and_then(Sequencer::holder).unwrap_or("a writer").to_owned();
    // The check and the write are one step, and the order of the reports is that of the writes.
    let written = gate.run(lock, Some(line), || {
        *sum += 1;
        *sum
    });
    match written {
        Ok(sum) => {
            if let Some(token) = gate.largest(lock) {
                let _ = told.send(Report::Written { who, token, sum });
            }
            writeln!(stream, "ok")
        }
        Err(Rejection::Stale(refused)) => {
            let _ = told.send(Report::Refused { who, refused });
            writeln!(stream, "refused {}", refused.largest)
        }
        Err(other) => writeln!(stream, "{} {other}", other.status()),
    }
}

/// Writes once under a token. `Ok(Err)` if the ledger refused it.
pub(super) fn write(folder: &Path, as_of: &Sequencer) -> io::Result<Result<(), Refused>> {
    let mut stream = UnixStream::connect(socket(folder))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{as_of}")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    match reply.trim_end().split_once(' ') {
        None => Ok(Ok(())),
        Some(("refused", largest)) => {
            let largest = largest.parse().map(FencingToken::new).map_err(io::Error::other)?;
            Ok(Err(Refused { token: as_of.token(), largest }))
        }
        Some(_) => Err(io::Error::other(reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_takes_newer_tokens_and_refuses_older_ones() {
        let folder = std::env::temp_dir().join(format!("pl-ledger-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (told, mut reports) = tokio::sync::mpsc::unbounded_channel();
        serve(&folder, "ledger".into(), told).unwrap();
        let as_of = |who: &str, token| {
            Sequencer::new("ledger", FencingToken::new(token)).unwrap().with_holder(who).unwrap()
        };
        write(&folder, &as_of("ann", 33)).unwrap().unwrap();
        write(&folder, &as_of("bob", 34)).unwrap().unwrap();
        let refused = write(&folder, &as_of("ann", 33)).unwrap().unwrap_err();
        assert_eq!((refused.token.get(), refused.largest.get()), (33, 34));
        let (token, sum) = (FencingToken::new(33), 1);
        assert_eq!(reports.blocking_recv(), Some(Report::Written { who: "ann".into(), token, sum }));
        reports.blocking_recv().unwrap();
        assert_eq!(reports.blocking_recv(), Some(Report::Refused { who: "ann".into(), refused }));
        assert!(write(&folder, &Sequencer::new("other", token).unwrap()).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
