//! Servers to look at: starts them, prints their URL, and ends them when its input ends.
//!
//! `cargo run -p polylatch-inspector --example stores -- redlock` (three Redis servers, one of them down), or
//! `consul` (an agent of its own)

#[cfg(not(unix))]
fn main() {
    println!("needs a Unix system");
}

#[cfg(unix)]
fn main() {
    use std::io::Read;

    use polylatch_test_services::consul::ConsulAgent;
    use polylatch_test_services::redis::RedisServer;

    let kind = std::env::args().nth(1).unwrap_or_default();
    let (mut servers, mut agents) = (Vec::new(), Vec::new());
    match kind.as_str() {
        "redlock" => {
            servers.extend((0..3).map(|_| RedisServer::start()));
            let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
            let url = format!("redlock://{}", places.join(","));
            // A new store begins at once only while all of its nodes answer.
            let client = polylatch::blocking::Polylatch::connect(&url).expect("all nodes answer");
            client.lock("begin").acquire().expect("the store is new").release().expect("it is held");
            client.close();
            servers[2].kill();
            println!("{url}");
        }
        "consul" => {
            agents.push(ConsulAgent::start());
            println!("{}", agents[0].url());
        }
        other => {
            eprintln!("stores: {other:?} is neither redlock nor consul");
            std::process::exit(64);
        }
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
