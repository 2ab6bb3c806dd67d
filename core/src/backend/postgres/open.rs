//! Opening a store: its tables are found and checked, or made.

use crate::backend::Purpose;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::link::Link;
use crate::backend::rows::server::value::{Cells, Statement};
use crate::backend::rows::server::{Session as _, commit};
use crate::error::{Error, ErrorKind, Result};

use super::protocol::grants::PostgresRole;
use super::protocol::reading::{may_create, tables};
use super::protocol::schema::{Schema, TABLES, VERSION};
use super::protocol::statements::begin;
use super::server::Postgres;

/// Returns the SQL script that creates the tables in `schema`, for operators who do not let programs create them. It is
/// one transaction. Run again it changes nothing; it refuses a schema with tables of another program or version.
///
/// Errors: `invalid_config` if `schema` is no plain identifier (1 to 63 letters, digits and underscores).
pub fn postgres_schema(schema: &str) -> Result<String> {
    Ok(checked(schema)?.script())
}

/// Returns the SQL statements that give a role the rights that it needs on the tables in `schema`, and no more.
///
/// Errors: `invalid_config` if `schema` is no plain identifier, or `role` is empty, longer than 63 bytes or has control
/// characters.
pub fn postgres_grants(schema: &str, kind: PostgresRole, role: &str) -> Result<String> {
    checked(schema)?.grants(kind, role).map_err(|rule| Error::new(ErrorKind::InvalidConfig, rule))
}

/// The statement that takes a lock for the length of the caller's transaction.
///
/// Errors: as of [`postgres_schema`].
pub(crate) fn take_in_transaction(schema: &str) -> Result<String> {
    Ok(checked(schema)?.take_in_transaction())
}

/// A schema by its name. Errors: as of [`postgres_schema`].
pub(crate) fn checked(schema: &str) -> Result<Schema> {
    Schema::new(schema).map_err(|rule| Error::new(ErrorKind::InvalidConfig, rule))
}

/// What stands in the schema.
#[derive(Debug)]
struct Found {
    schema_exists: bool,
    present: Vec<String>,
    /// Tables that this user may not read, or not use as a client does, or that are no ordinary tables; the schema has no
    /// name.
    not_read: Vec<String>,
    not_used: Vec<String>,
}

impl Found {
    fn read(rows: &[Cells]) -> Self {
        let mut found =
            Self { schema_exists: false, present: Vec::new(), not_read: Vec::new(), not_used: Vec::new() };
        for row in rows {
            let name = row.text(0);
            if name.is_empty() {
                found.schema_exists = true;
            } else {
                found.present.push(name.clone());
            }
            if row.int(1) == 0 {
                found.not_read.push(name.clone());
            }
            if row.int(2) == 0 {
                found.not_used.push(name);
            }
        }
        found
    }
}

/// Checks the tables, and makes them if there are none and the purpose is to take locks. Returns whether there are
/// tables: who only looks at a store without them sees an empty one.
///
/// Errors: `backend_rejected` if they may not be made or used, are missing in part, or are of another version;
/// `name_conflict` if a table of another program has one of their names.
pub(crate) async fn prepare(link: &Link<Postgres>, schema: &Schema, purpose: Purpose) -> Result<bool> {
    let mut found = look(link, schema).await.map_err(Failure::into_error)?;
    if found.present.is_empty() {
        if purpose != Purpose::Lock {
            return Ok(false);
        }
        create(link, schema, found.schema_exists).await?;
        found = look(link, schema).await.map_err(Failure::into_error)?;
    }
    check(link, schema, &found, purpose).await?;
    if purpose == Purpose::Lock && link.server.opener.config.is_strict {
        keeps_leases(link).await?;
    }
    Ok(true)
}

/// Errors: `backend_rejected` if a crash of the server may forget a lease, which `guarantee=strict` excludes. Our commits wait
/// for the disk; whether the disk has them is the server's setting.
async fn keeps_leases(link: &Link<Postgres>) -> Result<()> {
    let statement = Statement::new(
        "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name",
        vec![],
    );
    let answers = link.ask(&[statement], false).await.map_err(Failure::into_error)?;
    let Some(name) = answers[0].first().map(|row| row.text(0)) else { return Ok(()) };
    Err(Error::new(
        ErrorKind::BackendRejected,
        format!(
            "guarantee=strict: {name} is off on this PostgreSQL server, so a crash may forget a lease that is held; set it \
             to on, or leave guarantee=strict out"
        ),
    ))
}

