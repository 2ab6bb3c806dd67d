//! Opening a store: its tables are found and checked, or made.

use crate::backend::Purpose;
use crate::error::{Error, ErrorKind, Result};

use super::protocol::reading::tables;
use super::protocol::schema::{Schema, TABLES, VERSION};
use super::protocol::statements::{begin, commit};
use super::protocol::value::{Cells, Statement};
use super::transport::errors::Failure;
use super::transport::link::Link;

/// Returns the SQL script that creates the tables in `schema`, for operators who do not let programs create them.
///
/// Errors: `invalid_config` if `schema` is no plain identifier (1 to 63 letters, digits and underscores).
pub fn postgres_schema(schema: &str) -> Result<String> {
    let schema = Schema::new(schema).map_err(|rule| Error::new(ErrorKind::InvalidConfig, rule))?;
    Ok(schema.script())
}

/// What stands in the schema.
#[derive(Debug)]
struct Found {
    schema_exists: bool,
    present: Vec<String>,
    /// Tables that this user may not read and write, or that are no ordinary tables.
    refused: Vec<String>,
}

impl Found {
    fn read(rows: &[Cells]) -> Self {
        let mut found = Self { schema_exists: false, present: Vec::new(), refused: Vec::new() };
        for row in rows {
            let (name, is_usable) = (row.text(0), row.int(1) != 0);
            if name.is_empty() {
                found.schema_exists = true;
            } else {
                found.present.push(name.clone());
            }
            if !is_usable {
                found.refused.push(name);
            }
        }
        found
    }
}

/// Checks the tables, and makes them if there are none and the purpose is to take locks.
///
/// Errors: `backend_rejected` if they are missing and may not be made, may not be used, or are of another version;
/// `name_conflict` if a table of another program has one of their names.
pub(crate) async fn prepare(link: &Link, schema: &Schema, purpose: Purpose) -> Result<()> {
    let mut found = look(link, schema).await.map_err(Failure::into_error)?;
    if found.present.is_empty() && purpose == Purpose::Lock {
        create(link, schema, found.schema_exists).await?;
        found = look(link, schema).await.map_err(Failure::into_error)?;
    }
    check(link, schema, &found).await
}

async fn look(link: &Link, schema: &Schema) -> std::result::Result<Found, Failure> {
    let answers = link.ask(&[tables(schema)], false).await?;
    Ok(Found::read(&answers[0]))
}

async fn create(link: &Link, schema: &Schema, schema_exists: bool) -> Result<()> {
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
                     let the owner run the script of postgres_schema({:?})",
                    schema.name(),
                    schema.name()
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

async fn check(link: &Link, schema: &Schema, found: &Found) -> Result<()> {
    let name = schema.name();
    let rejected = |message: String| Err(Error::new(ErrorKind::BackendRejected, message));
    if !found.present.iter().any(|table| table == TABLES[0]) {
        return match found.present.first() {
            Some(table) => Err(foreign(schema, table)),
            None => rejected(format!(
                "the schema {name:?} has no tables of Polylatch; connect a client that takes locks, or run the script of \
                 postgres_schema({name:?})"
            )),
        };
    }
    if let Some(table) = found.refused.first() {
        let table = if table.is_empty() { "the schema" } else { table };
        return rejected(format!(
            "this user may not use {table} in the schema {name:?}; grant USAGE on the schema, SELECT, INSERT, UPDATE and \
             DELETE on its tables, and SELECT and UPDATE on polylatch_schema"
        ));
    }
    let version = match link.ask(&[schema.version()], false).await {
        Ok(answers) => answers[0].first().map(|row| row.int(0)),
        Err(failure) if failure.code() == "42703" => None,
        Err(failure) => return Err(failure.into_error()),
    };
    match version {
        None => Err(foreign(schema, TABLES[0])),
        Some(version) if version > VERSION => rejected(format!(
            "the tables in the schema {name:?} are of version {version}, and this version of Polylatch reads {VERSION}; \
             use a newer Polylatch, or another schema with schema="
        )),
        Some(version) if version < VERSION => rejected(format!(
            "the tables in the schema {name:?} are of version {version}, which no release of Polylatch has written"
        )),
        Some(_) => {
            if let Some(missing) =
                TABLES.iter().find(|table| !found.present.iter().any(|present| present == *table))
            {
                return rejected(format!(
                    "the schema {name:?} has no table {missing}; run the script of postgres_schema({name:?}) in an \
                     empty schema, or restore it"
                ));
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
    }
}
