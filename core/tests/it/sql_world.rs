//! Databases of an application: SQLite, PostgreSQL and MariaDB, by the drivers that it would use.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", unix))]

use std::time::Duration;

use mysql_async::prelude::Queryable;
use polylatch::Error;
use polylatch::resource::{SqlRow, SqlStatement, SqlValue, TransactionRuns};
use tokio::runtime::Runtime;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Where the records and the table `effects` of an application are. Another process finds it by [`World::text`].
#[derive(Debug, Clone)]
pub enum World {
    Sqlite { path: String },
    Postgres { url: String, schema: String },
    Mariadb { url: String },
}

/// Keeps what a world is made of.
pub struct Fresh {
    pub world: World,
    pub store_url: Option<String>,
    _folder: Option<tempfile::TempDir>,
}

/// Runs a story in a fresh world of each kind.
pub fn each(story: impl Fn(&Fresh)) {
    for fresh in [sqlite(), postgres(), mariadb()] {
        eprintln!("in {:?}", fresh.world);
        story(&fresh);
    }
}

pub fn sqlite() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db").display().to_string();
    made(World::Sqlite { path }, None, Some(folder))
}

pub fn postgres() -> Fresh {
    use crate::contract::Store;
    let store = crate::contract_postgres::fresh("");
    let world = World::Postgres { url: crate::contract_postgres::SERVER.url(), schema: store.schema.clone() };
    made(world, Some(store.url("")), None)
}

pub fn mariadb() -> Fresh {
    use crate::contract::Store;
    let store = crate::contract_mariadb::fresh();
    let url = crate::contract_mariadb::SERVER.url_of("root", &store.database);
    made(World::Mariadb { url }, Some(store.url("")), None)
}

fn made(world: World, store_url: Option<String>, folder: Option<tempfile::TempDir>) -> Fresh {
    let mut database = world.open();
    let schema = world.runs().schema();
    for _ in 0..2 {
        database.run(&schema);
    }
    let kind = if matches!(world, World::Postgres { .. }) { "text" } else { "varchar(200)" };
    database.run(&format!("CREATE TABLE {} (work {kind}, step {kind})", world.table("effects")));
    Fresh { world, store_url, _folder: folder }
}

impl World {
    /// For the environment of another process.
    pub fn text(&self) -> String {
        match self {
            Self::Sqlite { path } => format!("sqlite {path}"),
            Self::Postgres { url, schema } => format!("postgres {url} {schema}"),
            Self::Mariadb { url } => format!("mariadb {url}"),
        }
    }

    pub fn parse(text: &str) -> Self {
        let parts: Vec<String> = text.split(' ').map(String::from).collect();
        match parts.as_slice() {
            [kind, path] if kind == "sqlite" => Self::Sqlite { path: path.clone() },
            [kind, url, schema] if kind == "postgres" => {
                Self::Postgres { url: url.clone(), schema: schema.clone() }
            }
            [_, url] => Self::Mariadb { url: url.clone() },
            other => panic!("{other:?}"),
        }
    }

    pub fn runs(&self) -> TransactionRuns {
        match self {
            Self::Sqlite { .. } => TransactionRuns::sqlite(),
            Self::Postgres { schema, .. } => TransactionRuns::postgres(schema),
            Self::Mariadb { .. } => TransactionRuns::mysql(),
        }
        .unwrap()
    }

    pub fn table(&self, name: &str) -> String {
        match (self, name) {
            (Self::Postgres { schema, .. }, name) => format!("{schema}.{name}"),
            (_, "idempotency") => "polylatch_idempotency".to_owned(),
            (_, name) => name.to_owned(),
        }
    }

    pub fn open(&self) -> Database {
        let runtime = Runtime::new().unwrap();
        let driver = match self {
            Self::Sqlite { path } => {
                let conn = rusqlite::Connection::open(path).unwrap();
                conn.busy_timeout(Duration::from_secs(20)).unwrap();
                let _: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
                Driver::Sqlite(conn)
            }
            Self::Postgres { url, .. } => Driver::Postgres(runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                client
            })),
            Self::Mariadb { url } => {
                Driver::Mysql(runtime.block_on(mysql_async::Conn::from_url(url)).unwrap())
            }
        };
        Database { world: self.clone(), runtime, driver }
    }
}

enum Driver {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
}

/// What an application handles: errors of the driver by their code, and those of Polylatch.
#[derive(Debug)]
pub enum Failed {
    Database(String),
    Polylatch(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Polylatch(error)
    }
}

impl Failed {
    pub fn code(&self) -> &str {
        match self {
            Self::Database(code) => code,
            Self::Polylatch(error) => error.code(),
        }
    }
}

/// One connection.
pub struct Database {
    pub world: World,
    runtime: Runtime,
    driver: Driver,
}

impl Database {
    pub fn begin(&mut self) {
        self.run(if matches!(self.world, World::Sqlite { .. }) { "BEGIN IMMEDIATE" } else { "BEGIN" });
    }

    /// Runs a script without values.
    pub fn run(&mut self, sql: &str) {
        match &mut self.driver {
            Driver::Sqlite(conn) => conn.execute_batch(sql).unwrap(),
            Driver::Postgres(client) => self.runtime.block_on(client.batch_execute(sql)).unwrap(),
            Driver::Mysql(conn) => self.runtime.block_on(conn.query_drop(sql)).unwrap(),
        }
    }

