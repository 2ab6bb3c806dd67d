//! `polylatch completions`: what a shell needs to complete this program's words.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::store::{Failure, print_text};

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

const HELP: &str = "\
Install, for yourself:
  bash   polylatch completions bash > ~/.local/share/bash-completion/completions/polylatch
  zsh    polylatch completions zsh > \"${fpath[1]}/_polylatch\"
  fish   polylatch completions fish > ~/.config/fish/completions/polylatch.fish
Make the folder first if it is missing, and start a new shell. The manual page: \
polylatch man --help";

pub(super) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "polylatch", &mut text);
    print_text(&text)?;
    Ok(0)
}
