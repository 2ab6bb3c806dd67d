//! The pages of the guide about the command line: their commands run, and the reference has the help that the program prints.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use polylatch_test_services::TempDir;

/// The commands whose help is in the reference, in the order in which `polylatch --help` has them.
const COMMANDS: &str = "run, ls, show, watch, graph, record, break, idem, idem run, idem ls, idem show, idem forget, \
                        doctor, check, exporter, demo, schema, schema postgres, schema mysql, completions, man";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/docs")
}

fn polylatch(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).stdin(Stdio::null()).env_remove("POLYLATCH_URL").env("COLUMNS", "100");
    command.output().unwrap()
}

/// The reference as it should be.
fn reference() -> String {
    let mut page = String::from(
        "# The command line\n\nWhat each `--help` prints. [Operating](operating.md) says when to use which command.\n",
    );
    for name in std::iter::once("").chain(COMMANDS.split(", ")) {
        let args: Vec<&str> = name.split(' ').filter(|word| !word.is_empty()).chain(["--help"]).collect();
        let printed = polylatch(&args);
        assert!(printed.status.success(), "{args:?}: {printed:?}");
        let help = String::from_utf8(printed.stdout).unwrap();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        let title = if name.is_empty() { "polylatch".to_owned() } else { format!("polylatch {name}") };
        page.push_str(&format!("\n## {title}\n\n```text\n{}\n```\n", help.join("\n")));
    }
    page
}

/// With `POLYLATCH_WRITE_HELP` set, it writes the page instead.
#[test]
fn the_reference_has_the_help_of_every_command() {
    let (page, expected) = (docs().join("cli.md"), reference());
    if std::env::var_os("POLYLATCH_WRITE_HELP").is_some() {
        fs::write(page, expected).unwrap();
        return;
    }
    let written = fs::read_to_string(page).unwrap();
    let differs = written.lines().zip(expected.lines()).find(|(written, expected)| written != expected);
    assert_eq!(differs, None, "POLYLATCH_WRITE_HELP=yes writes the page as --help prints it");
    assert_eq!(written, expected);
}

fn pages(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
}

#[test]
fn the_commands_of_the_guide_run() {
    let folder = Path::new(env!("CARGO_BIN_EXE_polylatch")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let (mut all, mut ran) = (Vec::new(), 0);
    for part in ["languages", "recipes", "coming-from"] {
        pages(&docs().join(part), &mut all);
    }
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("\n```sh\n").skip(1) {
            let script = block.split("\n```").next().unwrap();
            let place = TempDir::new();
            let mut shell = Command::new("sh");
            shell.args(["-euc", script]).current_dir(place.path()).stdin(Stdio::null()).env("PATH", &path);
            shell.env("POLYLATCH_URL", format!("sqlite:{}", place.join("locks.db").display()));
            shell.env_remove("POLYLATCH_LOCK");
            let done = shell.output().unwrap();
            assert!(done.status.success(), "{}:\n{script}\n{done:?}", page.display());
            ran += 1;
        }
    }
    assert!(ran >= 5, "{ran} blocks");
}
