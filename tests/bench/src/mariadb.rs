//! MariaDB: an acquire and release against the same two statements sent raw by the same driver, and a hand-off against a bare
//! session lock.

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Params, Value};
use polylatch::blocking::Polylatch;
use polylatch_test_services::mariadb::MariadbServer;

use crate::database::{contended, hand_offs, runtime, timed};
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 10;
const HAND_OFFS: usize = 200;

/// How long a lock is held before a hand-off: the other client certainly waits by then.
const HELD: Duration = Duration::from_millis(15);

/// How durable a commit is, and the settings for it.
pub const DURABLE: [(&str, &[&str]); 2] = [
    ("every commit on disk", &[]),
    ("innodb_flush_log_at_trx_commit=2", &["innodb-flush-log-at-trx-commit=2"]),
];

pub fn run() {
    for (what, settings) in DURABLE {
        let server = on_processor_of_servers(|| MariadbServer::with(settings));
        uncontended(&server, what);
        handoff(&server, what);
    }
}

/// A connection of the driver, set as the library sets its own.
pub async fn connect(server: &MariadbServer) -> Conn {
    let options = OptsBuilder::from_opts(Opts::from_url(&server.url()).expect("a URL of ours"))
        .prefer_socket(false)
        .tcp_nodelay(true)
        .client_found_rows(true);
    let mut conn = Conn::new(options).await.expect("the server answers");
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.expect("it is set");
    conn
}

/// The statements that the library prepares for an acquire and a release, as the server has logged them.
fn statements(server: &MariadbServer) -> [String; 2] {
    server.sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1");
    let client = Polylatch::connect(&server.url()).expect("it connects");
    // The first one makes the row of the lock.
    for _ in 0..2 {
        client.lock("logged").acquire().expect("it is free").release().expect("it is held");
    }
    client.close();
    server.sql("SET GLOBAL general_log = 0");
    let sent = |begin: &str| {
        let sql = format!(
            "SELECT argument FROM mysql.general_log WHERE command_type = 'Prepare' AND argument LIKE '{begin}%' LIMIT 1"
        );
        let found = server.sql(&sql);
        assert!(!found.is_empty(), "the statement was logged: {begin}");
        found
    };
    [
        sent("UPDATE polylatch_locks SET counter = LAST_INSERT_ID"),
        sent("UPDATE polylatch_locks SET fence = LAST_INSERT_ID"),
    ]
}

fn uncontended(server: &MariadbServer, what: &str) {
    heading(&format!("MariaDB, {what}: acquire + release of a free lock, one client (µs a pair)"));
    let [acquire, release] = statements(server);
    let runtime = runtime();
    let mut raw = runtime.block_on(connect(server));
    server.sql("INSERT INTO locks.polylatch_locks (name, counter) VALUES ('floor', 0)");
    let owner = "00112233445566778899aabbccddeeff";
    let taken: Vec<Value> = vec![
        3_000_i64.into(),
        owner.into(),
        "host:1:00000000".into(),
        "".into(),
        "mutex".into(),
        1_i64.into(),
        Value::NULL,
        15_000_i64.into(),
        3_000_i64.into(),
        "floor".into(),
    ];
    let mut raw_pair = || {
        runtime.block_on(async {
            raw.exec_drop(acquire.as_str(), Params::Positional(taken.clone())).await.expect("it is acquired");
            let fence = raw.last_insert_id().expect("it has a fence");
            let given: Vec<Value> = vec!["floor".into(), owner.into(), fence.into()];
            raw.exec_drop(release.as_str(), Params::Positional(given)).await.expect("it is released");
            assert_eq!(raw.affected_rows(), 1, "the floor does what the library does");
        });
    };
    let client = Polylatch::connect(&server.url()).expect("it connects");
    let lock = client.lock("bench");
    lock.acquire().expect("it is free").release().expect("it is held");
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        floor.extend(timed(&mut raw_pair));
        ours.extend(timed(|| lock.acquire().expect("it is free").release().expect("it is held")));
    }
    row("floor: the same two statements, same driver", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    client.close();
}

/// From the letting go of a session lock to the answer of the client that blocked on it, with one committed update before.
fn bell(server: &MariadbServer) -> Samples {
    let mut floor = Samples::default();
    server.sql("CREATE TABLE IF NOT EXISTS locks.floor (n bigint); INSERT INTO locks.floor VALUES (0)");
    runtime().block_on(async {
        let (mut one, mut two) = (connect(server).await, connect(server).await);
        for _ in 0..HAND_OFFS {
            one.query_drop("DO GET_LOCK('floor', 5)").await.expect("it is free");
            let hears = async {
                two.query_drop("DO GET_LOCK('floor', 5)").await.expect("it is let go");
                let at = Instant::now();
                two.query_drop("DO RELEASE_LOCK('floor')").await.expect("it is held");
                at
            };
            let rings = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let sent = Instant::now();
                one.query_drop("UPDATE locks.floor SET n = n + 1").await.expect("it is committed");
                one.query_drop("DO RELEASE_LOCK('floor')").await.expect("it is held");
                sent
            };
            let (at, sent) = tokio::join!(hears, rings);
            floor.add(at.duration_since(sent).as_secs_f64() * 1e6);
        }
    });
    floor
}

fn handoff(server: &MariadbServer, what: &str) {
    heading(&format!("MariaDB, {what}: from a release to the entry of the waiter of another client (µs)"));
    let floor = bell(server);
    let ours = hand_offs(&server.url(), HAND_OFFS, HELD);
    row("floor: a committed update, and a session lock that is let go", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    let statements = || {
        let told = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
        told.split('\t').nth(1).and_then(|count| count.parse().ok()).expect("a number")
    };
    // The first packet of a request has the number 0.
    let counts: fn(&[u8]) -> u64 = |sent| u64::from(sent.get(3) == Some(&0));
    let through = |relay| server.url_through(relay);
    contended(
        &server.url(),
        floor.median(),
        server.address(),
        ("requests", counts),
        through,
        Some(&statements),
    );
}