/// Whether a client of this user would make the tables.
pub(crate) async fn can_create(link: &Link<Postgres>, schema: &Schema) -> Result<bool> {
    let answers = link.ask(&[may_create(schema)], false).await.map_err(Failure::into_error)?;
    Ok(answers[0].first().is_some_and(|row| row.int(0) != 0))
}

async fn look(link: &Link<Postgres>, schema: &Schema) -> std::result::Result<Found, Failure> {
    let answers = link.ask(&[tables(schema)], false).await?;
    Ok(Found::read(&answers[0]))
}

async fn create(link: &Link<Postgres>, schema: &Schema, schema_exists: bool) -> Result<()> {
    let lent = link.lend().await.map_err(Failure::into_error)?;
    let made = async {
        let answers = lent.session.ask(&[begin(), schema.alone(), tables(schema)], false).await?;
        let found = Found::read(&answers[2]);
        let mut statements: Vec<Statement> = Vec::new();
        // Another client may have made them meanwhile.
        if found.present.is_empty() {
            let create = schema.create(found.schema_exists);
            statements.extend(create.into_iter().map(|sql| Statement::new(sql, vec![])));
        }
        statements.push(commit());
        lent.session.ask(&statements, true).await.map(drop)
    }
    .await;
    lent.end(made).await.map_err(|failure| match failure.code() {
        "42501" => {
            let missing =
                if schema_exists { "CREATE on the schema" } else { "CREATE on the database" };
            Error::new(
                ErrorKind::BackendRejected,
                format!(
                    "the schema {:?} has no tables of Polylatch, and this user may not create them; grant {missing}, or \
                     let the owner of the database run what `{}` prints",
                    schema.name(),
                    command(schema)
                ),
            )
        }
        "42P07" => foreign(schema, "one of them"),
        _ => failure.into_error(),
    })
}

fn foreign(schema: &Schema, table: &str) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the schema {:?} has a table {table} that is not Polylatch's; it was left as it is; name another schema with \
             schema=",
            schema.name()
        ),
    )
}

/// The command that prints the script.
fn command(schema: &Schema) -> String {
    format!("polylatch schema postgres --schema {}", schema.name())
}

async fn check(link: &Link<Postgres>, schema: &Schema, found: &Found, purpose: Purpose) -> Result<()> {
    let name = schema.name();
    let rejected = |message: String| Err(Error::new(ErrorKind::BackendRejected, message));
    if !found.present.iter().any(|table| table == TABLES[0].name) {
        let table = found.present.first().map_or("", String::as_str);
        return Err(foreign(schema, table));
    }
    let (refused, role) = match purpose {
        Purpose::Look => (&found.not_read, "--inspectors"),
        Purpose::Lock | Purpose::Examine => (&found.not_used, "--clients"),
    };
    if let Some(table) = refused.first() {
        let table = if table.is_empty() { "the schema" } else { table };
        return rejected(format!(
            "this user may not use {table} in the schema {name:?}; grant it what `{} {role} ROLE` prints",
            command(schema)
        ));
    }
    let version = match link.ask(&[schema.version()], false).await {
        Ok(answers) => answers[0].first().map(|row| row.int(0)),
        Err(failure) if failure.code() == "42703" => None,
        Err(failure) => return Err(failure.into_error()),
    };
    match version {
        None => return Err(foreign(schema, TABLES[0].name)),
        Some(VERSION) => {}
        Some(version) if version > VERSION => {
            return rejected(format!(
                "the tables in the schema {name:?} are of version {version}, and this version of Polylatch reads \
                 {VERSION}; use a newer Polylatch, or another schema with schema="
            ));
        }
        Some(version) => {
            return rejected(format!(
                "the tables in the schema {name:?} are of version {version}, which no release of Polylatch has written; \
                 use another schema with schema="
            ));
        }
    }
    if let Some(missing) =
        TABLES.iter().find(|table| !found.present.iter().any(|present| present == table.name))
    {
        return rejected(format!(
            "the schema {name:?} has no table {}; let its owner run what `{}` prints, which adds what is missing",
            missing.name,
            command(schema)
        ));
    }
    if purpose == Purpose::Look {
        return Ok(());
    }
    // Their columns, and the right to lock rows.
    let none = [String::new()];
    let statements = [schema.lock(&none), schema.leases(&none), schema.front(&none, 1)];
    match link.ask(&statements, false).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.code() == "42703" => Err(foreign(schema, "of another form")),
        Err(failure) => Err(failure.into_error()),
    }
}
