//! `polylatch schema`: the tables of a store, for operators who make them themselves.

use clap::{Args, Subcommand};
use polylatch::{MysqlRole, PostgresRole, mysql_grants, mysql_schema, postgres_grants, postgres_schema};

use super::store::{Failure, print_text};

/// Print the tables that a store needs, and the rights of its users
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    #[command(subcommand)]
    store: Store,
}

#[derive(Debug, Subcommand)]
enum Store {
    Mysql(MysqlArgs),
    Postgres(PostgresArgs),
}

/// Print the SQL script of the tables in a PostgreSQL database
///
/// The script is one transaction, and run again it changes nothing. It refuses a schema with tables of another program or of
/// another version. Without it, the first client makes the same tables if its user may create them.
///
/// Nothing is connected to.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct PostgresArgs {
    /// The schema of the tables, as in the option schema= of a URL
    #[arg(long, value_name = "NAME", default_value = "polylatch")]
    schema: String,

    /// Also print the grants for this role, which acquires, waits, releases and breaks; may be repeated
    #[arg(long, value_name = "ROLE")]
    clients: Vec<String>,

    /// Also print the grants for this role, which looks and changes nothing; may be repeated
    #[arg(long, value_name = "ROLE")]
    inspectors: Vec<String>,
}

/// Print the SQL script of the tables in a MySQL or MariaDB database
///
/// The script makes the tables in the current database, and run again it changes nothing. Without it, the first client makes
/// the same tables if its user may create them.
///
/// Nothing is connected to.
#[derive(Debug, Args)]
#[command(after_help = MYSQL_HELP)]
struct MysqlArgs {
    /// Also print the grants for this user, which acquires, waits, releases and breaks; may be repeated
    #[arg(long, value_name = "USER[@HOST]")]
    clients: Vec<String>,

    /// Also print the grants for this user, which looks and changes nothing; may be repeated
    #[arg(long, value_name = "USER[@HOST]")]
    inspectors: Vec<String>,
}

const MYSQL_HELP: &str = "\
Examples:
  polylatch schema mysql
  polylatch schema mysql --clients app --inspectors oncall@10.% | mysql shop

The users must exist: CREATE USER app IDENTIFIED BY '...'. Without a host \
USER is USER@%. A user of inspectors sees names, holders and waiters, and no \
owner token; it can use ls, show, watch and graph, and not break.";

const HELP: &str = "\
Examples:
  polylatch schema postgres
  polylatch schema postgres --clients app --inspectors oncall | psql -d shop

The roles must exist: CREATE ROLE app LOGIN PASSWORD '...'. A role of \
inspectors sees names, holders and waiters, and no owner token; it can use \
ls, show, watch and graph, and not break.";

pub(super) fn schema(args: &SchemaArgs) -> Result<u8, Failure> {
    let args = match &args.store {
        Store::Postgres(args) => args,
        Store::Mysql(args) => return mysql(args),
    };
    let mut text = postgres_schema(&args.schema)?;
    let roles = |kind, roles: &[String]| -> Result<String, Failure> {
        let grants: Result<Vec<_>, _> =
            roles.iter().map(|role| postgres_grants(&args.schema, kind, role)).collect();
        Ok(grants?.concat())
    };
    text += &roles(PostgresRole::Client, &args.clients)?;
    text += &roles(PostgresRole::Inspector, &args.inspectors)?;
    print_text(text.as_bytes())?;
    Ok(0)
}

fn mysql(args: &MysqlArgs) -> Result<u8, Failure> {
    let mut text = mysql_schema();
    for (kind, users) in [(MysqlRole::Client, &args.clients), (MysqlRole::Inspector, &args.inspectors)] {
        for user in users {
            text += "\n";
            text += &mysql_grants(kind, user)?;
        }
    }
    print_text(text.as_bytes())?;
    Ok(0)
}
