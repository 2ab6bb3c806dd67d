//! Colours, sizes and fonts: dark, light, and a switch for high contrast.
//!
//! State colours were chosen so that any two differ by at least 12.9 (CIEDE2000) in normal, protan,
//! deutan and tritan vision, and stand out from the background by 3.2 or more. Text keeps the text
//! colour; a state's colour is only in its mark and its lease bar, and the word stands beside it.

use eframe::egui::{
    self, Color32, CornerRadius, FontId, Margin, Shadow, Stroke, TextStyle, Theme, ThemePreference, Vec2,
    Visuals, style::ScrollStyle,
};
use serde::{Deserialize, Serialize};

use model::LockState;

/// Which colours to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ThemeChoice {
    /// What the desktop says; dark if it does not say.
    #[default]
    System,
    /// Light text on dark.
    Dark,
    /// Dark text on light.
    Light,
}

impl ThemeChoice {
    /// All, in the order of the switch.
    pub const ALL: [Self; 3] = [Self::System, Self::Dark, Self::Light];

    /// Returns the word on the switch.
    pub fn word(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::Dark => "Dark",
            Self::Light => "Light",
        }
    }

    fn preference(self) -> ThemePreference {
        match self {
            Self::System => ThemePreference::System,
            Self::Dark => ThemePreference::Dark,
            Self::Light => ThemePreference::Light,
        }
    }
}

/// The colours of one theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    pub dark: bool,
    /// Marks get thicker lines.
    pub high_contrast: bool,
    /// Behind the table.
    pub ground: Color32,
    /// Behind bars, rail and details.
    pub panel: Color32,
    /// Behind fields and bars.
    pub well: Color32,
    /// Every second row.
    pub stripe: Color32,
    pub hover: Color32,
    pub selected: Color32,
    pub line: Color32,
    pub text: Color32,
    pub weak: Color32,
    pub strong: Color32,
    pub accent: Color32,
    pub held: Color32,
    pub expiring: Color32,
    pub orphan: Color32,
    pub contended: Color32,
    pub free: Color32,
    pub deadlock: Color32,
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

impl Palette {
    /// Returns the colours of a theme.
    pub const fn of(dark: bool, high_contrast: bool) -> Self {
        let mut palette = if dark { DARK } else { LIGHT };
        if high_contrast {
            palette.high_contrast = true;
            if dark {
                palette.ground = Color32::BLACK;
                palette.panel = rgb(0x0A0A0A);
                palette.text = Color32::WHITE;
                palette.weak = rgb(0xD0D0D0);
                palette.line = rgb(0x8A8A8A);
            } else {
                palette.ground = Color32::WHITE;
                palette.panel = Color32::WHITE;
                palette.text = Color32::BLACK;
                palette.weak = rgb(0x303030);
                palette.line = rgb(0x606060);
            }
        }
        palette
    }

    /// Returns the colour of a state's mark.
    pub fn state(&self, state: LockState) -> Color32 {
        match state {
            LockState::Deadlock | LockState::MayDeadlock => self.deadlock,
            LockState::Stopped | LockState::NoExpiry | LockState::Gone => self.orphan,
            LockState::NoRenewal | LockState::Endangered => self.expiring,
            LockState::Foreign | LockState::Free | LockState::LockDelay | LockState::Unknown => self.free,
            LockState::Contended => self.contended,
            LockState::Held => self.held,
        }
    }

    /// Returns the width of thin lines in marks.
    pub fn stroke(&self) -> f32 {
        if self.high_contrast { 2.4 } else { 1.6 }
    }

    /// Returns the colours that are shown now.
    pub fn current(ui: &egui::Ui) -> Self {
        let contrast = ui.data(|data| data.get_temp(contrast_id())).unwrap_or(false);
        Self::of(ui.visuals().dark_mode, contrast)
    }
}

fn contrast_id() -> egui::Id {
    egui::Id::unique("polylatch high contrast")
}

const DARK: Palette = Palette {
    dark: true,
    high_contrast: false,
    ground: rgb(0x1B1B1B),
    panel: rgb(0x222324),
    well: rgb(0x141415),
    stripe: rgb(0x1F2021),
    hover: rgb(0x2A2C2E),
    selected: rgb(0x263A52),
    line: rgb(0x343638),
    text: rgb(0xDADCDE),
    weak: rgb(0x9A9DA1),
    strong: rgb(0xF7F8F9),
    accent: rgb(0x7FB2FF),
    held: rgb(0x45DDB0),
    expiring: rgb(0xFFEA4D),
    orphan: rgb(0xF8511D),
    contended: rgb(0xA9C4FF),
    free: rgb(0x8A8A8A),
    deadlock: rgb(0xD645E0),
};

const LIGHT: Palette = Palette {
    dark: false,
    high_contrast: false,
    ground: rgb(0xF8F8F8),
    panel: rgb(0xEFF0F1),
    well: rgb(0xFFFFFF),
    stripe: rgb(0xF1F2F3),
    hover: rgb(0xE6E9EC),
    selected: rgb(0xCFE0F8),
    line: rgb(0xD0D3D6),
    text: rgb(0x24272A),
    weak: rgb(0x5C6166),
    strong: rgb(0x0C0E10),
    accent: rgb(0x1A5FC4),
    held: rgb(0x1F6B5C),
    expiring: rgb(0x5C4300),
    orphan: rgb(0xE8400C),
    contended: rgb(0x0B2F7A),
    free: rgb(0x8C8C8C),
    deadlock: rgb(0xC018CC),
};

