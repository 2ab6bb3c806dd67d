//! What the Node figures stand beside: the floor over blocking sockets, and the Rust API. One order a
//! line (`floor COUNT`, `pipeline COUNT`, `api COUNT`, `tasks COUNT`, `memory COUNT`), one number a line.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use polylatch::Polylatch;
use tokio::runtime::{Builder, Runtime};

const GIVE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const TASKS: usize = 64;

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

struct Wire(BufReader<TcpStream>);

impl Wire {
    fn send(&mut self, words: &[&str]) -> Fallible {
        Ok(self.0.get_mut().write_all(encoded(words).as_bytes())?)
    }

    fn line(&mut self) -> Fallible<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, words: &[&str]) -> Fallible<String> {
        self.send(words)?;
        self.line()
    }
}

fn encoded(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text
}

fn main() -> Fallible {
    let port = std::env::args().nth(1).ok_or("the port of a Redis server is needed")?;
    let stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_nodelay(true)?;
    let mut wire = Wire(BufReader::new(stream));
    wire.send(&["SCRIPT", "LOAD", GIVE])?;
    wire.line()?;
    let sha = wire.line()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Polylatch::connect(&format!("redis://127.0.0.1:{port}")))?;
    let memory = runtime.block_on(Polylatch::connect("memory:reference"))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (order, count) = line.split_once(' ').ok_or("ORDER COUNT is needed")?;
        let count: usize = count.parse()?;
        let number = match order {
            "floor" => median_micros(count, || {
                wire.ask(&["SET", "floor", "token", "NX", "PX", "10000"])?;
                wire.ask(&["EVALSHA", &sha, "1", "floor", "token"])?;
                Ok(())
            })?,
            "pipeline" => pipeline(&mut wire, &sha, count)?,
            "api" => api(&runtime, &client, count)?,
            "memory" => api(&runtime, &memory, count)?,
            "tasks" => tasks(&runtime, &client, count)?,
            _ => return Err(format!("there is no order {order:?}").into()),
        };
        println!("{number}");
    }
    Ok(())
}

fn median_micros(count: usize, mut pair: impl FnMut() -> Fallible) -> Fallible<f64> {
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        pair()?;
        samples.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

/// Pairs a second, 64 deep on one connection.
fn pipeline(wire: &mut Wire, sha: &str, count: usize) -> Fallible<f64> {
    let mut batch = String::new();
    for key in 0..TASKS {
        let key = format!("floor-{key}");
        batch.push_str(&encoded(&["SET", &key, "token", "NX", "PX", "10000"]));
    }
    let mut gives = String::new();
    for key in 0..TASKS {
        let key = format!("floor-{key}");
        gives.push_str(&encoded(&["EVALSHA", sha, "1", &key, "token"]));
    }
    let rounds = count.div_ceil(TASKS);
    let (mut oks, mut ones) = (vec![0; TASKS * "+OK\r\n".len()], vec![0; TASKS * ":1\r\n".len()]);
    let started = Instant::now();
    for _ in 0..rounds {
        wire.0.get_mut().write_all(batch.as_bytes())?;
        wire.0.read_exact(&mut oks)?;
        wire.0.get_mut().write_all(gives.as_bytes())?;
        wire.0.read_exact(&mut ones)?;
    }
    Ok((rounds * TASKS) as f64 / started.elapsed().as_secs_f64())
}

fn api(runtime: &Runtime, client: &Polylatch, count: usize) -> Fallible<f64> {
    let lock = client.lock("reference");
    runtime.block_on(async {
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            lock.acquire().await?.release().await?;
            samples.push(started.elapsed().as_nanos() as f64 / 1e3);
        }
        samples.sort_by(f64::total_cmp);
        Ok(samples[samples.len() / 2])
    })
}

fn tasks(runtime: &Runtime, client: &Polylatch, count: usize) -> Fallible<f64> {
    let each = count.div_ceil(TASKS);
    let started = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let lock = client.lock(format!("reference-{task}"));
                tokio::spawn(async move {
                    for _ in 0..each {
                        lock.acquire().await?.release().await?;
                    }
                    Ok::<(), polylatch::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok((each * TASKS) as f64 / started.elapsed().as_secs_f64())
    })
}
