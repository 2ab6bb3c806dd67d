use std::sync::mpsc;
use std::time::Duration;

use polylatch::{LostReason, Polylatch};

use super::*;
use crate::blocking::run_interruptible;
use crate::options::{ConnectOptions, OptionValue};

fn run<T>(call: impl Future<Output = T>) -> T {
    run_interruptible(call, || Ok::<(), ()>(())).expect("not interrupted")
}

/// A queue that rings, and what connects a client to it.
fn queue(number: u64, level: Level) -> (Arc<Events>, mpsc::Receiver<()>, ConnectOptions) {
    let (ring, rung) = mpsc::channel();
    let ring = Mutex::new(ring);
    let events = Events::new(move || {
        let _ = unpoisoned(&ring).send(());
    });
    let to = Arc::clone(&events);
    let listener = Listener { events: Arc::new(move || Ok(Arc::clone(&to))), number, level: Some(level) };
    let url = Some(format!("memory:events-{number}"));
    (events, rung, ConnectOptions { url, listener: Some(listener), ..ConnectOptions::default() })
}

async fn a_short_life(client: &Polylatch) {
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let lost = client.lock("b").lease(Duration::from_millis(100)).renew(false).acquire().await.unwrap();
    assert_eq!(lost.lost().await, LostReason::Expired);
}

/// Takes until the end of the number has come.
fn all(events: &Events, rung: &mpsc::Receiver<()>) -> Vec<Heard> {
    let mut heard = Vec::new();
    while !matches!(heard.last(), Some(Heard::Ended(_))) {
        rung.recv_timeout(Duration::from_secs(30)).expect("more comes");
        heard.extend(events.take());
    }
    heard
}

#[test]
fn one_client_is_heard_to_its_end_and_another_only_where_it_matters() {
    let (all_events, rung, options) = queue(7, Level::Debug);
    let (warnings, rung_too, quiet) = queue(8, Level::Info);
    run(async {
        for options in [&options, &quiet] {
            let (client, route) = options.connect().await.unwrap();
            a_short_life(&client).await;
            // Told after the guard, by the thread that watches over leases.
            client.close().await;
            while !unpoisoned(&route.as_ref().unwrap().to.events.waiting).heard.iter().any(is_loss) {
                std::thread::yield_now();
            }
            drop(route);
        }
    });
    let heard = all(&all_events, &rung);
    let names: Vec<_> =
        heard.iter().filter_map(|heard| event(heard).map(|event| event.name.as_str())).collect();
    assert_eq!(names.iter().filter(|name| **name == "acquired").count(), 2, "{names:?}");
    assert!(
        heard.iter().all(|heard| matches!(heard, Heard::Event(_, Some(7)) | Heard::Ended(7))),
        "{heard:?}"
    );
    let lost = heard.iter().filter_map(event).find(|event| event.name == "lost").expect("a loss");
    assert_eq!(lost.level, Level::Error);
    let field =
        |name: &str| lost.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    assert_eq!(field("lock"), Some(Value::Text("b".into())));
    assert_eq!(field("reason"), Some(Value::Text("expired".into())));
    assert!(matches!(field("fencing_token"), Some(Value::Number(1..))));
    assert!(lost.line().contains("lost") && lost.line().contains("reason=expired"), "{}", lost.line());
    assert!(lost.client.is_some());

    let heard = all(&warnings, &rung_too);
    assert!(heard.iter().filter_map(event).all(|event| event.level > Level::Debug), "{heard:?}");
    assert!(heard.iter().any(is_loss), "{heard:?}");
}

fn event(heard: &Heard) -> Option<&Event> {
    match heard {
        Heard::Event(event, _) => Some(event),
        Heard::Ended(_) => None,
    }
}

fn is_loss(heard: &Heard) -> bool {
    event(heard).is_some_and(|event| event.name == "lost")
}

#[test]
fn a_host_that_takes_nothing_is_told_how_much_was_dropped() {
    let (events, _rung, _) = queue(9, Level::Info);
    let event = || Event {
        level: Level::Warn,
        name: "notice".into(),
        message: "something".into(),
        client: None,
        fields: Vec::new(),
    };
    for _ in 0..MOST + 3 {
        events.push(Heard::Event(event(), Some(9)));
    }
    events.push(Heard::Ended(9));
    let heard = events.take();
    assert_eq!(heard.len(), MOST + 2);
    assert_eq!(heard[MOST], Heard::Ended(9));
    assert!(matches!(&heard[MOST + 1], Heard::Event(event, None) if event.line().ends_with("(dropped=3)")));
}

