//! Why the lock is as it is, what to do, who holds it, who is queued.

use eframe::egui::{
    Align, FontId, Frame, Grid, Label, Layout, Margin, RichText, ScrollArea, Sense, Ui, vec2,
};

use polylatch::inspect::{HolderView, LockView};

use super::Subject;
use crate::act::Act;
use crate::marks;
use crate::theme;
use model::deadline::gives_up;
use model::text::{APART, clock_time, sanitized, span};
use model::{Evidence, Finding, Next, Severity};
use model::{LockState, Process, copy, sharing};

/// Waiters that are listed; more are counted.
const MOST_WAITERS: usize = 200;

/// Facts of a holder stand in two columns from this width on.
const TWO_BESIDE: f32 = 420.0;

pub(super) fn show(ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let width = ui.available_width();
    let left = (width * 0.52).max(320.0).min(width);
    ui.with_layout(Layout::left_to_right(Align::Min), |ui| {
        ui.allocate_ui_with_layout(
            vec2(left - 8.0, ui.available_height()),
            Layout::top_down(Align::Min),
            |ui| {
                ScrollArea::vertical()
                    .id_salt("why")
                    .auto_shrink(false)
                    .show(ui, |ui| why(ui, subject, acts));
            },
        );
        ui.separator();
        ui.with_layout(Layout::top_down(Align::Min), |ui| {
            ScrollArea::vertical().id_salt("who").auto_shrink(false).show(ui, |ui| who(ui, subject, acts));
        });
    });
}

fn why(ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let findings = subject.fleet.explain_now(subject.key, subject.now_ms);
    if findings.is_empty() {
        ui.label("This lock is neither held nor waited for.");
    }
    for (at, finding) in findings.iter().enumerate() {
        told(ui, finding, at == 0, subject, acts);
    }
    breaks(ui, subject, acts);
    ui.add_space(4.0);
    let commands = copy::commands(subject.fleet, subject.key);
    if !commands.is_empty() {
        ui.label(RichText::new("COMMANDS").size(11.0).color(subject.palette.weak));
        for command in commands {
            let what = if command.changes {
                format!("{}  (changes the store)", command.title)
            } else {
                command.title
            };
            line_to_copy(ui, &what, &command.text, subject, acts);
        }
    }
}

fn told(ui: &mut Ui, finding: &Finding, first: bool, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let palette = subject.palette;
    let (edge, word) = match finding.severity {
        Severity::Problem => (palette.orphan, "PROBLEM"),
        Severity::Warning => (palette.expiring, "WARNING"),
        Severity::Notice => (palette.contended, "NOTICE"),
        Severity::Fine if !subject.fleet.all_nodes_answered(&subject.key.connection) => {
            (palette.contended, "NOT ALL KNOWN")
        }
        Severity::Fine => (palette.held, "NOTHING FOUND"),
    };
    let frame = Frame::new().fill(palette.ground).corner_radius(5).inner_margin(Margin {
        left: 12,
        right: 8,
        top: 6,
        bottom: 6,
    });
    let shown = frame.show(ui, |ui| {
        ui.set_width(ui.available_width());
        let size = if first { 14.5 } else { theme::BODY };
        ui.label(RichText::new(&finding.sentence).size(size).color(palette.strong));
        if first {
            for next in &finding.next {
                match next {
                    Next::Do(advice) => {
                        ui.label(RichText::new(format!("→ {advice}")).color(palette.text));
                    }
                    Next::Run(command) => line_to_copy(ui, "", command, subject, acts),
                }
            }
        }
        ui.label(RichText::new(format!("{word}  {}", rule_id(finding))).size(10.5).color(palette.weak));
    });
    let rect = shown.response.rect;
    let band = rect.with_max_x(rect.left() + 4.0);
    ui.painter().rect_filled(band, 2.0, edge);
}

