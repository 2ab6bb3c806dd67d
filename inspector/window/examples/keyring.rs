//! Puts a secret into this desktop's keyring, reads it back, and takes it out again.
//!
//! `cargo run -p polylatch-inspector --example keyring`

use polylatch_inspector::keyring::{Keyring, Platform};

fn main() -> Result<(), String> {
    let (keyring, name) = (Platform, "example redis://nowhere");
    keyring.set(name, "first")?;
    keyring.set(name, "second")?;
    let kept = keyring.get(name)?;
    keyring.forget(name)?;
    keyring.forget(name)?;
    match (kept.as_deref(), keyring.get(name)?) {
        (Some("second"), None) => println!("the keyring keeps and forgets"),
        _ => return Err("the keyring did not give back what it was given".into()),
    }
    Ok(())
}
