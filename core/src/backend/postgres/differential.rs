//! The statements against the specification, on a real server whose clock is a table.
//!
//! The role of this test finds a function `clock_timestamp` in a schema of its own before the server's.

use polylatch_test_services::postgres::PostgresServer;

use crate::backend::rows::server::differential::{Tables, run, run_by_hand, seeds};
use crate::backend::rows::server::value::Statement;
use crate::params::take_apart;

use super::PostgresConfig;
use super::server::Postgres;

#[test]
#[ignore = "starts a PostgreSQL server; run with --ignored"]
fn every_statement_answers_and_leaves_what_the_specification_says() {
    // What is compared is not whether the disk keeps it.
    let server = PostgresServer::with(&["fsync=off", "synchronous_commit=off"]);
    server.sql(
        "CREATE ROLE tester LOGIN SUPERUSER; CREATE SCHEMA clock; CREATE TABLE clock.present (us bigint); \
         INSERT INTO clock.present VALUES (0); \
         CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS \
         $$ SELECT 'epoch'::timestamptz + us * interval '1 microsecond' FROM clock.present $$; \
         ALTER ROLE tester SET search_path = clock, pg_catalog",
    );
    let tables = |schema: &str| {
        let url = format!("{}?schema={schema}", server.url_of("tester"));
        let (scheme, target, mut params) = take_apart(&url).unwrap().unwrap();
        let config = PostgresConfig::from_url(scheme, target, &mut params).unwrap();
        let set_clock =
            |ms: i64| Statement::new("UPDATE clock.present SET us = $1", vec![(ms * 1000).into()]);
        Tables::new(Postgres::new(config).unwrap(), set_clock)
    };
    run_by_hand(&tables("by_hand"));
    for seed in seeds(60) {
        run(&tables(&format!("seed_{seed}")), seed);
        server.sql(&format!("DROP SCHEMA seed_{seed} CASCADE"));
    }
}
