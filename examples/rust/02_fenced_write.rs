//! Why a lock alone is not enough, and what a fencing token does about it.
//!
//! The first holder is paused for longer than its lease, as by a long garbage collection or a
//! suspended laptop. When it wakes up, another client holds the lock; its late write is refused by
//! the resource, because the resource has seen a newer token.

use std::time::Duration;

use polylatch::{FencingToken, LostReason, Polylatch, TokenGate};

/// What the lock protects: it lets only the newest holder write.
#[derive(Default)]
struct Account {
    gate: TokenGate,
    balance: i64,
}

impl Account {
    fn set(&mut self, balance: i64, token: FencingToken) -> polylatch::Result<()> {
        self.gate.admit(token)?;
        self.balance = balance;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> polylatch::Result<()> {
    let url = std::env::var("POLYLATCH_URL").unwrap_or_else(|_| "memory:fenced-write".into());
    let client = Polylatch::connect(&url).await?;
    let mut account = Account::default();

    // Without renewal this lease ends as it does for a holder whose whole process stands still.
    let paused = client.lock("account/7").lease(Duration::from_millis(200)).renew(false).acquire().await?;
    println!("first holder has token {} and is paused", paused.fencing_token());

    let next = client.lock("account/7").wait(Duration::from_secs(5)).acquire().await?;
    account.set(150, next.fencing_token())?;
    println!("second holder has token {} and wrote 150", next.fencing_token());

    let late = account.set(100, paused.fencing_token()).unwrap_err();
    println!("first holder wakes up; its write is refused: {late}");
    assert_eq!(late.code(), "stale_token");
    assert_eq!(account.balance, 150);

    // It could have known without writing: its own clock tells it.
    assert_eq!(paused.check().unwrap_err().lost_reason(), Some(LostReason::Expired));
    next.release().await?;
    client.close().await;
    Ok(())
}
