//! `polylatch exporter`: metrics of stores for Prometheus.

mod serve;
mod text;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use polylatch::inspect::Query;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::exit;
use super::paint::say;
use super::settled::{settle, unread};
use super::signals::asked_to_end;
use super::store::{Failure, Store, print_text, refuse_memory};
use host::duration::parse_duration;
use host::poll::{Poller, Target, Told, ViewerClock};
use model::text::sanitized;
use model::{Connection, ConnectionId, Environment, Fleet, Report};

/// Serve metrics of locks for Prometheus
///
/// Follows one or more stores as `polylatch watch` does and serves what is known at /metrics. The programs that use
/// the locks need no change. A scrape sends no request to a store. /healthz answers while the exporter runs.
///
/// A store that cannot be read has polylatch_store_up 0 and the reason's code; what is not known about it then is left
/// out, instead of being 0.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct ExporterArgs {
    /// Only locks whose name starts with this
    prefix: Option<String>,

    /// Another store to follow; may be repeated
    #[arg(long, value_name = "URL", hide_env_values = true)]
    also: Vec<String>,

    /// Where to listen; the metrics name locks only with --per-lock, but anyone who can connect can read them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9766")]
    listen: SocketAddr,

    /// How often to read the stores, 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_every)]
    every: Duration,

    /// Also other libraries' locks whose keys match, such as lock:* (Redis)
    #[arg(long, value_name = "PATTERN")]
    foreign: Option<String>,

    /// Also series for each lock whose name matches, such as 'nightly/*'; at most 500 for each store
    ///
    /// `*` stands for any text, `?` for one character. How many were left out is a metric.
    #[arg(long, value_name = "PATTERN")]
    per_lock: Option<String>,

    /// Print the metrics once and end, for a file that node_exporter collects
    #[arg(long, conflicts_with = "listen")]
    once: bool,
}

const HELP: &str = "\
Examples:
  polylatch exporter --url redis://cache:6379
  polylatch exporter --also consul://localhost:8500 --listen 0.0.0.0:9766
  polylatch exporter --per-lock 'nightly/*'
  polylatch exporter --once > polylatch.prom.new
  mv polylatch.prom.new /var/lib/node_exporter/polylatch.prom

A dashboard for Grafana is inspector/grafana/polylatch.json.

Exit codes:
  0    ended by SIGINT, SIGTERM or SIGHUP; with --once, also if a store is down
  64   the command line or a URL is wrong
  74   the address cannot be listened on, or the output cannot be written";

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(60);
    if range.contains(&every) { Ok(every) } else { Err(format!("{text:?} is not between 100ms and 1m")) }
}

/// What is known, as the scrapes see it.
#[derive(Debug, Default)]
struct Known {
    fleet: Fleet,
    /// Stable codes of why stores cannot be read.
    codes: HashMap<ConnectionId, &'static str>,
    /// Requests sent to each store.
    requests: HashMap<ConnectionId, u64>,
    scrapes: u64,
}

pub(super) async fn exporter(url: Option<&str>, args: &ExporterArgs) -> Result<u8, Failure> {
    refuse_memory(url)?;
    let mut urls = vec![url];
    for also in &args.also {
        refuse_memory(Some(also))?;
        urls.push(Some(also));
    }
    let stores: Vec<(ConnectionId, Option<&str>)> = labels(&urls).into_iter().zip(urls).collect();
    if args.once { once(&stores, args).await } else { follow(&stores, args).await }
}

async fn once(stores: &[(ConnectionId, Option<&str>)], args: &ExporterArgs) -> Result<u8, Failure> {
    let mut known = Known::default();
    let query = Query { prefix: args.prefix.clone(), foreign: args.foreign.clone(), ..Query::default() };
    for (id, url) in stores {
        let read = async {
            let store = Store::open(*url, None).await?;
            settle(&mut known.fleet, id, &store, &query, &[], &|_| false).await
        };
        match read.await {
            Ok(requests) => drop(known.requests.insert(id.clone(), requests)),
            Err(failure) if failure.code == exit::USAGE => return Err(failure),
            Err(failure) => {
                say(&format!("{}: {}", sanitized(id.as_str()), failure.message));
                known.codes.insert(id.clone(), failure.error_code.unwrap_or("internal"));
                unread(&mut known.fleet, id, &failure);
            }
        }
    }
    let text = text::write(&mut known, ViewerClock::start().now_ms(), args.per_lock.as_deref());
    print_text(text.as_bytes())?;
    Ok(0)
}

