//! A first lock: two workers, one at a time, in the order in which they came.
//!
//! Runs against the store in `POLYLATCH_URL`, or inside this process: `cargo run --bin first_lock`.

use std::time::Duration;

use polylatch::Polylatch;

#[tokio::main]
async fn main() -> polylatch::Result<()> {
    let url = std::env::var("POLYLATCH_URL").unwrap_or_else(|_| "memory:first-lock".into());
    let client = Polylatch::connect(&url).await?;

    let first = client.lock("orders/42").label("charge the card").acquire().await?;
    println!("first worker holds {} with token {}", first.name(), first.fencing_token());

    // A client that does not wait gets an answer at once.
    assert!(client.lock("orders/42").try_acquire().await?.is_none());

    // A client that waits is queued, and the release notifies it.
    let waiting = client.lock("orders/42").label("send the receipt").wait(Duration::from_secs(10));
    let second = tokio::spawn(async move { waiting.acquire().await });
    first.release().await?;
    let second = second.await.expect("the task does not panic")?;
    println!("second worker holds {} with token {}", second.name(), second.fencing_token());
    assert!(second.fencing_token() > first.fencing_token());

    second.release().await?;
    client.close().await;
    Ok(())
}
