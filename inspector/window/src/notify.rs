//! Alerts outside of the window: a desktop message, and the program that a rule names.

use std::io::Write;
use std::process::{Command, Stdio};

use model::Alert;

/// Tells an alert. Returns at once; what cannot be told outside still stands in the window.
pub fn tell(alert: &Alert) {
    let alert = alert.clone();
    let told = std::thread::Builder::new().name("alert".into()).spawn(move || {
        desktop(&alert);
        hook(&alert);
    });
    drop(told);
}

/// Asks the desktop to show a message, by the program that desktops have for it.
fn desktop(alert: &Alert) {
    // Without one (no desktop, another system) there is nobody to tell.
    let mut command = Command::new("notify-send");
    command.args(["--app-name=Polylatch", "--icon=dialog-warning", "--"]);
    command.arg(format!("Polylatch: {}", alert.rule)).arg(&alert.sentence);
    quietly(&mut command, None);
}

/// Starts the rule's program.
fn hook(alert: &Alert) {
    let Some((program, arguments)) = alert.run.split_first() else { return };
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("POLYLATCH_ALERT", &alert.rule).env("POLYLATCH_ALERT_TEXT", &alert.sentence);
    command.env("POLYLATCH_CONNECTION", alert.key.connection.as_str());
    // An environment variable cannot have a zero byte; a lock's name in a store of others may.
    command.env("POLYLATCH_LOCK", alert.key.lock.replace('\0', ""));
    quietly(&mut command, serde_json::to_string(alert).ok());
}

fn quietly(command: &mut Command, input: Option<String>) {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return };
    if let Some((mut pipe, text)) = child.stdin.take().zip(input) {
        let _ = pipe.write_all(text.as_bytes());
    }
    let _ = child.wait();
}
