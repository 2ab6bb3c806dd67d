//! Every example runs to its end, against the store inside the process and an embedded file.

use std::process::Command;

fn tell(program: &str, url: Option<&str>) -> String {
    let mut command = Command::new(program);
    command.env_remove("POLYLATCH_URL");
    if let Some(url) = url {
        command.env("POLYLATCH_URL", url);
    }
    let output = command.output().expect("the example starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_stories_end_as_they_should() {
    let file = std::env::temp_dir().join(format!("polylatch-stories-{}.db", std::process::id()));
    let url = format!("sqlite:{}", file.display());
    for url in [None, Some(url.as_str())] {
        assert!(tell(env!("CARGO_BIN_EXE_first_lock"), url).contains("second worker holds orders/42"));
        assert!(tell(env!("CARGO_BIN_EXE_fenced_write"), url).contains("its write is refused"));
        assert!(tell(env!("CARGO_BIN_EXE_long_job"), url).contains("no_progress"));
        assert!(tell(env!("CARGO_BIN_EXE_lost_lease"), url).contains("stopped the import"));
        // Pausing a process takes signals.
        #[cfg(unix)]
        assert!(
            tell(env!("CARGO_BIN_EXE_guarded_sql"), url)
                .contains("first holder goes on; its write is refused")
        );
    }
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}
