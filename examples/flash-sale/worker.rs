//! A worker of the flash sale: `flash_sale_worker URL SHOP`. See README.md.
//!
//! A line in is a buyer, a line out the buyer's answer: `order 17`, `sold out`, or `busy` (ask again later).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use polylatch::Polylatch;
use polylatch::idempotency::{Failure, RunError, RunOptions};

/// The order service of another team. It has no key that would refuse a second order of one buyer.
struct Shop(BufReader<TcpStream>);

impl Shop {
    fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    fn order(
        &mut self,
        buyer: &str,
        check: impl FnOnce() -> polylatch::Result<()>,
    ) -> Result<String, Box<dyn std::error::Error>> {
        // What a run before this one may have ordered, if it died before it could say so.
        let before = self.ask(&format!("find {buyer}"))?;
        if before != "none" {
            return Ok(before);
        }
        // Another worker may have taken over from one that stood still.
        check()?;
        Ok(self.ask(&format!("order {buyer}"))?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, place, how @ ..] = args.as_slice() else {
        return Err("usage: flash_sale_worker URL SHOP".into());
    };
    let mut shop = Shop(BufReader::new(TcpStream::connect(place)?));
    let client = Polylatch::connect(url).await?;
    let lease = Duration::from_secs(4);
    for buyer in std::io::stdin().lock().lines() {
        let buyer = buyer?;
        let answer = if how.iter().any(|word| word == "--without-idempotency") {
            shop.order(&buyer, || Ok(()))?
        } else {
            let scope = client.idempotency(format!("flash-sale/{buyer}"));
            let options = RunOptions::new().lease(lease).no_wait().payload(b"one item");
            let (shop, buyer) = (&mut shop, &buyer);
            // One order for each buyer, however often the button is pressed.
            let outcome = scope.run_json("order", &options, |claim| async move {
                shop.order(buyer, || claim.check()).map_err(|error| Failure::freed(error.to_string()))
            });
            match outcome.await {
                Ok(outcome) => outcome.into_value(),
                Err(RunError::InProgress { .. } | RunError::NotRecorded { .. }) => "busy".to_owned(),
                Err(error) => return Err(error.into()),
            }
        };
        println!("{answer}");
    }
    client.close().await;
    Ok(())
}