#[test]
fn an_inbox_has_the_events_of_its_client_in_their_order_and_then_ends() {
    let inbox = Inbox::new();
    let options = ConnectOptions {
        url: Some("memory:inbox".into()),
        listener: Some(inbox.listener()),
        level: Some(Level::Debug),
        ..ConnectOptions::default()
    };
    let names = run(async {
        let (client, route) = options.connect().await.unwrap();
        let other = Polylatch::connect("memory:inbox").await.unwrap();
        let (_events, _rung, options) = queue(10, Level::Debug);
        let (another, _route) = options.connect().await.unwrap();
        for client in [&client, &other, &another] {
            client.lock("a").acquire().await.unwrap().release().await.unwrap();
        }
        client.close().await;
        drop(route);
        let mut heard = Vec::new();
        while let Some(events) = inbox.next().await {
            heard.extend(events);
        }
        assert!(heard.iter().all(|event| event.client.as_deref() == Some(client.id().as_str())), "{heard:?}");
        heard.into_iter().map(|event| event.name).collect::<Vec<_>>()
    });
    assert_eq!(names, ["acquired", "released"]);
}

/// What a listener of this level hears of a lock that is free, one that is waited for, and one that is lost.
fn heard_at(level: &str) -> Vec<String> {
    let inbox = Inbox::new();
    let mut options = ConnectOptions {
        url: Some(format!("memory:level-{level}")),
        listener: Some(inbox.listener()),
        ..ConnectOptions::default()
    };
    if !level.is_empty() {
        options.set("level", OptionValue::Text(level.into())).unwrap();
    }
    run(async {
        let (client, route) = options.connect().await.unwrap();
        client.lock("a").acquire().await.unwrap().release().await.unwrap();
        let holder = Polylatch::connect(options.url.as_ref().unwrap()).await.unwrap();
        let held = holder.lock("a").acquire().await.unwrap();
        let wanted = client.lock("a");
        let (waited, released) = tokio::join!(wanted.acquire(), async {
            while holder.stats().waiting + client.stats().waiting == 0 {
                tokio::task::yield_now().await;
            }
            held.release().await
        });
        released.unwrap();
        waited.unwrap().release().await.unwrap();
        let lost = client.lock("b").lease(Duration::from_millis(100)).renew(false).acquire().await.unwrap();
        assert_eq!(lost.lost().await, LostReason::Expired);
        let mut heard = Vec::new();
        while heard.last().is_none_or(|event: &Event| event.name != "lost") {
            heard.extend(inbox.next().await.expect("the loss comes"));
        }
        client.close().await;
        drop(route);
        heard.iter().map(|event| format!("{} {}", event.level.word(), event.name)).collect()
    })
}

#[test]
fn a_listener_hears_its_level_and_above_and_by_default_no_lock_that_was_free() {
    let usual = ["info waiting", "info acquired", "error lost"];
    assert_eq!(heard_at(""), usual);
    assert_eq!(heard_at("info"), usual);
    assert_eq!(heard_at("warn"), ["error lost"]);
    assert_eq!(heard_at("error"), ["error lost"]);
    let all = heard_at("debug");
    let first = ["debug acquired", "debug released", "info waiting", "info acquired", "debug released"];
    assert_eq!((&all[..5], all.last().unwrap().as_str()), (&first.map(String::from)[..], "error lost"));
}

#[test]
fn a_level_that_there_is_not_is_refused_with_those_that_there_are() {
    for level in ["", "loud", "INFO", "warning"] {
        let mut options = ConnectOptions::default();
        let failure = options.set("level", OptionValue::Text(level.into())).unwrap_err();
        assert_eq!(failure.code, "invalid_config");
        let rule = format!(
            "the option level is {level:?}; it must be one of error, warn, info, debug (invalid_config)"
        );
        assert_eq!(failure.message, rule);
    }
    assert!(ConnectOptions::default().set("level", OptionValue::Number(3.0)).is_err());
}
