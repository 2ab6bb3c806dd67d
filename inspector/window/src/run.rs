//! Starting the window, and what is said when it cannot start.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use eframe::egui::{self, ColorImage, ViewportBuilder, ViewportCommand};

use super::app::App;
use super::args::Args;
use super::settings::Settings;
use host::exit;

/// Runs the program.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(name) = super::demo::part_name() {
        return super::demo::play(&name);
    }
    #[cfg(unix)]
    if let Some(code) = host::demo_place::cleaner() {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => {
            eprintln!("polylatch-inspector: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(args: Args) -> Result<(), (u8, String)> {
    let path = match &args.settings {
        Some(folder) => Some(folder.join("window.json")),
        None => Settings::default_path(),
    };
    let mut settings = path.as_deref().map(Settings::load).unwrap_or_default();
    if let Some(theme) = args.theme {
        settings.theme = theme;
    }
    if let Some(scale) = args.scale {
        settings.scale = scale;
    }
    let shot = args.screenshot.clone().map(|path| Shot::new(path, args.after));
    let failed = shot.as_ref().map(|shot| Arc::clone(&shot.failed));
    let app = App::new(settings, path, args).map_err(|message| (exit::USAGE, message))?;
    let [width, height] = app.settings().window;
    let options = eframe::NativeOptions {
        viewport: ViewportBuilder::default()
            .with_title("Polylatch inspector")
            .with_app_id("polylatch-inspector")
            .with_inner_size([width, height])
            .with_min_inner_size([640.0, 400.0]),
        renderer: eframe::Renderer::Glow,
        // The window looks for them without waiting.
        system_font_fallback: false,
        ..Default::default()
    };
    let start = |creation: &eframe::CreationContext<'_>| -> Result<Box<dyn eframe::App>, _> {
        let mut app = app;
        app.attach(&creation.egui_ctx);
        Ok(Box::new(Window { app, shot }))
    };
    eframe::run_native("polylatch-inspector", options, Box::new(start))
        .map_err(|error| (exit::SYSTEM, plain(&error)))?;
    match failed.and_then(|failed| failed.lock().ok()?.take()) {
        Some(message) => Err((exit::SYSTEM, message)),
        None => Ok(()),
    }
}

/// Says why no window came, without the build machine's paths that the errors' texts hold.
fn plain(error: &eframe::Error) -> String {
    let detail = match error {
        eframe::Error::WinitEventLoop(error) => format!("{error:?}"),
        eframe::Error::NoGlutinConfigs(..) | eframe::Error::Glutin(_) | eframe::Error::OpenGL(_) => {
            return "no window: OpenGL cannot be used here. Install a driver (on Debian: libgl1), or look at \
                    the same in a terminal with `polylatch watch`"
                .into();
        }
        _ => String::new(),
    };
    let why = if detail.contains("neither") {
        "no desktop to show it on (DISPLAY and WAYLAND_DISPLAY are not set)"
    } else if detail.contains("XNotSupported") {
        "the X11 libraries are missing (on Debian: libx11-6 libx11-xcb1 libxcursor1 libxi6 libxkbcommon-x11-0)"
    } else {
        "the desktop refused it"
    };
    format!("no window: {why}. In a terminal, `polylatch watch` shows the same")
}

/// The application as the toolkit sees it.
struct Window {
    app: App,
    shot: Option<Shot>,
}

impl eframe::App for Window {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        self.app.logic(ctx);
    }

    fn ui(&mut self, ui: &mut egui::Ui, frame: &mut eframe::Frame) {
        self.app.took(frame.info().cpu_usage);
        self.app.ui(ui);
        if let Some(shot) = &mut self.shot {
            shot.take_when_due(ui.ctx());
        }
    }

    fn on_exit(&mut self, _: Option<&eframe::glow::Context>) {
        self.app.save_settings();
    }
}

/// A picture of the window that is taken once.
struct Shot {
    path: PathBuf,
    due: Instant,
    asked: bool,
    failed: Arc<std::sync::Mutex<Option<String>>>,
}

impl Shot {
    fn new(path: PathBuf, after: Duration) -> Self {
        Self { path, due: Instant::now() + after, asked: false, failed: Arc::default() }
    }

    fn take_when_due(&mut self, ctx: &egui::Context) {
        let left = self.due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            ctx.request_repaint_after(left);
        } else if !self.asked {
            self.asked = true;
            let (path, again, failed) = (self.path.clone(), ctx.clone(), Arc::clone(&self.failed));
            ctx.request_screenshot(move |overview| {
                if let Err(error) = save(&overview, &path)
                    && let Ok(mut failed) = failed.lock()
                {
                    *failed = Some(format!("{}: {error}", path.display()));
                }
                again.send_viewport_cmd(ViewportCommand::Close);
                again.request_repaint();
            });
            ctx.request_repaint();
        }
    }
}

fn save(overview: &ColorImage, path: &Path) -> Result<(), image::ImageError> {
    let [width, height] = overview.size.map(|side| u32::try_from(side).unwrap_or(0));
    // Without the fourth channel: the window is opaque, and the file smaller.
    let bytes: Vec<u8> = overview.pixels.iter().flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()]).collect();
    image::save_buffer_with_format(
        path,
        &bytes,
        width,
        height,
        image::ColorType::Rgb8,
        image::ImageFormat::Png,
    )
}