/// The rule's id as it stands in exports.
fn rule_id(finding: &Finding) -> String {
    let id = serde_json::to_value(finding.rule).ok();
    id.and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A command with a button that copies it.
fn line_to_copy(ui: &mut Ui, what: &str, command: &str, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    ui.horizontal(|ui| {
        let name = if what.is_empty() { format!("Copy {command}") } else { format!("Copy {what}") };
        let button = ui.small_button("Copy").accessible_name(&name);
        if button.clicked() {
            acts.push(Act::Copy { text: command.to_owned(), what: "the command".into() });
        }
        if !what.is_empty() {
            ui.label(what);
        }
        let font = FontId::monospace(theme::MONO - 1.0);
        let room = ui.available_width() - 4.0;
        let colour = if what.is_empty() { subject.palette.text } else { subject.palette.weak };
        let galley = crate::table::one_line(ui.painter(), command, font, colour, room);
        let shown = ui.label(galley);
        let hint = if what.is_empty() { command.to_owned() } else { format!("{what}\n\n{command}") };
        shown.on_hover_text(hint);
    });
}

fn breaks(ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let Some(lock) = subject.fleet.lock(subject.key) else { return };
    let Some(token) = subject.fleet.lease_to_break(subject.key) else { return };
    let Some(holder) = lock.holders.iter().find(|holder| holder.fencing_token == Some(token)) else { return };
    ui.add_space(6.0);
    ui.horizontal(|ui| {
        let button =
            ui.add_enabled(subject.read_only.is_none(), eframe::egui::Button::new("Break the lease…"));
        if let Some(why) = subject.read_only {
            button.on_disabled_hover_text(why);
        } else if button.on_hover_text("Ends the lease, after asking (Del)").clicked() {
            acts.push(Act::AskBreak(subject.key.clone(), token));
        }
        let who = subject.people.who(holder.client.as_ref());
        ui.label(RichText::new(format!("of {who}")).color(subject.palette.weak));
    });
}

fn who(ui: &mut Ui, subject: &Subject<'_>, acts: &mut Vec<Act>) {
    let palette = subject.palette;
    let Some(lock) = subject.fleet.lock(subject.key) else {
        ui.weak("It was not in the latest snapshot.");
        return;
    };
    super::votes::show(ui, lock, age_ms(subject), subject);
    let Some(evidence) = subject.fleet.evidence_about(&subject.key.connection) else { return };
    let title =
        if lock.holders.is_empty() { "HOLDER".to_owned() } else { sharing::held(lock).to_uppercase() };
    ui.label(RichText::new(title).size(11.0).color(palette.weak));
    if lock.holders.is_empty() {
        ui.label("none");
    }
    for (at, holder) in lock.holders.iter().enumerate() {
        ui.push_id(("holder", at), |ui| holder_card(ui, lock, holder, subject, &evidence, acts));
    }
    ui.add_space(6.0);
    line(ui, lock, subject, &evidence);
}

/// How much older what is shown of the lock is by now; nothing grows older while the store is not read.
fn age_ms(subject: &Subject<'_>) -> u64 {
    let store = subject.fleet.store(&subject.key.connection);
    if !store.is_some_and(|store| store.is_fresh(subject.now_ms)) {
        return 0;
    }
    let row = subject.fleet.find(subject.key).map(|place| subject.fleet.at(place));
    row.map_or(0, |row| subject.now_ms.saturating_sub(row.sampled_at_ms))
}

fn holder_card(
    ui: &mut Ui,
    lock: &LockView,
    holder: &HolderView,
    subject: &Subject<'_>,
    evidence: &Evidence<'_>,
    acts: &mut Vec<Act>,
) {
    let palette = subject.palette;
    let client = holder.client.as_ref().and_then(|id| subject.people.client(id));
    let who = subject.people.who(holder.client.as_ref());
    let age = age_ms(subject);
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(&who).strong().color(palette.strong));
        if let Some(share) = sharing::share(lock, holder) {
            ui.label(RichText::new(share).color(palette.weak));
        }
        if ui.small_button("Copy").accessible_name("Copy the holder").clicked() {
            acts.push(Act::Copy { text: who.clone(), what: "the holder".into() });
        }
    });
    if !holder.label.is_empty() {
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new("doing").size(theme::SMALL).color(palette.weak));
            ui.label(RichText::new(sanitized(&holder.label)).font(FontId::monospace(theme::MONO - 1.0)));
        });
    }
    let beside = if ui.available_width() < TWO_BESIDE { 1 } else { 2 };
    Grid::new("facts").num_columns(beside * 2).spacing([12.0, 2.0]).show(ui, |ui| {
        let mut facts: Vec<(&str, String)> = Vec::new();
        facts.extend(holder.held_for_ms.map(|held| ("held for", span(held + age))));
        facts.extend(holder.remaining_ms.map(|left| ("left", span(left.saturating_sub(age)))));
        facts.extend(holder.lease_ms.map(|lease| ("lease", span(lease))));
        facts.extend(holder.renewals.map(|times| ("renewed", format!("{times}x"))));
        facts.extend(holder.renewed_ago_ms.map(|ago| ("last", format!("{} ago", span(ago + age)))));
        facts.extend(holder.idle_ago_ms.map(|ago| ("kept", format!("no caller {} ago", span(ago + age)))));
        facts.extend(holder.fencing_token.map(|token| ("fence", token.to_string())));
        facts.extend(
            holder
                .acquired_at_ms
                .map(|at| ("since", format!("{} UTC", clock_time(at, subject.store_now_ms)))),
        );
        if let Some(client) = client {
            facts.push((
                "language",
                format!("{} {}", sanitized(&client.language), sanitized(&client.version)),
            ));
            let seen = span(client.seen_ago_ms + age);
            facts.push(("seen", format!("{seen} ago")));
        }
        for (at, (name, fact)) in facts.iter().enumerate() {
            ui.label(RichText::new(*name).size(theme::SMALL).color(palette.weak));
            ui.label(RichText::new(fact).font(FontId::monospace(theme::MONO - 1.0)));
            if at % beside == beside - 1 {
                ui.end_row();
            }
        }
    });
    // The record itself has a page of its own.
    let mut of_store = holder.details.iter().filter(|detail| detail.name != "value").peekable();
    if of_store.peek().is_some() {
        Grid::new("of the store").num_columns(2).spacing([12.0, 2.0]).show(ui, |ui| {
            for detail in of_store {
                ui.label(RichText::new(sanitized(&detail.name)).size(theme::SMALL).color(palette.weak));
                let fact = RichText::new(sanitized(&detail.value));
                ui.add(Label::new(fact.font(FontId::monospace(theme::MONO - 1.0))).wrap());
                ui.end_row();
            }
        });
    }
    match evidence.process(holder) {
        Process::Gone => _ = ui.label(RichText::new("its process is gone").color(palette.orphan)),
        Process::Present { stopped: true, .. } => {
            ui.label(RichText::new("its process is stopped").color(palette.orphan));
        }
        Process::Present { .. } | Process::Unknown => {}
    }
    if holder.client.as_ref().is_some_and(|id| evidence.is_apart(id)) {
        ui.label(RichText::new(APART).size(theme::SMALL).color(palette.weak));
    }
    ui.add_space(4.0);
}

