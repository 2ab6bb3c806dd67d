//! The program `polylatch-inspector`: the desktop window.

fn main() -> std::process::ExitCode {
    println!("{}", eframe::egui::vec2(1.0, 2.0));
    std::process::ExitCode::SUCCESS
}
