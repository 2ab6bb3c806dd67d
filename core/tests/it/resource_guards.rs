//! The guards for a resource, against real databases: late writers stay out, present ones get in.

#![cfg(unix)]

use polylatch::FencingToken;
use polylatch::resource::{FencedUpdate, Placeholders, Refused, Unchanged, redis, token_value};

fn token(value: u64) -> FencingToken {
    FencingToken::new(value)
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use rusqlite::{Connection, OptionalExtension, params};

    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let table = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)";
        connection.execute_batch(table).unwrap();
        connection
    }

    fn balance(connection: &Connection, id: i64) -> Option<i64> {
        let query = "SELECT balance FROM account WHERE id = ?1";
        connection.query_row(query, [id], |row| row.get(0)).optional().unwrap()
    }

    fn found(connection: &Connection, write: &FencedUpdate, id: i64) -> Option<Option<i64>> {
        connection.query_row(write.probe_sql(), [id], |row| row.get(0)).optional().unwrap()
    }

    #[test]
    fn an_update_refuses_a_late_writer_and_tells_it_from_a_missing_row() {
        let connection = table();
        connection.execute("INSERT INTO account (id, balance) VALUES (7, 0)", []).unwrap();
        // SQLite understands both spellings of parameters.
        for dialect in [Placeholders::Question, Placeholders::Dollar] {
            let write = FencedUpdate::update(dialect, "account", "fence", &["balance"], &["id"]).unwrap();
            assert_eq!(write.parameters(), ["balance", "fence", "id"]);
            let set = |balance: i64, id: i64, fence: u64| {
                connection
                    .execute(write.sql(), params![balance, token_value(token(fence)).unwrap(), id])
                    .unwrap()
            };
            connection.execute("UPDATE account SET fence = NULL WHERE id = 7", []).unwrap();
            assert_eq!(set(100, 7, 33), 1, "the first holder finds no token");
            assert_eq!(set(101, 7, 33), 1, "and may write again");
            assert_eq!(set(150, 7, 34), 1);
            assert_eq!(set(999, 7, 33), 0, "the late write");
            assert_eq!(balance(&connection, 7), Some(150));
            let why = FencedUpdate::why_unchanged(token(33), found(&connection, &write, 7));
            assert_eq!(why, Unchanged::Refused(Refused { token: token(33), largest: token(34) }));
            assert_eq!(set(1, 8, 40), 0, "no such row");
            let why = FencedUpdate::why_unchanged(token(40), found(&connection, &write, 8));
            assert_eq!(why, Unchanged::Missing);
        }
    }

    #[test]
    fn raising_the_token_alone_shuts_the_door_before_the_first_write() {
        let connection = table();
        connection.execute("INSERT INTO account (id, balance) VALUES (7, 5)", []).unwrap();
        let seal = FencedUpdate::update(Placeholders::Question, "account", "fence", &[], &["id"]).unwrap();
        assert_eq!(connection.execute(seal.sql(), params![34, 7]).unwrap(), 1);
        let write =
            FencedUpdate::update(Placeholders::Question, "account", "fence", &["balance"], &["id"]).unwrap();
        assert_eq!(connection.execute(write.sql(), params![100, 33, 7]).unwrap(), 0);
        assert_eq!(balance(&connection, 7), Some(5));
    }

    #[test]
    fn an_upsert_inserts_once_and_then_refuses_late_writers() {
        let connection = table();
        for dialect in [Placeholders::Question, Placeholders::Dollar] {
            let write = FencedUpdate::upsert(dialect, "account", "fence", &["balance"], &["id"]).unwrap();
            let id = if dialect == Placeholders::Question { 1 } else { 2 };
            let set = |balance: i64, fence: i64| {
                connection.execute(write.sql(), params![balance, fence, id]).unwrap()
            };
            assert_eq!((set(150, 34), set(100, 33), set(151, 34), set(160, 35)), (1, 0, 1, 1));
            assert_eq!(balance(&connection, id), Some(160));
        }
    }

    #[test]
    fn a_misspelt_column_is_an_error_and_not_a_text() {
        let connection = table();
        for (fence, key) in [("fence", "idd"), ("fense", "id")] {
            let write =
                FencedUpdate::update(Placeholders::Question, "account", fence, &["balance"], &[key]).unwrap();
            assert!(connection.prepare(write.sql()).is_err(), "{}", write.sql());
            assert!(connection.prepare(write.probe_sql()).is_err(), "{}", write.probe_sql());
        }
    }
}

mod on_redis {
    use polylatch_test_services::Reply;
    use polylatch_test_services::redis::RedisServer;

