//! What a call costs in Rust itself, beside the figures of the languages: `overhead URL…`.

use std::time::Instant;

use polylatch::blocking::Polylatch;

fn each(times: u32, mut call: impl FnMut()) -> u128 {
    let started = Instant::now();
    for _ in 0..times {
        call();
    }
    started.elapsed().as_nanos() / u128::from(times)
}

fn main() -> polylatch::Result<()> {
    for url in std::env::args().skip(1) {
        let client = Polylatch::connect(&url)?;
        let lock = client.lock("measured");
        let cycle = || lock.acquire().and_then(|guard| guard.release()).expect("nobody else is here");
        each(300, cycle);
        let both = each(3_000, cycle);
        let guard = lock.acquire()?;
        let check = each(50_000, || guard.check().expect("it is held"));
        guard.release()?;
        let store = url.split(':').next().unwrap_or_default();
        println!("rust {store} check_ns={check} acquire_release_ns={both}");
        client.close();
    }
    Ok(())
}