fn line(ui: &mut Ui, lock: &LockView, subject: &Subject<'_>, evidence: &Evidence<'_>) {
    let palette = subject.palette;
    let title = match lock.waiters.len() {
        0 => "NO WAITERS".to_owned(),
        1 => "1 WAITS".to_owned(),
        several => format!("{several} WAIT, IN THIS ORDER"),
    };
    ui.label(RichText::new(title).size(11.0).color(palette.weak));
    if lock.waiters.is_empty() {
        return;
    }
    let age = age_ms(subject);
    for waiter in lock.waiters.iter().take(MOST_WAITERS) {
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.y = 1.0;
            ui.label(RichText::new(format!("{:>2}", waiter.position + 1)).monospace().color(palette.weak));
            let (rect, _) = ui.allocate_exact_size(vec2(12.0, 14.0), Sense::hover());
            let state = if waiter.silent { LockState::Unknown } else { LockState::Contended };
            marks::state(ui.painter(), rect.center(), 11.0, state, palette);
            ui.label(format!("{}{}", subject.people.who(Some(&waiter.client)), sharing::wish(waiter)));
            ui.label(RichText::new(span(waiter.waited_ms + age)).monospace());
            if !waiter.label.is_empty() {
                ui.label(RichText::new(sanitized(&waiter.label)).color(palette.weak));
            }
            let limit = gives_up(waiter, subject.store_now_ms);
            if !limit.is_empty() {
                ui.label(RichText::new(limit).color(palette.weak));
            }
            if waiter.silent {
                ui.label("no heartbeat: it will be passed over");
            }
            if evidence.is_apart(&waiter.client) {
                ui.label(RichText::new("container").size(theme::SMALL).color(palette.weak))
                    .on_hover_text(APART);
            }
        });
    }
    if lock.waiters.len() > MOST_WAITERS {
        ui.label(format!("and {} more", lock.waiters.len() - MOST_WAITERS));
    }
}
