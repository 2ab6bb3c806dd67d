//! The committed header is the one that the sources make.

use std::path::Path;

/// `POLYLATCH_WRITE_HEADER=1` writes it anew.
#[test]
fn the_committed_header_is_the_one_that_the_sources_make() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(here).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let path = here.join("include/polylatch.h");
    if std::env::var_os("POLYLATCH_WRITE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "include/polylatch.h is not what bindings/c/src makes; run bindings/c/header");
}
