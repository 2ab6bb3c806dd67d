//! The guards for rows of a table, on real PostgreSQL and MariaDB servers that keep the locks too.

#![cfg(all(feature = "postgres", feature = "mysql", unix))]

use mysql_async::prelude::Queryable;
use tokio::runtime::Runtime;

use crate::contract::{Store, block_on};
use polylatch::Guard;
use polylatch::resource::{
    Change, Compare, ConditionalUpdate, Conflict, FencedUpdate, Placeholders, Refused, Unchanged,
    VersionedUpdate, token_value,
};

/// A connection of the application, by the driver that it would use.
pub enum Driver {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
}

pub struct Database {
    pub runtime: Runtime,
    pub driver: Driver,
}

impl Database {
    pub fn postgres() -> Self {
        let runtime = Runtime::new().unwrap();
        let url = crate::contract_postgres::SERVER.url();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self { runtime, driver: Driver::Postgres(client) }
    }

    pub fn mariadb(database: &str, found_rows: bool) -> Self {
        let runtime = Runtime::new().unwrap();
        let url = crate::contract_mariadb::SERVER.url_of("root", database);
        let options = mysql_async::Opts::from_url(&url).unwrap();
        let options = mysql_async::OptsBuilder::from_opts(options).client_found_rows(found_rows);
        let conn = runtime.block_on(mysql_async::Conn::new(options)).unwrap();
        Self { runtime, driver: Driver::Mysql(conn) }
    }

    fn dialect(&self) -> Placeholders {
        match self.driver {
            Driver::Postgres(_) => Placeholders::Dollar,
            Driver::Mysql(_) => Placeholders::Mysql,
        }
    }

    /// Returns how many rows the driver reports as changed.
    fn execute(&mut self, sql: &str, values: &[i64]) -> u64 {
        match &mut self.driver {
            Driver::Postgres(client) => {
                let values: Vec<_> =
                    values.iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
                self.runtime.block_on(client.execute(sql, &values)).unwrap_or_else(|e| panic!("{sql}: {e:?}"))
            }
            Driver::Mysql(conn) => {
                self.runtime.block_on(conn.exec_drop(sql, positional(values))).unwrap();
                conn.affected_rows()
            }
        }
    }

    /// The first column of the first row.
    fn query(&mut self, sql: &str, values: &[i64]) -> Option<Option<i64>> {
        match &mut self.driver {
            Driver::Postgres(client) => {
                let values: Vec<_> =
                    values.iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
                self.runtime.block_on(client.query_opt(sql, &values)).unwrap().map(|row| row.get(0))
            }
            Driver::Mysql(conn) => self.runtime.block_on(conn.exec_first(sql, positional(values))).unwrap(),
        }
    }

    /// Runs a statement without values.
    pub fn run(&mut self, sql: &str) {
        match &mut self.driver {
            Driver::Postgres(client) => self.runtime.block_on(client.batch_execute(sql)).unwrap(),
            Driver::Mysql(conn) => self.runtime.block_on(conn.query_drop(sql)).unwrap(),
        }
    }

    /// Binds values by the names that a statement gives.
    fn write(&mut self, sql: &str, names: &[String], values: &[(&str, i64)]) -> u64 {
        let bound: Vec<_> = names
            .iter()
            .map(|name| values.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1)
            .collect();
        self.execute(sql, &bound)
    }
}

fn positional(values: &[i64]) -> mysql_async::Params {
    if values.is_empty() {
        return mysql_async::Params::Empty;
    }
    mysql_async::Params::Positional(values.iter().map(|value| (*value).into()).collect())
}

/// Runs a story on each server, with a table of its own and a store of locks in the same server.
fn each(table: &str, columns: &str, story: impl Fn(&mut Database, &str, &dyn Store)) {
    let store = crate::contract_postgres::fresh("");
    let mut database = Database::postgres();
    database.execute(&format!("CREATE SCHEMA IF NOT EXISTS {table}_app"), &[]);
    database.execute(&format!("CREATE TABLE {table}_app.{table} ({columns})"), &[]);
    story(&mut database, &format!("{table}_app.{table}"), &store);
    for found_rows in [true, false] {
        let store = crate::contract_mariadb::fresh();
        let mut database = Database::mariadb(&store.database, found_rows);
        database.execute(&format!("CREATE TABLE {table} ({columns})"), &[]);
        story(&mut database, &format!("{}.{table}", store.database), &store);
    }
}

fn value(guard: &Guard) -> i64 {
    token_value(guard.fencing_token()).unwrap()
}

/// The lease of the first holder is broken while it is paused; the second one writes; then the first one goes on.
fn two_holders(store: &dyn Store) -> (Guard, Guard) {
    let client = store.connect();
    let stale = block_on(client.lock("account/7").acquire()).unwrap();
    let request = crate::database_tables::break_of("account/7", stale.fencing_token());
    block_on(client.inspect().break_lease(&request)).unwrap();
    let present = block_on(client.lock("account/7").acquire()).unwrap();
    (stale, present)
}

const ACCOUNT: &str = "id BIGINT PRIMARY KEY, balance BIGINT, fence BIGINT";

