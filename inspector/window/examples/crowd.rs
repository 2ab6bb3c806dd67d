//! For the window's test: clients that wait for each other in a ring, or many tasks in one queue.
//!
//! `crowd URL ring 12` or `crowd URL queue 500`; it ends with its standard input.

use std::io::Read as _;

use polylatch::blocking::Polylatch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, kind, number] = arguments.as_slice() else { return Err("crowd URL ring|queue NUMBER".into()) };
    let number: usize = number.parse()?;
    let mut held = Vec::new();
    if kind == "ring" {
        let clients: Vec<Polylatch> =
            (0..number).map(|_| Polylatch::connect(url)).collect::<Result<_, _>>()?;
        for (at, client) in clients.iter().enumerate() {
            held.push(client.lock(format!("ring/{at}")).label(format!("task {at}")).acquire()?);
        }
        for (at, client) in clients.into_iter().enumerate() {
            let (wanted, label) = (format!("ring/{}", (at + 1) % number), format!("task {at}"));
            std::thread::spawn(move || drop(client.lock(wanted).label(label).acquire()));
        }
    } else {
        let client = Polylatch::connect(url)?;
        held.push(client.lock("queue").label("first").acquire()?);
        for at in 0..number {
            let client = client.clone();
            let label = format!("job {at}");
            std::thread::spawn(move || drop(client.lock("queue").label(label).acquire()));
        }
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Threads that wait for ever end with the process.
    std::process::exit(0)
}
