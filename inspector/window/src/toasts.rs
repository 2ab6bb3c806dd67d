//! Short messages in the corner that go away by themselves.

use std::time::{Duration, Instant};

use eframe::egui::{self, Align2, Color32, Frame, Margin, Role, Stroke, WidgetInfo, vec2};

use super::theme::Palette;

/// How long a message stays. One that says that something failed stays longer.
const STAY: Duration = Duration::from_secs(5);
const STAY_FAILED: Duration = Duration::from_secs(12);

/// Messages at once; older ones go.
const MOST: usize = 4;

#[derive(Debug)]
struct Toast {
    text: String,
    failed: bool,
    until: Instant,
}

/// The messages that are shown.
#[derive(Debug, Default)]
pub struct Toasts(Vec<Toast>);

impl Toasts {
    /// Says that something was done.
    pub fn done(&mut self, text: impl Into<String>) {
        self.push(text.into(), false);
    }

    /// Says that something failed.
    pub fn failed(&mut self, text: impl Into<String>) {
        self.push(text.into(), true);
    }

    fn push(&mut self, text: String, failed: bool) {
        self.0.retain(|toast| toast.text != text);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        let until = Instant::now() + if failed { STAY_FAILED } else { STAY };
        self.0.push(Toast { text, failed, until });
    }

    /// Removes the newest message; says whether there was one.
    pub fn dismiss(&mut self) -> bool {
        self.0.pop().is_some()
    }

    /// Shows them in the lower right corner.
    pub fn show(&mut self, ctx: &egui::Context, palette: &Palette) {
        let now = Instant::now();
        self.0.retain(|toast| toast.until > now);
        let Some(next) = self.0.iter().map(|toast| toast.until).min() else { return };
        ctx.request_repaint_after(next - now);
        egui::Area::new(egui::Id::unique("toasts"))
            .anchor(Align2::RIGHT_BOTTOM, vec2(-14.0, -40.0))
            .order(egui::Order::Foreground)
            .interactable(false)
            .show(ctx, |ui| {
                ui.set_max_width(420.0);
                for toast in &self.0 {
                    let edge = if toast.failed { palette.orphan } else { palette.held };
                    let frame = Frame::new()
                        .fill(palette.panel)
                        .stroke(Stroke::new(1.0, edge))
                        .corner_radius(6)
                        .inner_margin(Margin::symmetric(12, 8))
                        .shadow(egui::Shadow {
                            offset: [0, 3],
                            blur: 10,
                            spread: 0,
                            color: Color32::from_black_alpha(70),
                        });
                    let shown = frame.show(ui, |ui| ui.label(&toast.text));
                    let label = format!("message: {}", toast.text);
                    shown.response.widget_info(|| WidgetInfo::labeled(Role::Status, true, &label));
                }
            });
    }
}
