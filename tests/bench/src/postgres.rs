//! PostgreSQL: an acquire and release against the same two statements sent raw by the same driver, and a hand-off against a
//! bare notification.

use std::time::{Duration, Instant};

use polylatch::blocking::Polylatch;
use polylatch_test_services::postgres::PostgresServer;
use tokio::sync::mpsc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::database::{contended, hand_offs, runtime, timed};
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 10;
const HAND_OFFS: usize = 200;

/// How long a lock is held before a hand-off: the other client certainly waits by then.
const HELD: Duration = Duration::from_millis(15);

pub fn run() {
    for (what, settings) in
        [("every commit on disk", &[][..]), ("synchronous_commit=off", &["synchronous_commit=off"])]
    {
        let server = on_processor_of_servers(|| PostgresServer::with(settings));
        uncontended(&server, what);
        handoff(&server, what);
    }
}

/// A connection of the driver, and what it hears.
async fn connect(server: &PostgresServer) -> (Client, mpsc::UnboundedReceiver<Instant>) {
    let (client, mut connection) =
        tokio_postgres::connect(&server.url(), NoTls).await.expect("the server answers");
    let (heard, hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                let _ = heard.send(Instant::now());
            }
        }
    });
    (client, hears)
}

/// The statements that the library sends for an acquire and a release, as the server has logged them.
fn statements(server: &PostgresServer) -> [String; 2] {
    server.sql("ALTER ROLE postgres SET log_statement = 'all'");
    let client = Polylatch::connect(&server.url()).expect("it connects");
    let before = server.log().len();
    client.lock("logged").acquire().expect("it is free").release().expect("it is held");
    let log = server.log().split_off(before);
    server.sql("ALTER ROLE postgres RESET log_statement");
    client.close();
    let sent = |of: &str| {
        let mut lines = log.lines().filter_map(|line| line.split_once("execute <unnamed>: "));
        let found = lines.find(|(_, sql)| sql.starts_with(of));
        found.map(|(_, sql)| sql.to_owned()).expect("the statement was logged in one line")
    };
    [sent("INSERT INTO \"polylatch\".locks AS l"), sent("UPDATE \"polylatch\".locks SET owner = NULL")]
}

fn uncontended(server: &PostgresServer, what: &str) {
    heading(&format!("PostgreSQL, {what}: acquire + release of a free lock, one client (µs a pair)"));
    let [acquire, release] = statements(server);
    let runtime = runtime();
    let (raw, _hears) = runtime.block_on(connect(server));
    let raw_pair = || {
        let (name, owner, client) = ("floor", "00112233445566778899aabbccddeeff", "host:1:00000000");
        let (permits, lease_ms, first_ms) = (1_i64, 15_000_i64, 3_000_i64);
        let params: [(&(dyn ToSql + Sync), Type); 9] = [
            (&name, Type::TEXT),
            (&owner, Type::TEXT),
            (&client, Type::TEXT),
            (&"", Type::TEXT),
            (&"mutex", Type::TEXT),
            (&permits, Type::INT8),
            (&None::<i64>, Type::INT8),
            (&lease_ms, Type::INT8),
            (&first_ms, Type::INT8),
        ];
        runtime.block_on(async {
            let rows = raw.query_typed(&acquire, &params).await.expect("it is acquired");
            let fence: i64 = rows[0].get(0);
            let params: [(&(dyn ToSql + Sync), Type); 3] =
                [(&name, Type::TEXT), (&owner, Type::TEXT), (&fence, Type::INT8)];
            let rows = raw.query_typed(&release, &params).await.expect("it is released");
            assert_eq!(rows.len(), 1, "the floor does what the library does");
        });
    };
    let client = Polylatch::connect(&server.url()).expect("it connects");
    let lock = client.lock("bench");
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        floor.extend(timed(raw_pair));
        ours.extend(timed(|| lock.acquire().expect("it is free").release().expect("it is held")));
    }
    row("floor: the same two statements, same driver", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    client.close();
}

fn handoff(server: &PostgresServer, what: &str) {
    heading(&format!("PostgreSQL, {what}: from a release to the entry of the waiter of another client (µs)"));
    let mut floor = Samples::default();
    server.sql("CREATE TABLE IF NOT EXISTS floor (n bigint); INSERT INTO floor VALUES (0)");
    runtime().block_on(async {
        let ((one, _), (two, mut hears)) = (connect(server).await, connect(server).await);
        two.batch_execute("LISTEN floor").await.expect("it listens");
        for _ in 0..HAND_OFFS {
            // As long as a lock is held: whoever has slept is slower.
            tokio::time::sleep(HELD).await;
            let sent = Instant::now();
            // One message, as cheap as a transaction with a notification can be.
            one.batch_execute("BEGIN; UPDATE floor SET n = n + 1; NOTIFY floor; COMMIT")
                .await
                .expect("it is committed");
            let at = hears.recv().await.expect("it is heard");
            floor.add(at.duration_since(sent).as_secs_f64() * 1e6);
        }
    });
    let ours = hand_offs(&server.url(), HAND_OFFS, HELD);
    row("floor: an update and a notification", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    let through = |relay| server.url_through(relay);
    contended(&server.url(), floor.median(), server.address(), ("statements", statements_in), through, None);
}

/// How many statements begin in whole messages of the protocol.
fn statements_in(mut sent: &[u8]) -> u64 {
    let mut count = 0;
    while let [kind, a, b, c, d, ..] = *sent {
        count += u64::from(matches!(kind, b'E' | b'Q'));
        let length = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        sent = sent.get(length..).unwrap_or_default();
    }
    count
}
