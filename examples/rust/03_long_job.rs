//! A job that takes longer than its lease: renewed in the background, stopped when it hangs.

use std::time::Duration;

use polylatch::{LostReason, Polylatch};

#[tokio::main]
async fn main() -> polylatch::Result<()> {
    let url = std::env::var("POLYLATCH_URL").unwrap_or_else(|_| "memory:long-job".into());
    let client = Polylatch::connect(&url).await?;

    // A short lease frees the lock soon after a crash; renewal keeps it as long as the work moves on.
    let guard = client
        .lock("reports/nightly")
        .label("nightly report")
        .lease(Duration::from_millis(1_200))
        .beat_every(Duration::from_secs(1))
        .max_hold(Duration::from_secs(60))
        .acquire()
        .await?;
    for page in 1..=8 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        guard.beat();
        guard.check()?;
        println!("page {page} done, lease good for another {:?}", guard.remaining());
    }
    println!("renewed {} times", guard.renewals());

    println!("now the work hangs: no more beats");
    let reason = guard.lost().await;
    println!("the lock is given up: {reason}");
    assert_eq!(reason, LostReason::NoProgress);
    client.close().await;
    Ok(())
}
