//! Fonts: those that are built in, and the system's for text that they have no letters for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eframe::egui::{Context, FontDefinitions, FontFamily, FontId, FontInsert, FontProvider, Ui};
use eframe::epaint::text::FallbackRequest;
use egui_system_font_provider::SystemFontProvider;

use super::theme;

/// Gives the text font the signs it lacks (arrows, blocks) from the monospace one, and both of them the letters of
/// other scripts from the system's fonts. Call it once.
pub fn install(ctx: &Context) {
    let mut fonts = FontDefinitions::default();
    if let Some(family) = fonts.families.get_mut(&FontFamily::Proportional)
        && !family.iter().any(|font| font == "Hack")
    {
        family.push("Hack".to_owned());
    }
    ctx.set_fonts(fonts);
    ctx.set_font_providers(vec![Arc::new(WhenNeeded { ctx: ctx.clone(), begun: AtomicBool::new(false) })]);
}

/// Says whether there is a letter for each character of a name.
pub fn can_show(ui: &Ui, name: &str) -> bool {
    let font = FontId::monospace(theme::MONO);
    name.is_ascii() || ui.fonts_mut(|fonts| fonts.has_glyphs(&font, name))
}

/// Lists the system's fonts when a letter is missing for the first time: that takes up to a second, during which the
/// window goes on with a sign in its place.
struct WhenNeeded {
    ctx: Context,
    begun: AtomicBool,
}

impl FontProvider for WhenNeeded {
    fn font_for(&self, request: &FallbackRequest<'_>) -> Option<FontInsert> {
        if !self.begun.swap(true, Ordering::Relaxed) {
            let (ctx, cluster) = (self.ctx.clone(), request.cluster.to_owned());
            let family = request.family.clone();
            // Without a thread the sign stays.
            let _ = std::thread::Builder::new().name("polylatch fonts".into()).spawn(move || {
                let system = SystemFontProvider::new();
                // It answers once it has listed the fonts.
                system.font_for(&FallbackRequest { cluster: &cluster, family: &family });
                ctx.set_font_providers(vec![Arc::new(system)]);
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    #[ignore = "needs fonts for these scripts on the machine; the test of the real window installs them"]
    fn names_of_other_scripts_have_letters_once_the_fonts_are_listed() {
        let names = ["订单", "注文ひらがな", "طلب", "הזמנה", "आदेश", "คำสั่ง", "🔒🚚", "orders/17"];
        let ctx = Context::default();
        install(&ctx);
        let missing = |ctx: &Context| {
            let mut missing = Vec::new();
            let mut output = ctx.run_ui(Default::default(), |ui| {
                missing = names.into_iter().filter(|name| !can_show(ui, name)).collect();
            });
            output.textures_delta.clear();
            missing
        };
        let begun = Instant::now();
        assert!(!missing(&ctx).is_empty(), "the first overview does not wait for fonts");
        assert!(begun.elapsed() < Duration::from_secs(5));
        let end = Instant::now() + Duration::from_secs(30);
        while !missing(&ctx).is_empty() {
            assert!(Instant::now() < end, "no letters for {:?}", missing(&ctx));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
