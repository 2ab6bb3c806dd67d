//! The program `polylatch-inspector`: the desktop window.

fn main() -> std::process::ExitCode {
    polylatch_inspector::main()
}
