//! `polylatch man`: the manual pages.

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::store::{Failure, print_text};
use super::{Cli, exit};

/// Print the manual page, as roff
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct ManArgs {
    /// The page of one command, such as run; without it, the page of the program
    command: Option<String>,
}

const HELP: &str = "\
Read:
  polylatch man | man -l -
  polylatch man run | man -l -

Install, for yourself:
  mkdir -p ~/.local/share/man/man1
  polylatch man > ~/.local/share/man/man1/polylatch.1
  for c in run ls show watch graph record break doctor check exporter schema demo completions; do
    polylatch man $c > ~/.local/share/man/man1/polylatch-$c.1
  done
Then: man polylatch. Completions: polylatch completions --help";

pub(super) fn man(args: &ManArgs) -> Result<u8, Failure> {
    let mut program = Cli::command();
    program.build();
    let page = match &args.command {
        None => program,
        Some(name) => page_of(&program, name)?,
    };
    let mut text = Vec::new();
    Man::new(page).source(concat!("polylatch ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    // Examples and exit codes deserve a better heading than "EXTRA".
    let text = String::from_utf8_lossy(&text).replacen("\n.SH EXTRA\n", "\n.SH NOTES\n", 1);
    print_text(text.as_bytes())?;
    Ok(0)
}

fn page_of(program: &Command, name: &str) -> Result<Command, Failure> {
    let Some(found) = program.find_subcommand(name) else {
        let known: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        let message = format!("there is no command {name:?}; there are {}", known.join(", "));
        return Err(Failure::new(exit::USAGE, message));
    };
    // Building has given it the name polylatch-NAME.
    Ok(found.clone().version(env!("CARGO_PKG_VERSION")))
}
