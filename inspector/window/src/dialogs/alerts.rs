//! The rules by which somebody is told who does not look.

use eframe::egui::{self, ComboBox, DragValue, Grid, RichText, ScrollArea, TextEdit, Ui};

use super::{buttons, modal};
use crate::app::App;
use crate::theme::Palette;
use model::alert::{AlertRule, Condition};
use model::text::sanitized;

/// The rules as they are edited.
#[derive(Debug)]
pub struct AlertsDialog {
    rules: Vec<AlertRule>,
    /// The programs of the rules, each as one line.
    programs: Vec<String>,
    wrong: Option<String>,
}

impl AlertsDialog {
    pub fn new(rules: &[AlertRule]) -> Self {
        let programs = rules.iter().map(|rule| rule.run.join(" ")).collect();
        Self { rules: rules.to_vec(), programs, wrong: None }
    }

    /// Shows it; returns whether it is over.
    pub fn show(&mut self, ctx: &egui::Context, app: &mut App, palette: &Palette) -> bool {
        let (closed, (save, cancel)) = modal(ctx, "alerts", 820.0, "Alert rules", |ui| {
            ui.weak("Each case is reported once: here, as a message of the desktop, and to the program, if one is given.");
            ui.add_space(4.0);
            let mut removed = None;
            let most = (ctx.content_rect().height() - 280.0).max(120.0);
            ScrollArea::vertical().max_height(most).auto_shrink([false, true]).show(ui, |ui| {
                for (at, rule) in self.rules.iter_mut().enumerate() {
                    ui.push_id(at, |ui| {
                        if edit(ui, rule, &mut self.programs[at]) {
                            removed = Some(at);
                        }
                    });
                    ui.separator();
                }
            });
            if let Some(at) = removed {
                self.rules.remove(at);
                self.programs.remove(at);
            }
            if ui.button("+  Add a rule").clicked() {
                self.rules.push(AlertRule {
                    name: format!("rule {}", self.rules.len() + 1),
                    condition: Condition::HeldOver { ms: 600_000 },
                    filter: String::new(),
                    for_ms: 5_000,
                    run: Vec::new(),
                    off: false,
                });
                self.programs.push(String::new());
            }
            if let Some(live) = &app.live {
                let state = live.state();
                if !state.standing.is_empty() {
                    ui.add_space(4.0);
                    ui.label(RichText::new("NOW").size(11.0).color(palette.weak));
                    for alert in state.standing.iter().take(8) {
                        ui.label(format!("{}: {}", sanitized(&alert.rule), alert.sentence));
                    }
                }
            }
            if let Some(wrong) = &self.wrong {
                ui.label(RichText::new(wrong).color(palette.orphan));
            }
            buttons(ui, |ui| (ui.button("Save").clicked(), ui.button("Cancel").clicked()))
        });
        if save {
            for (rule, program) in self.rules.iter_mut().zip(&self.programs) {
                rule.run = program.split_whitespace().map(str::to_owned).collect();
            }
            match app.set_alerts(self.rules.clone()) {
                Ok(()) => return true,
                Err(message) => self.wrong = Some(sanitized(&message)),
            }
        }
        closed || cancel
    }
}

/// Shows one rule; returns whether it is to go.
fn edit(ui: &mut Ui, rule: &mut AlertRule, program: &mut String) -> bool {
    let mut remove = false;
    ui.horizontal(|ui| {
        let mut on = !rule.off;
        ui.checkbox(&mut on, "on");
        rule.off = !on;
        ui.add(TextEdit::singleline(&mut rule.name).desired_width(150.0)).accessible_name("Name of the rule");
        condition(ui, &mut rule.condition);
        ui.label("for");
        seconds(ui, &mut rule.for_ms, "must have lasted");
        remove = ui.small_button("Remove").clicked();
    });
    Grid::new("more").num_columns(2).spacing([10.0, 3.0]).show(ui, |ui| {
        let label = ui.weak("only if it matches");
        let field = TextEdit::singleline(&mut rule.filter).hint_text("every lock").desired_width(420.0);
        ui.add(field).labelled_by(label.id);
        ui.end_row();
        let label = ui.weak("start a program");
        let field = TextEdit::singleline(program)
            .hint_text("none; words are its arguments, no shell")
            .desired_width(420.0);
        ui.add(field).labelled_by(label.id);
        ui.end_row();
    });
    remove
}

fn condition(ui: &mut Ui, condition: &mut Condition) {
    let kinds: [(&str, Condition); 6] = [
        ("held longer than", Condition::HeldOver { ms: 600_000 }),
        ("more waiters than", Condition::WaitersOver { count: 10 }),
        ("missed renewals", Condition::BeatsMissed { count: 2 }),
        ("no expiry", Condition::NoExpiry),
        ("deadlock", Condition::Deadlock),
        ("store not reached", Condition::Unreachable),
    ];
    let same = |a: &Condition, b: &Condition| std::mem::discriminant(a) == std::mem::discriminant(b);
    let word = kinds.iter().find(|(_, kind)| same(kind, condition)).map_or("", |(word, _)| word);
    let shown = ComboBox::from_id_salt("condition").selected_text(word).show_ui(ui, |ui| {
        for (word, kind) in kinds {
            if ui.selectable_label(same(&kind, condition), word).clicked() && !same(&kind, condition) {
                *condition = kind;
            }
        }
    });
    shown.response.accessible_name("When");
    match condition {
        Condition::HeldOver { ms } => seconds(ui, ms, "held longer than"),
        Condition::WaitersOver { count } => {
            ui.add(DragValue::new(count).range(0..=100_000)).accessible_name("Waiters");
        }
        Condition::BeatsMissed { count } => {
            ui.add(DragValue::new(count).range(1..=1_000)).accessible_name("Missed renewals");
        }
        Condition::NoExpiry | Condition::Deadlock | Condition::Unreachable => {}
    }
}

fn seconds(ui: &mut Ui, ms: &mut u64, name: &str) {
    let mut secs = *ms as f64 / 1_000.0;
    let value = DragValue::new(&mut secs).range(0.0..=864_000.0).speed(0.5).suffix(" s").max_decimals(1);
    if ui.add(value).accessible_name(format!("Seconds: {name}")).changed() {
        *ms = (secs * 1_000.0).round() as u64;
    }
}
