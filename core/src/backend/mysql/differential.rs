//! The statements against the specification, on a real server whose clock is set for the session.

use std::time::Duration;

use polylatch_test_services::mariadb::MariadbServer;

use crate::backend::rows::server::differential::{Tables, run, run_by_hand, seeds};
use crate::backend::rows::server::value::Statement;
use crate::params::take_apart;

use super::MysqlConfig;
use super::server::Mysql;
use super::transport::session::Opener;

#[test]
#[ignore = "starts a MariaDB server; run with --ignored"]
fn every_statement_answers_and_leaves_what_the_specification_says() {
    // What is compared is not whether the disk keeps it.
    let server = MariadbServer::with(&["innodb-flush-log-at-trx-commit=0"]);
    let tables = |database: &str| {
        server.sql(&format!("CREATE DATABASE {database}"));
        let url = server.url_of("root", database);
        let (scheme, target, mut params) = take_apart(&url).unwrap().unwrap();
        let config = MysqlConfig::from_url(scheme, target, &mut params).unwrap();
        let opener = Opener::new(config, Duration::from_secs(20)).unwrap();
        let set_clock = |ms: i64| {
            let (seconds, rest) = (ms / 1000, ms % 1000);
            Statement::new(format!("SET SESSION timestamp = {seconds}.{rest:03}"), vec![])
        };
        let mysql = Mysql { opener, doorbell: None, records_each_heartbeat: true };
        Tables::new(mysql, set_clock)
    };
    run_by_hand(&tables("by_hand"));
    for seed in seeds(20) {
        run(&tables(&format!("seed_{seed}")), seed);
        server.sql(&format!("DROP DATABASE seed_{seed}"));
    }
}
