//! Work that stops by itself when its lock is lost.

use std::time::Duration;

use polylatch::Polylatch;
use polylatch::inspect::BreakRequest;

#[tokio::main]
async fn main() -> polylatch::Result<()> {
    let url = std::env::var("POLYLATCH_URL").unwrap_or_else(|_| "memory:lost-lease".into());
    let client = Polylatch::connect(&url).await?;
    let guard = client.lock("import").lease(Duration::from_secs(2)).acquire().await?;

    // Meanwhile an operator ends the lease, naming the token that was looked at.
    let operator = client.inspect();
    let order = BreakRequest {
        name: "import".into(),
        expected: guard.fencing_token(),
        by: "ann@desk".into(),
        reason: "the import runs in the wrong environment".into(),
    };
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        operator.break_lease(&order).await
    });

    // Whichever comes first: the work ends, or the lock is lost.
    tokio::select! {
        () = import() => unreachable!("this import takes an hour"),
        reason = guard.lost() => println!("stopped the import: the lock is lost ({reason})"),
    }
    assert!(!guard.is_held());
    client.close().await;
    Ok(())
}

async fn import() {
    tokio::time::sleep(Duration::from_secs(3600)).await;
}
