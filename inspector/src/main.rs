//! The program `polylatch`.

fn main() -> std::process::ExitCode {
    polylatch_inspector::cli::main()
}
