//! Ending somebody's lease: what it means, and a confirmation that cannot be given by accident.

use eframe::egui::{self, Button, Color32, Frame, Grid, Label, Margin, RichText, TextEdit, Ui};

use polylatch::FencingToken;
use polylatch::inspect::{HolderView, LockView};

use super::{Answer, buttons, modal};
use crate::act::Act;
use crate::people::People;
use crate::table::{one_line, one_name};
use crate::theme::Palette;
use model::Beat;
use model::text::{break_command, count, sanitized, shell_word, span};
use model::{BreakOrder, Environment, Fleet, RowKey};

/// Longest reason, in bytes.
const MOST_REASON: usize = 256;

/// What was looked at, and what was typed.
#[derive(Debug)]
pub struct BreakDialog {
    key: RowKey,
    token: FencingToken,
    reason: String,
    typed: String,
    begun: bool,
}

impl BreakDialog {
    pub fn new(key: RowKey, token: FencingToken) -> Self {
        Self { key, token, reason: String::new(), typed: String::new(), begun: false }
    }

    /// What has to be typed: the name and the end of the token that was looked at.
    fn confirmation(&self) -> String {
        let token = self.token.to_string();
        let end = &token[token.len().saturating_sub(4)..];
        format!("{} {end}", sanitized(&self.key.lock))
    }

    fn confirmed(&self) -> bool {
        let reason = self.reason.trim();
        self.typed.trim() == self.confirmation()
            && !reason.is_empty()
            && reason.len() <= MOST_REASON
            && !reason.chars().any(char::is_control)
    }

    /// Shows it.
    pub fn show(&mut self, ctx: &egui::Context, fleet: &Fleet, now_ms: u64, palette: &Palette) -> Answer {
        let mut answer = Answer::default();
        let store = fleet.store(&self.key.connection);
        let environment = store.map_or(Environment::Development, |store| store.connection().environment);
        let command = store.map(|store| store.connection().command.clone()).unwrap_or_default();
        let snapshot = store.and_then(|store| store.snapshot());
        let people = People::of(snapshot.map(|snapshot| &**snapshot));
        let lock = fleet.lock(&self.key);
        let holder =
            lock.and_then(|lock| lock.holders.iter().find(|holder| holder.fencing_token == Some(self.token)));
        let age =
            fleet.find(&self.key).map_or(0, |place| now_ms.saturating_sub(fleet.at(place).sampled_at_ms));
        let (closed, ()) = modal(ctx, "break lease", 640.0, "Break the lease", |ui| {
            // Whatever is in it, the buttons below stay in sight.
            let most = (ctx.content_rect().height() - 160.0).max(80.0);
            egui::ScrollArea::vertical().max_height(most).show(ui, |ui| {
            ui.set_width(ui.available_width());
            band(ui, &self.key, environment, palette);
            if let Some(lock) = lock.filter(|lock| lock.holders.len() > 1) {
                choose(ui, &mut self.token, &mut self.typed, lock, &people);
            }
            match lock.zip(holder) {
                Some((lock, holder)) => facts(ui, fleet, &self.key, lock, holder, &people, age),
                None => {
                    let text = "This lease is over: the lock is free or changed hands meanwhile. There is nothing to break.";
                    ui.label(RichText::new(text).color(palette.orphan));
                }
            }
            ui.add_space(8.0);
            let label = ui.label("Reason (other operators will read it)");
            let reason = ui.add(
                TextEdit::singleline(&mut self.reason).desired_width(f32::INFINITY).char_limit(MOST_REASON),
            );
            reason.labelled_by(label.id);
            let wanted = self.confirmation();
            let label = ui.label("Type the lock's name and the last digits of its token:");
            ui.add(Label::new(RichText::new(&wanted).monospace().color(palette.strong)).wrap());
            let field = ui.add(TextEdit::singleline(&mut self.typed).desired_width(f32::INFINITY));
            field.labelled_by(label.id);
            ui.add_space(4.0);
            let reason = shell_word(if self.reason.trim().is_empty() { "..." } else { self.reason.trim() });
            let line = break_command(&command, &sanitized(&self.key.lock), self.token, &reason);
            ui.horizontal(|ui| {
                if ui.small_button("Copy").accessible_name("Copy the command").clicked() {
                    answer.acts.push(Act::Copy { text: line.clone(), what: "the command".into() });
                }
                let font = egui::FontId::monospace(11.5);
                let room = ui.available_width();
                ui.label(one_line(ui.painter(), &line, font, palette.weak, room));
            });
            });
            buttons(ui, |ui| {
                let ready = self.confirmed() && holder.is_some();
                let text =
                    RichText::new("Break the lease").color(if ready { Color32::WHITE } else { palette.weak });
                let mut button = Button::new(text);
                if ready {
                    button = button.fill(Color32::from_rgb(0xB4, 0x32, 0x0A));
                }
                if ui.add_enabled(ready, button).clicked() {
                    answer.close = true;
                    answer.acts.push(Act::Break(BreakOrder {
                        connection: self.key.connection.clone(),
                        lock: self.key.lock.to_string(),
                        expected: self.token,
                        reason: self.reason.trim().to_owned(),
                    }));
                }
                let cancel = ui.button("Cancel");
                // What is easiest must do no harm.
                if !std::mem::replace(&mut self.begun, true) {
                    cancel.request_focus();
                }
                answer.close |= cancel.clicked();
            });
        });
        answer.close |= closed;
        answer
    }
}