    use super::*;

    struct Guarded {
        server: RedisServer,
        data: &'static str,
        fence: String,
    }

    impl Guarded {
        fn new(data: &'static str) -> Self {
            Self { server: RedisServer::start(), data, fence: redis::fence_key(data).unwrap() }
        }

        fn write(&self, token: &str, command: &[&str]) -> Reply {
            let mut words = vec!["EVAL", redis::GUARD_SCRIPT, "2", self.data, &self.fence, token];
            words.extend_from_slice(command);
            self.server.command(&words)
        }

        fn read(&self, command: &[&str]) -> Reply {
            self.server.command(command)
        }
    }

    fn text(reply: &Reply) -> String {
        match reply {
            Reply::Error(text) | Reply::Simple(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn the_script_refuses_a_late_write_with_both_tokens() {
        let stock = Guarded::new("stock:9");
        // Real tokens have sixteen digits; they must be compared as numbers and kept exactly.
        let [old, new] = [9_007_199_254_740_990_u64, 9_007_199_254_740_991];
        assert_eq!(text(&stock.write(&old.to_string(), &["SET", "100"])), "OK");
        assert_eq!(text(&stock.write(&new.to_string(), &["SET", "150"])), "OK");
        assert_eq!(stock.write(&new.to_string(), &["INCRBY", "1"]), Reply::Int(151), "the same holder again");
        let late = text(&stock.write(&old.to_string(), &["SET", "999"]));
        assert!(late.starts_with("STALE_TOKEN "), "{late}");
        assert_eq!(redis::refused(&late), Some(Refused { token: token(old), largest: token(new) }));
        assert_eq!(stock.read(&["GET", "stock:9"]), bulk("151"));
        assert_eq!(stock.read(&["GET", &stock.fence]), bulk(&new.to_string()));
        assert!(redis::refused(&text(&stock.write("999", &["DEL"]))).is_some());
    }

    #[test]
    fn the_token_outlives_the_data() {
        let stock = Guarded::new("{stock}:9");
        assert_eq!(stock.write("34", &["HSET", "price", "150", "currency", "EUR"]), Reply::Int(2));
        assert_eq!(stock.write("34", &["DEL"]), Reply::Int(1));
        assert_eq!(stock.read(&["TTL", &stock.fence]), Reply::Int(-1));
        assert!(redis::refused(&text(&stock.write("33", &["HSET", "price", "100"]))).is_some());
        assert_eq!(stock.read(&["EXISTS", "{stock}:9"]), Reply::Int(0));
    }

    #[test]
    fn bad_tokens_bad_fences_and_failing_commands_write_nothing() {
        let stock = Guarded::new("stock:9");
        for bad in ["", "-1", "+1", "1.5", "1e9", "0x10", "nan", "99999999999999999"] {
            let reply = text(&stock.write(bad, &["SET", "1"]));
            assert!(reply.starts_with("BAD_TOKEN "), "{bad:?}: {reply}");
        }
        assert_eq!(stock.read(&["DBSIZE"]), Reply::Int(0));
        assert_eq!(text(&stock.write("34", &["SET", "150"])), "OK");
        let wrong = text(&stock.write("35", &["LPUSH", "x"]));
        assert!(wrong.contains("WRONGTYPE"), "{wrong}");
        assert_eq!(redis::refused(&wrong), None);
        assert!(redis::refused(&text(&stock.write("34", &["SET", "1"]))).is_some(), "35 was there");
        stock.read(&["SET", &stock.fence, "soon"]);
        assert!(text(&stock.write("36", &["SET", "1"])).starts_with("BAD_FENCE "));
        assert_eq!(stock.read(&["GET", "stock:9"]), bulk("150"));
    }

    #[test]
    fn data_and_fence_share_a_slot_of_a_cluster() {
        // The usual port of the bus, ten thousand above, may not exist; this test has one node and no bus.
        let bus = polylatch_test_services::port::ReservedPort::new().unwrap();
        let server = RedisServer::builder()
            .config("cluster-enabled yes")
            .config(&format!("cluster-port {}", bus.number()))
            .start();
        for data in ["stock:9", "{stock}:9", "a{b}{c}", "a}b{c}", "a{b", "Größe"] {
            let fence = redis::fence_key(data).unwrap();
            let slot = |key: &str| server.command(&["CLUSTER", "KEYSLOT", key]);
            assert!(matches!(slot(data), Reply::Int(_)), "{:?}", slot(data));
            assert_eq!(slot(data), slot(&fence), "{data} and {fence}");
        }
    }
}