    pub fn query(&mut self, statement: &SqlStatement) -> Result<Vec<SqlRow>, Failed> {
        match &mut self.driver {
            Driver::Sqlite(conn) => ask_sqlite(conn, statement).map_err(|error| {
                Failed::Database(
                    error.sqlite_error_code().map_or(error.to_string(), |code| format!("{code:?}")),
                )
            }),
            Driver::Postgres(client) => {
                let values: Vec<Bound> = statement.values().iter().map(Bound).collect();
                let values: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let rows =
                    self.runtime.block_on(client.query(statement.sql(), &values)).map_err(|error| {
                        Failed::Database(
                            error.code().map_or(format!("{error:?}"), |code| code.code().to_owned()),
                        )
                    })?;
                Ok(rows.iter().map(of_postgres).collect())
            }
            Driver::Mysql(conn) => {
                let values = statement.values().iter().map(of_value).collect();
                let rows: Vec<mysql_async::Row> = self
                    .runtime
                    .block_on(conn.exec(statement.sql(), mysql_async::Params::Positional(values)))
                    .map_err(|error| match error {
                        mysql_async::Error::Server(error) => Failed::Database(error.code.to_string()),
                        other => Failed::Database(other.to_string()),
                    })?;
                Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(of_mysql).collect()).collect())
            }
        }
    }

    /// The work of the application.
    pub fn effect(&mut self, work: &str, step: &str) {
        let table = self.world.table("effects");
        self.run(&format!("INSERT INTO {table} (work, step) VALUES ('{work}', '{step}')"));
    }

    pub fn effects(&mut self, work: &str, step: &str) -> i64 {
        let table = self.world.table("effects");
        self.number(&format!("SELECT count(*) FROM {table} WHERE work = '{work}' AND step = '{step}'"))
    }

    pub fn number(&mut self, sql: &str) -> i64 {
        match &mut self.driver {
            Driver::Sqlite(conn) => conn.query_row(sql, [], |row| row.get(0)).unwrap(),
            Driver::Postgres(client) => self.runtime.block_on(client.query_one(sql, &[])).unwrap().get(0),
            Driver::Mysql(conn) => self.runtime.block_on(conn.query_first(sql)).unwrap().unwrap(),
        }
    }
}

fn ask_sqlite(conn: &rusqlite::Connection, statement: &SqlStatement) -> rusqlite::Result<Vec<SqlRow>> {
    let mut prepared = conn.prepare(statement.sql())?;
    for (at, value) in statement.values().iter().enumerate() {
        match value {
            SqlValue::Null => prepared.raw_bind_parameter(at + 1, rusqlite::types::Null)?,
            SqlValue::Int(number) => prepared.raw_bind_parameter(at + 1, number)?,
            SqlValue::Text(text) => prepared.raw_bind_parameter(at + 1, text)?,
            SqlValue::Bytes(bytes) => prepared.raw_bind_parameter(at + 1, bytes)?,
        }
    }
    let columns = prepared.column_count();
    let (mut rows, mut found) = (prepared.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        let column = |at| {
            use rusqlite::types::ValueRef;
            match row.get_ref_unwrap(at) {
                ValueRef::Null => SqlValue::Null,
                ValueRef::Integer(number) => SqlValue::Int(number),
                ValueRef::Text(text) => SqlValue::Text(String::from_utf8(text.to_vec()).unwrap()),
                ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.to_vec()),
                ValueRef::Real(number) => panic!("{number}"),
            }
        };
        found.push((0..columns).map(column).collect());
    }
    Ok(found)
}

/// A value of whatever type PostgreSQL has found for its parameter.
#[derive(Debug)]
struct Bound<'a>(&'a SqlValue);

impl ToSql for Bound<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Int(number) => number.to_sql_checked(kind, out),
            SqlValue::Text(text) => text.to_sql_checked(kind, out),
            SqlValue::Bytes(bytes) => bytes.to_sql_checked(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn of_postgres(row: &tokio_postgres::Row) -> SqlRow {
    let column = |at: usize| match *row.columns()[at].type_() {
        Type::INT8 => row.get::<_, Option<i64>>(at).map_or(SqlValue::Null, SqlValue::Int),
        Type::TEXT => row.get::<_, Option<String>>(at).map_or(SqlValue::Null, SqlValue::Text),
        Type::BYTEA => row.get::<_, Option<Vec<u8>>>(at).map_or(SqlValue::Null, SqlValue::Bytes),
        ref other => panic!("{other}"),
    };
    (0..row.len()).map(column).collect()
}

fn of_value(value: &SqlValue) -> mysql_async::Value {
    match value {
        SqlValue::Null => mysql_async::Value::NULL,
        SqlValue::Int(number) => (*number).into(),
        SqlValue::Text(text) => text.as_str().into(),
        SqlValue::Bytes(bytes) => bytes.as_slice().into(),
    }
}

fn of_mysql(value: mysql_async::Value) -> SqlValue {
    match value {
        mysql_async::Value::NULL => SqlValue::Null,
        mysql_async::Value::Int(number) => SqlValue::Int(number),
        mysql_async::Value::UInt(number) => SqlValue::Int(number.try_into().unwrap()),
        mysql_async::Value::Bytes(bytes) => SqlValue::Bytes(bytes),
        other => panic!("{other:?}"),
    }
}