/// Lets one of several holders be chosen; what was typed for another one does not count.
fn choose(ui: &mut Ui, token: &mut FencingToken, typed: &mut String, lock: &LockView, people: &People<'_>) {
    let text = |holder: &HolderView| {
        let label = if holder.label.is_empty() {
            String::new()
        } else {
            format!(" \"{}\"", sanitized(&holder.label))
        };
        let token = holder.fencing_token.map(|token| format!(", token {token}")).unwrap_or_default();
        format!("{}{label}{token}", people.who(holder.client.as_ref()))
    };
    let chosen = lock.holders.iter().find(|holder| holder.fencing_token == Some(*token));
    let shown = chosen.map_or_else(|| "a lease that is over".into(), text);
    let before = *token;
    ui.horizontal(|ui| {
        let label = ui.label(RichText::new("Lease of").weak());
        let width = ui.available_width() - 16.0;
        let list =
            egui::ComboBox::from_id_salt("lease to break").width(width).truncate().selected_text(shown);
        let list = list.show_ui(ui, |ui| {
            for holder in &lock.holders {
                if let Some(theirs) = holder.fencing_token {
                    ui.selectable_value(token, theirs, text(holder));
                }
            }
        });
        list.response.labelled_by(label.id);
    });
    if before != *token {
        typed.clear();
    }
    ui.add_space(4.0);
}

fn band(ui: &mut Ui, key: &RowKey, environment: Environment, palette: &Palette) {
    let colour = crate::rail::environment_colour(environment, palette);
    let frame = Frame::new()
        .fill(colour.gamma_multiply(0.22))
        .corner_radius(5)
        .inner_margin(Margin::symmetric(10, 6));
    frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.horizontal_wrapped(|ui| {
            let (name, font) = (sanitized(&key.lock), egui::FontId::monospace(15.0));
            let shown = one_name(ui.painter(), &name, font, palette.strong, ui.available_width() - 4.0);
            ui.label(shown).on_hover_text(name);
            let on =
                format!("on {}  ({})", sanitized(key.connection.as_str()), environment.word().to_uppercase());
            ui.label(RichText::new(on).color(palette.text));
        });
    });
    ui.add_space(6.0);
}

fn facts(
    ui: &mut Ui,
    fleet: &Fleet,
    key: &RowKey,
    lock: &LockView,
    holder: &HolderView,
    people: &People<'_>,
    age_ms: u64,
) {
    let who = people.who(holder.client.as_ref());
    let label =
        if holder.label.is_empty() { String::new() } else { format!(", \"{}\"", sanitized(&holder.label)) };
    let held = holder.held_for_ms.map(|ms| format!(", held {}", span(ms + age_ms))).unwrap_or_default();
    let beat = Beat::of(holder);
    let (alive, effect) = match beat {
        Some(beat) if !beat.is_late() => (
            format!("renewed {} ago: it looks ALIVE", span(beat.since_ms + age_ms)),
            format!(
                "{who} learns of it soon, within about {}. Until then two may work at once.",
                span(beat.every_ms)
            ),
        ),
        Some(beat) => (
            format!("not renewed for {}", span(beat.since_ms + age_ms)),
            format!("The lease would end by itself in {}.", span(beat.left_ms.saturating_sub(age_ms))),
        ),
        None => (
            "whether it is alive is not known".into(),
            "Until its holder learns of it, two may work at once.".into(),
        ),
    };
    let next = match lock.waiters.iter().find(|waiter| !waiter.silent) {
        _ if lock.holders.len() > 1 => {
            format!(
                "{} it; the first waiter enters if there is room",
                count(lock.holders.len() - 1, "other client still holds", "other clients still hold")
            )
        }
        Some(next) => format!("{} gets the lock", people.who(Some(&next.client))),
        None => "no waiters; the lock will be free".into(),
    };
    let keeps = holder.client.as_ref().and_then(|id| {
        let clients = fleet.clients();
        let client = clients.iter().find(|client| client.id == *id)?;
        let others = client.holds.iter().filter(|(held, _)| held != key).count();
        (others > 0).then(|| format!("{} on other locks", count(others, "lease", "leases")))
    });
    Grid::new("break facts").num_columns(2).spacing([14.0, 4.0]).show(ui, |ui| {
        let mut line = |name: &str, text: String| {
            ui.label(RichText::new(name).weak());
            ui.add(egui::Label::new(text).wrap());
            ui.end_row();
        };
        line("Holder", format!("{who}{label}{held}"));
        line("Renewal", alive);
        line(
            "Token",
            format!(
                "{} (nothing happens if this has changed)",
                holder.fencing_token.map(|token| token.to_string()).unwrap_or_default()
            ),
        );
        line("Effect", effect);
        line("Next", next);
        if let Some(keeps) = keeps {
            line("It keeps", keeps);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ConnectionId;

    #[test]
    fn only_name_and_token_and_a_reason_confirm() {
        let key = RowKey { connection: ConnectionId::new("here"), lock: "orders/17".into() };
        let mut dialog = BreakDialog::new(key, FencingToken::new(1_763_004_121));
        assert_eq!(dialog.confirmation(), "orders/17 4121");
        for (typed, reason, good) in [
            ("", "", false),
            ("orders/17 4121", "", false),
            ("orders/17 4121", "  ", false),
            ("orders/17", "stuck", false),
            ("orders/17 4122", "stuck", false),
            ("orders/17 4121", "a\nb", false),
            (" orders/17 4121 ", "stuck", true),
        ] {
            dialog.typed = typed.into();
            dialog.reason = reason.into();
            assert_eq!(dialog.confirmed(), good, "{typed:?} {reason:?}");
        }
    }
}