#[test]
fn a_stale_holders_update_is_refused() {
    each("account", ACCOUNT, |database, table, store| {
        let write = FencedUpdate::update(database.dialect(), table, "fence", &["balance"], &["id"]).unwrap();
        database.execute(&format!("INSERT INTO {table} (id, balance) VALUES (7, 0)"), &[]);
        let (stale, present) = two_holders(store);
        let mut set = |balance: i64, guard: &Guard, id: i64| {
            let values = [("balance", balance), ("fence", value(guard)), ("id", id)];
            database.write(write.sql(), write.parameters(), &values)
        };
        assert_eq!(set(100, &stale, 7), 1, "the first one finds no token");
        assert_eq!(set(150, &present, 7), 1);
        assert_eq!(set(151, &present, 7), 1, "the same holder writes again");
        assert_eq!(set(999, &stale, 7), 0, "the late write");
        assert_eq!(set(1, &present, 8), 0, "there is no such row");
        let (token, largest) = (stale.fencing_token(), present.fencing_token());
        let why = FencedUpdate::why_unchanged(token, database.query(write.probe_sql(), &[7]));
        assert_eq!(why, Unchanged::Refused(Refused { token, largest }));
        let why = FencedUpdate::why_unchanged(largest, database.query(write.probe_sql(), &[8]));
        assert_eq!(why, Unchanged::Missing);
        assert_eq!(database.query(&format!("SELECT balance FROM {table}"), &[]), Some(Some(151)));
    });
}

/// MySQL and MariaDB report what the client asks for: changed rows, or found rows.
#[test]
fn a_repeated_update_counts_where_found_rows_are_counted() {
    for found_rows in [true, false] {
        let store = crate::contract_mariadb::fresh();
        let mut database = Database::mariadb(&store.database, found_rows);
        database.execute(&format!("CREATE TABLE account ({ACCOUNT})"), &[]);
        database.execute("INSERT INTO account VALUES (7, 100, 33)", &[]);
        let write =
            FencedUpdate::update(Placeholders::Mysql, "account", "fence", &["balance"], &["id"]).unwrap();
        let values = [("balance", 100), ("fence", 33), ("id", 7)];
        let counted = database.write(write.sql(), write.parameters(), &values);
        assert_eq!(counted, u64::from(found_rows));
    }
}

#[test]
fn a_stale_holders_upsert_is_refused() {
    each("account2", ACCOUNT, |database, table, store| {
        let write = FencedUpdate::upsert(database.dialect(), table, "fence", &["balance"], &["id"]).unwrap();
        let (stale, present) = two_holders(store);
        let refused = Refused { token: stale.fencing_token(), largest: present.fencing_token() };
        for (balance, guard, is_stale) in
            [(100, &stale, false), (150, &present, false), (999, &stale, true), (151, &present, false)]
        {
            let values = [("balance", balance), ("fence", value(guard)), ("id", 7)];
            let changed = database.write(write.sql(), write.parameters(), &values);
            if write.rows_tell() {
                assert_eq!(changed, u64::from(!is_stale), "{balance}");
            }
            let found = database.query(write.probe_sql(), &[7]);
            assert_eq!(FencedUpdate::refused(guard.fencing_token(), found), is_stale.then_some(refused));
        }
        assert_eq!(database.query(&format!("SELECT balance FROM {table}"), &[]), Some(Some(151)));
        assert_eq!(database.query(&format!("SELECT COUNT(*) FROM {table}"), &[]), Some(Some(1)));
    });
}

#[test]
fn of_two_writers_that_read_the_same_version_one_writes() {
    each(
        "orders",
        "id BIGINT PRIMARY KEY, state BIGINT, version BIGINT NOT NULL DEFAULT 0",
        |database, table, _| {
            let write =
                VersionedUpdate::update(database.dialect(), table, "version", &["state"], &["id"]).unwrap();
            database.execute(&format!("INSERT INTO {table} (id, state) VALUES (7, 1)"), &[]);
            let mut set = |state: i64, version: i64, id: i64| {
                let values = [("state", state), ("version", version), ("id", id)];
                database.write(write.sql(), write.parameters(), &values)
            };
            assert_eq!(set(2, 0, 7), 1);
            assert_eq!(set(3, 0, 7), 0, "it read before the other one wrote");
            assert_eq!(set(2, 1, 7), 1, "the same state again is a write too");
            assert_eq!(set(1, 0, 8), 0);
            let why = VersionedUpdate::why_unchanged(database.query(write.probe_sql(), &[7]));
            assert_eq!(why, Conflict::Changed { found: Some(2) });
            let why = VersionedUpdate::why_unchanged(database.query(write.probe_sql(), &[8]));
            assert_eq!(why, Conflict::Missing);
            assert_eq!(database.query(&format!("SELECT state FROM {table}"), &[]), Some(Some(2)));
        },
    );
}

#[test]
fn what_is_left_is_not_sold_twice() {
    each("item", "id BIGINT PRIMARY KEY, stock BIGINT, sold BIGINT NOT NULL", |database, table, _| {
        let changes = [("stock", Change::Subtract), ("sold", Change::Add)];
        let conditions = [("stock", Compare::AtLeast)];
        let take =
            ConditionalUpdate::update(database.dialect(), table, &changes, &conditions, &["id"]).unwrap();
        database.execute(&format!("INSERT INTO {table} VALUES (7, 5, 0), (8, NULL, 0)"), &[]);
        let mut sell = |count: i64, id: i64| {
            let values = [("stock -", count), ("sold +", count), ("stock >=", count), ("id", id)];
            database.write(take.sql(), take.parameters(), &values)
        };
        assert_eq!((sell(3, 7), sell(3, 7), sell(2, 7), sell(1, 7)), (1, 0, 1, 0));
        assert_eq!((sell(1, 8), sell(1, 9)), (0, 0), "nothing is no number, and there is no row");
        assert_eq!(database.query(take.probe_sql(), &[7]), Some(Some(0)));
        assert_eq!(database.query(take.probe_sql(), &[8]), Some(None));
        assert_eq!(database.query(take.probe_sql(), &[9]), None);
        assert_eq!(database.query(&format!("SELECT sold FROM {table} WHERE id = 7"), &[]), Some(Some(5)));
    });
}