/// Font sizes, before scaling.
pub const BODY: f32 = 13.5;
pub const SMALL: f32 = 12.0;
pub const MONO: f32 = 12.5;

/// Sets fonts and both themes, and chooses one. Call it again when the choice changes.
pub fn apply(ctx: &egui::Context, choice: ThemeChoice, high_contrast: bool) {
    ctx.data_mut(|data| data.insert_temp(contrast_id(), high_contrast));
    for theme in [Theme::Dark, Theme::Light] {
        let palette = Palette::of(theme == Theme::Dark, high_contrast);
        ctx.style_mut_of(theme, |style| dress(style, &palette));
    }
    ctx.options_mut(|options| options.fallback_theme = Theme::Dark);
    ctx.set_theme(choice.preference());
}

fn dress(style: &mut egui::Style, palette: &Palette) {
    use TextStyle::{Body, Button, Heading, Monospace, Small};
    style.text_styles = [
        (Heading, FontId::proportional(18.0)),
        (Body, FontId::proportional(BODY)),
        (Button, FontId::proportional(BODY)),
        (Small, FontId::proportional(SMALL)),
        (Monospace, FontId::monospace(MONO)),
    ]
    .into();
    style.spacing.item_spacing = Vec2::new(8.0, 5.0);
    style.spacing.button_padding = Vec2::new(8.0, 3.0);
    style.spacing.interact_size = Vec2::new(24.0, 22.0);
    style.spacing.menu_margin = Margin::same(6);
    style.spacing.scroll = ScrollStyle::solid();
    style.spacing.scroll.bar_width = 9.0;
    // Nothing moves by itself: a picture that is still costs nothing, and nobody is made dizzy.
    style.animation_time = 0.0;
    style.scroll_animation = egui::style::ScrollAnimation::none();
    style.visuals = visuals(palette);
}

fn visuals(palette: &Palette) -> Visuals {
    let mut visuals = if palette.dark { Visuals::dark() } else { Visuals::light() };
    visuals.panel_fill = palette.panel;
    visuals.window_fill = palette.panel;
    visuals.window_stroke = Stroke::new(1.0, palette.line);
    visuals.window_corner_radius = CornerRadius::same(8);
    visuals.menu_corner_radius = CornerRadius::same(6);
    let shadow = if palette.dark { Color32::from_black_alpha(120) } else { Color32::from_black_alpha(40) };
    visuals.window_shadow = Shadow { offset: [0, 6], blur: 20, spread: 0, color: shadow };
    visuals.popup_shadow = Shadow { offset: [0, 3], blur: 10, spread: 0, color: shadow };
    visuals.extreme_bg_color = palette.well;
    visuals.faint_bg_color = palette.stripe;
    visuals.code_bg_color = palette.well;
    visuals.hyperlink_color = palette.accent;
    visuals.warn_fg_color = palette.expiring;
    visuals.error_fg_color = palette.orphan;
    visuals.weak_text_color = Some(palette.weak);
    visuals.selection.bg_fill = palette.selected;
    visuals.selection.stroke = Stroke::new(1.0, palette.strong);
    visuals.text_cursor.blink = false; // nothing blinks, and a still overview is not repainted
    visuals.button_frame = true;
    visuals.striped = false;

    let widgets = &mut visuals.widgets;
    let raised = if palette.dark { rgb(0x303234) } else { rgb(0xFFFFFF) };
    let raised_more = if palette.dark { rgb(0x3B3E41) } else { rgb(0xE2E8EF) };
    let shape = |widget: &mut egui::style::WidgetVisuals, fill, line, text| {
        widget.bg_fill = fill;
        widget.weak_bg_fill = fill;
        widget.bg_stroke = Stroke::new(1.0, line);
        widget.fg_stroke = Stroke::new(1.0, text);
        widget.corner_radius = CornerRadius::same(5);
        widget.expansion = 0.0;
    };
    shape(&mut widgets.noninteractive, palette.panel, palette.line, palette.text);
    shape(&mut widgets.inactive, raised, palette.line, palette.text);
    shape(&mut widgets.hovered, raised_more, palette.weak, palette.strong);
    shape(&mut widgets.active, raised_more, palette.accent, palette.strong);
    shape(&mut widgets.open, raised_more, palette.line, palette.strong);
    visuals
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of WCAG 2.1.
    fn luminance(colour: Color32) -> f64 {
        let part = |byte: u8| {
            let value = f64::from(byte) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(colour.r()) + 0.7152 * part(colour.g()) + 0.0722 * part(colour.b())
    }

    fn contrast(a: Color32, b: Color32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_and_marks_can_be_seen_on_every_ground() {
        for (dark, high) in [(true, false), (false, false), (true, true), (false, true)] {
            let palette = Palette::of(dark, high);
            for ground in [palette.ground, palette.panel, palette.stripe, palette.selected, palette.hover] {
                assert!(contrast(palette.text, ground) >= 7.0, "text, dark {dark}: {ground:?}");
                assert!(
                    contrast(palette.weak, ground) >= 4.5 || ground == palette.selected,
                    "weak {ground:?}"
                );
            }
            for mark in [
                palette.held,
                palette.expiring,
                palette.orphan,
                palette.contended,
                palette.free,
                palette.deadlock,
            ] {
                let ratio = contrast(mark, palette.ground);
                assert!(ratio >= 3.0, "{mark:?} on {:?} is {ratio:.1}", palette.ground);
            }
        }
    }
}
