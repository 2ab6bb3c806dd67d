//! The order service that the workers call, and what it has sold.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What an order takes: long enough for a second press of the button to come in between.
const ORDERING: Duration = Duration::from_millis(5);

/// Items that are sold one by one; it takes any number of orders of one buyer.
pub struct Shop {
    items: usize,
    orders: Mutex<Vec<String>>,
}

impl Shop {
    /// Begins to serve; its threads end with the process.
    pub fn open(items: usize) -> std::io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let place = listener.local_addr()?;
        let shop = Arc::new(Self { items, orders: Mutex::default() });
        let serving = Arc::clone(&shop);
        thread::spawn(move || {
            for wire in listener.incoming().map_while(Result::ok) {
                let shop = Arc::clone(&serving);
                // A worker that is killed cuts its connection.
                thread::spawn(move || shop.serve(&wire));
            }
        });
        Ok((shop, place))
    }

    /// The orders of each buyer.
    pub fn sold(&self) -> BTreeMap<String, Vec<String>> {
        let mut sold = BTreeMap::<_, Vec<_>>::new();
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, buyer) in orders.iter().enumerate() {
            sold.entry(buyer.clone()).or_default().push(format!("order {}", number + 1));
        }
        sold
    }

    fn serve(&self, wire: &TcpStream) -> Option<()> {
        for line in BufReader::new(wire).lines().map_while(Result::ok) {
            let answer = match line.split_once(' ')? {
                ("find", buyer) => {
                    self.sold().remove(buyer).map_or_else(|| "none".into(), |mut all| all.remove(0))
                }
                ("order", buyer) => self.order(buyer),
                _ => return None,
            };
            (&mut &*wire).write_all(format!("{answer}\n").as_bytes()).ok()?;
        }
        None
    }

    fn order(&self, buyer: &str) -> String {
        let is_sold_out = || self.orders.lock().unwrap_or_else(PoisonError::into_inner).len() >= self.items;
        if is_sold_out() {
            return "sold out".into();
        }
        thread::sleep(ORDERING);
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.len() >= self.items {
            return "sold out".into();
        }
        orders.push(buyer.to_owned());
        format!("order {}", orders.len())
    }
}
