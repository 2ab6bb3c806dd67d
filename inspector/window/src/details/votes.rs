//! What each of several independent nodes says of a lock.

use eframe::egui::{FontId, Grid, RichText, Sense, Ui, vec2};

use polylatch::inspect::{LockView, VoteView};

use super::Subject;
use crate::{marks, theme};
use model::LockState;
use model::text::{sanitized, span};
use model::votes::tally;

/// Shows the votes, if there are any. `age_ms` is how old the snapshot is.
pub(super) fn show(ui: &mut Ui, lock: &LockView, age_ms: u64, subject: &Subject<'_>) {
    let Some(tally) = tally(lock) else { return };
    let palette = subject.palette;
    let held = lock.holders.first();
    let most = tally.camps.first().map_or(0, |camp| camp.nodes);
    let title = format!("VOTES: {most} OF {} NODES, {} NEEDED", tally.nodes, tally.needed);
    ui.label(RichText::new(title).size(11.0).color(palette.weak));
    Grid::new("votes").num_columns(4).spacing([12.0, 3.0]).striped(true).show(ui, |ui| {
        for vote in &lock.votes {
            let state = match (vote.reached, &vote.owner_digest) {
                (false, _) => LockState::Unknown,
                (true, None) => LockState::Free,
                (true, Some(digest)) if held.is_some_and(|holder| holder.owner_digest == *digest) => {
                    LockState::Held
                }
                (true, Some(_)) => LockState::Contended,
            };
            ui.horizontal(|ui| {
                let (rect, _) = ui.allocate_exact_size(vec2(12.0, 14.0), Sense::hover());
                marks::state(ui.painter(), rect.center(), 11.0, state, palette);
                ui.label(RichText::new(sanitized(&vote.node)).font(FontId::monospace(theme::MONO - 1.0)));
            });
            ui.label(word(vote, subject));
            let left = vote.remaining_ms.map(|left| left.saturating_sub(age_ms));
            let (bar, _) = ui.allocate_exact_size(vec2(60.0, 9.0), Sense::hover());
            if let Some((left, lease)) = left.zip(held.and_then(|holder| holder.lease_ms)) {
                let share = (left as f32 / lease.max(1) as f32).min(1.0);
                marks::lease_bar(ui.painter(), bar, share, palette.state(state), palette);
            }
            let left = match (left, &vote.owner_digest) {
                (Some(left), _) => span(left),
                (None, Some(_)) => "never ends".into(),
                (None, None) => String::new(),
            };
            ui.label(RichText::new(left).monospace());
            ui.end_row();
        }
    });
    ui.add_space(6.0);
}

fn word(vote: &VoteView, subject: &Subject<'_>) -> String {
    match (vote.reached, &vote.owner_digest) {
        (false, _) => "does not answer".into(),
        (true, None) => "free".into(),
        (true, Some(_)) => format!("for {}", subject.people.who(vote.client.as_ref())),
    }
}