async fn follow(stores: &[(ConnectionId, Option<&str>)], args: &ExporterArgs) -> Result<u8, Failure> {
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let message =
            format!("cannot listen on {}: {error}; choose another address with --listen", args.listen);
        Failure::new(exit::SYSTEM, message)
    })?;
    let address = listener.local_addr()?;
    let clock = ViewerClock::start();
    let news = Arc::<Notify>::default();
    let wake = Arc::clone(&news);
    let (poller, told) = Poller::start(clock, Arc::new(move || wake.notify_one()))?;
    let known = Arc::<Mutex<Known>>::default();
    for (id, url) in stores {
        unpoisoned(&known).fleet.connect(Connection {
            id: id.clone(),
            shown_url: id.as_str().to_owned(),
            command: "polylatch".into(),
            environment: Environment::Development,
            read_only: true,
        });
        let mut target = Target::new(id.clone(), url.unwrap_or_default()).evenly(args.every);
        (target.prefix, target.foreign) = (args.prefix.clone(), args.foreign.clone());
        target.read_only = true;
        poller.watch(target);
    }
    let mut ended = std::pin::pin!(asked_to_end()?);
    say(&format!("serving http://{address}/metrics; Ctrl-C ends it"));

    let server = serve::serve(listener, Arc::clone(&known), clock, args.per_lock.clone());
    let mut server = std::pin::pin!(server);
    loop {
        tokio::select! {
            () = &mut ended => return Ok(0),
            never = &mut server => match never {},
            () = news.notified() => {}
        }
        let mut known = unpoisoned(&known);
        for told in told.try_iter() {
            match told {
                Told::Connected(connection) => known.fleet.connect(connection),
                Told::Update(update) => {
                    note(&mut known, &poller, &update)?;
                    known.fleet.ingest(update);
                }
                Told::Broken(_) | Told::Records(_) => {}
            }
        }
    }
}

/// Keeps what the snapshot does not have. A URL that is wrong will stay so: that ends the program.
fn note(known: &mut Known, poller: &Poller, update: &model::Update) -> Result<(), Failure> {
    let id = &update.connection;
    match &update.report {
        Report::Polled(polled) => {
            *known.requests.entry(id.clone()).or_default() += u64::from(polled.snapshot.requests);
            if known.codes.remove(id).is_some() {
                say(&format!("{} is read again", sanitized(id.as_str())));
            }
        }
        Report::Failed { message, .. } => {
            let code = poller.error_code(id).unwrap_or("backend_unavailable");
            let message = format!("{}: {}", sanitized(id.as_str()), sanitized(message));
            if matches!(code, "invalid_config" | "invalid_argument") {
                return Err(Failure::new(exit::USAGE, message));
            }
            if known.codes.insert(id.clone(), code) != Some(code) {
                say(&message);
            }
        }
    }
    Ok(())
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What each store is called in labels: its URL without user, password and options, numbered where two look alike. It
/// is known before the store was reached, and stays.
fn labels(urls: &[Option<&str>]) -> Vec<ConnectionId> {
    let shown: Vec<String> = urls.iter().map(|url| label(*url)).collect();
    let id = |(at, one): (usize, &String)| {
        let before = shown[..at].iter().filter(|other| *other == one).count();
        ConnectionId::new(&if before == 0 { one.clone() } else { format!("{one} ({})", before + 1) })
    };
    shown.iter().enumerate().map(id).collect()
}

fn label(url: Option<&str>) -> String {
    let Some((scheme, rest)) = url.and_then(|url| url.split_once(':')) else { return "default".into() };
    // A password may have any character, also one that should have been encoded: only what follows the last `@`
    // certainly has none of it.
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    if scheme != "sqlite" && rest.split_once('?').is_some_and(|(_, options)| options.contains('@')) {
        return scheme.into();
    }
    let place = place.split('?').next().unwrap_or_default();
    if rest.starts_with("//") && !place.starts_with("//") {
        format!("{scheme}://{place}")
    } else {
        format!("{scheme}:{place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_no_secret_and_differ() {
        for (url, shown) in [
            ("redis://cache:6379", "redis://cache:6379"),
            ("redis://cache/2?prefix=a", "redis://cache/2"),
            ("redis://ann:s3cret@cache", "redis://cache"),
            ("redis://:s3/cr?et@cache?x=1", "redis"),
            ("redis://:s3cr/e,t@cache", "redis://cache"),
            ("redis://cache?password=s3c@ret", "redis"),
            ("redlock://:s3cret@a,b,c", "redlock://a,b,c"),
            ("sqlite:/var/lib/locks.db?x=1", "sqlite:/var/lib/locks.db"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
        ] {
            assert_eq!(label(Some(url)), shown, "{url}");
        }
        let twice = labels(&[Some("redis://:a@cache"), Some("redis://:b@cache"), None]);
        let twice: Vec<_> = twice.iter().map(ConnectionId::as_str).collect();
        assert_eq!(twice, ["redis://cache", "redis://cache (2)", "default"]);
    }
}
