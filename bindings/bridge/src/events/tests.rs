use std::sync::mpsc;
use std::time::Duration;

use polylatch::{LostReason, Polylatch};

use super::*;
use crate::blocking::run_interruptible;
use crate::options::ConnectOptions;

fn run<T>(call: impl Future<Output = T>) -> T {
    run_interruptible(call, || Ok::<(), ()>(())).expect("not interrupted")
}

/// A queue that rings, and what connects a client to it.
fn queue(number: u64, wants_debug: bool) -> (Arc<Events>, mpsc::Receiver<()>, ConnectOptions) {
    let (ring, rung) = mpsc::channel();
    let ring = Mutex::new(ring);
    let events = Events::new(move || {
        let _ = unpoisoned(&ring).send(());
    });
    let to = Arc::clone(&events);
    let listener = Listener { events: Arc::new(move || Ok(Arc::clone(&to))), number, wants_debug };
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
    let (all_events, rung, options) = queue(7, true);
    let (warnings, rung_too, quiet) = queue(8, false);
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
    let (events, _rung, _) = queue(9, false);
    let event = || Event {
        level: Level::Warning,
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
        ..ConnectOptions::default()
    };
    let names = run(async {
        let (client, route) = options.connect().await.unwrap();
        let other = Polylatch::connect("memory:inbox").await.unwrap();
        let (_events, _rung, options) = queue(10, true);
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
