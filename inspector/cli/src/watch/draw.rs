//! The live view on a terminal: table, details, dialogs.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::app::{App, BreakForm, Mode};
use super::line;
use crate::paint::Paint;
use model::deadline::gives_up;
use model::history::PulseKind;
use model::text::{bar, clock_time, fit, fit_middle, sanitized, short_span, span, width};
use model::view::Line;
use model::{Evidence, Next, Severity};
use model::{Filter, Fleet, LockState, Phase, Row, RowKey};

/// Columns of the table: title, width, and the width of the screen from which on it is shown. The name has what they
/// leave, which is at least 24 columns on a screen of 80.
const COLUMNS: [(&str, u16, u16); 7] = [
    ("STATE", 13, 0),
    ("HOLDER", 20, 76),
    ("DOING", 18, 140),
    ("LEASE", 18, 100),
    ("HELD", 7, 0),
    ("RENEWALS", 12, 116),
    ("WAITING", 10, 50),
];

/// Columns of a lease bar.
const BAR: usize = 8;

/// Events of a lock that are listed.
const EVENTS: usize = 8;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, paint: &Paint, now_ms: u64) {
    let area = frame.area();
    let details = if app.details { Constraint::Percentage(50) } else { Constraint::Length(0) };
    let filter = matches!(app.mode, Mode::Filter { .. }) || !app.view.filter.is_empty();
    let [head, filter, table, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(filter)),
        Constraint::Min(2),
        details,
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title(app, paint, now_ms)), head);
    if filter.height > 0 {
        frame.render_widget(Paragraph::new(filter_line(app, paint)), filter);
    }
    draw_table(frame, table, app, paint, now_ms);
    if details.height > 0 {
        draw_details(frame, details, app, paint, now_ms);
    }
    let keys = "q leaves  / filter  Enter details  s sort  g group  space pause  b break  ? help";
    let text = app.message.clone().unwrap_or_else(|| keys.into());
    let style = if app.message.is_some() { colour(paint, Color::Yellow) } else { dim() };
    frame.render_widget(Paragraph::new(Text::styled(fit(&text, usize::from(foot.width)), style)), foot);
    match &app.mode {
        Mode::Break(form) => draw_break(frame, area, app, form, paint, now_ms),
        Mode::Help => draw_help(frame, area),
        Mode::Table | Mode::Filter { .. } => {}
    }
}

fn title<'a>(app: &App, paint: &Paint, now_ms: u64) -> Text<'a> {
    let (fleet, at_ms) = app.overview(now_ms);
    let Some(store) = fleet.store(&app.id) else { return Text::raw("") };
    let url = sanitized(&store.connection().shown_url);
    match store.phase(at_ms) {
        Phase::Lost { since_ms, why, retry_at_ms, .. } => {
            let since = since_ms.map(|at| format!(" since {} UTC", clock_time(at, at))).unwrap_or_default();
            let retry = retry_at_ms.map(|at| format!("; next try in {}", span(at.saturating_sub(at_ms))));
            let text = format!("NOT KNOWN{since}: {why}{}", retry.unwrap_or_default());
            return Text::styled(text, colour(paint, Color::Red).add_modifier(Modifier::BOLD));
        }
        Phase::Connecting => return Text::raw(format!("connecting to {url} …")),
        Phase::Unfit { word, why } => {
            let text = format!("{word}: {why}");
            return Text::styled(text, colour(paint, Color::Red).add_modifier(Modifier::BOLD));
        }
        Phase::Late { since_ms } => {
            let text = format!("LATE: not read since {} UTC", clock_time(since_ms, since_ms));
            return Text::styled(text, colour(paint, Color::Yellow).add_modifier(Modifier::BOLD));
        }
        Phase::Live => {}
    }
    let summary = fleet.summary(at_ms);
    let mut spans = Vec::new();
    if app.frozen.is_some() {
        let paused = colour(paint, Color::Yellow).add_modifier(Modifier::BOLD);
        spans.push(Span::styled("PAUSED  ", paused));
    }
    spans.push(Span::styled(app.arrangement(), Style::new().add_modifier(Modifier::BOLD)));
    let mut count = |number: usize, what: &str, style: Style| {
        if number > 0 {
            spans.push(Span::styled(format!("  {number} {what}"), style));
        }
    };
    count(summary.attention, "need attention", colour(paint, Color::Yellow).add_modifier(Modifier::BOLD));
    count(summary.deadlocked, "deadlocked", colour(paint, Color::Magenta));
    count(summary.no_expiry, "without expiry", colour(paint, Color::Red));
    count(summary.waiting, "waiting", Style::new());
    let cost = store.cost();
    let at = store.sampled_at_ms().map(|at| clock_time(at, at)).unwrap_or_default();
    spans.push(Span::styled(
        format!(
            "  as of {at} UTC, {:.1} requests/s, {:.0} ms  {url}",
            cost.requests_per_sec, cost.reading_ms
        ),
        dim(),
    ));
    Text::from(spans)
}

fn filter_line<'a>(app: &App, paint: &Paint) -> Text<'a> {
    let Mode::Filter { text } = &app.mode else {
        return Text::styled(format!("/ {}   Esc clears", sanitized(app.view.filter.text())), dim());
    };
    let mut spans = vec![Span::raw(format!("/ {}", sanitized(text))), Span::raw("▏")];
    if let Err(error) = Filter::parse(text) {
        spans.push(Span::styled(format!("   {}", sanitized(&error.to_string())), colour(paint, Color::Red)));
    }
    Text::from(spans)
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, app: &mut App, paint: &Paint, now_ms: u64) {
    let room = usize::from(area.height.saturating_sub(1));
    app.page = room.max(1);
    if let Some(place) = app.selected.clone().and_then(|key| app.place_of(&key, now_ms)) {
        // The selection stays in sight, with its heading if there is one.
        app.top = app.top.min(place.saturating_sub(1)).max((place + 1).saturating_sub(room));
    }
    app.top = app.top.min(app.lines.lines.len().saturating_sub(room));
    let widths = columns(area.width);
    let (fleet, at_ms) = app.overview(now_ms);
    let mut lines = vec![heading(&widths)];
    let fresh = fleet.store(&app.id).is_some_and(|store| store.is_fresh(at_ms));
    for shown in app.lines.lines.iter().skip(app.top).take(room) {
        lines.push(match shown {
            Line::Heading { title, rows, attention } => {
                let attention =
                    if *attention > 0 { format!(", {attention} need attention") } else { String::new() };
                let text = format!("{title}  {rows}{attention}");
                Text::styled(text, Style::new().add_modifier(Modifier::UNDERLINED))
            }
            Line::Row(place) => {
                let row = fleet.at(*place);
                let chosen = app.selected.as_ref() == Some(&row.key);
                table_row(row, fleet.state(row, at_ms), &widths, paint, at_ms, chosen, fresh)
            }
        });
    }
    if app.lines.lines.is_empty() {
        let text = match (app.lines.all, fresh) {
            (0, true) => "no lock is held or waited for; try: polylatch run demo/first -- sleep 30",
            (0, false) => "",
            _ => "no lock passes the filter; Esc clears it",
        };
        lines.push(Text::styled(text, dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The width of each column, 0 for those that are left out; the first is that of the name.
fn columns(screen: u16) -> Vec<usize> {
    let shown = COLUMNS.map(|(_, width, from)| if screen >= from { usize::from(width) } else { 0 });
    let taken: usize = shown.iter().map(|width| width + usize::from(*width > 0)).sum();
    let name = usize::from(screen).saturating_sub(taken).max(8);
    std::iter::once(name).chain(shown).collect()
}

fn heading<'a>(widths: &[usize]) -> Text<'a> {
    let cell = |title: &str, width: usize| if width > 0 { pad(title, width) + " " } else { String::new() };
    let mut text = cell(COLUMNS[0].0, widths[1]) + &cell("LOCK", widths[0]);
    for ((title, ..), width) in COLUMNS.iter().zip(&widths[1..]).skip(1) {
        text += &cell(title, *width);
    }
    Text::styled(text, dim())
}

fn table_row<'a>(
    row: &Row,
    state: LockState,
    widths: &[usize],
    paint: &Paint,
    now_ms: u64,
    chosen: bool,
    fresh: bool,
) -> Text<'a> {
    let held = row.holders > 0;
    let others = if row.holders > 1 { format!(" +{}", row.holders - 1) } else { String::new() };
    let lease = match row.left_now_ms(now_ms) {
        _ if !held => String::new(),
        Some(left) => format!("{} {:>6}", bar(left, row.lease_ms.unwrap_or(left), BAR), short_span(left)),
        None => "no end known".into(),
    };
    let beats = match (row.renewals, row.missed) {
        _ if !held => String::new(),
        (Some(beats), 0) => format!("{beats}x"),
        (Some(beats), missed) => format!("{beats}x -{missed}"),
        (None, _) => "?".into(),
    };
    let mut waiting = String::new();
    if row.waiters > 0 {
        waiting =
            format!("{} {}", row.waiters, row.waited_now_ms(now_ms).map(short_span).unwrap_or_default());
    }
    if row.silent > 0 {
        waiting = format!("{waiting} +{}?", row.silent).trim_start().to_owned();
    }
    let mode = if row.mode.is_empty() { String::new() } else { format!(" {}", row.mode) };
    let name = fit_middle(&row.name, widths[0].saturating_sub(width(&mode)).max(8)) + &mode;
    let holder = format!("{} {}{others}", row.place, row.program);
    let holder = fit_middle(holder.trim_end(), widths[2]);
    let accent = state_style(paint, state);
    let base = if fresh && row.gone_at_ms.is_none() { Style::new() } else { dim() };
    let base = if row.gone_at_ms.is_some() { base.add_modifier(Modifier::CROSSED_OUT) } else { base };
    let base = if chosen { base.add_modifier(Modifier::REVERSED) } else { base };
    let cells = [
        (paint.state(state), accent),
        (name, Style::new().add_modifier(Modifier::BOLD)),
        (holder, Style::new()),
        (row.label.clone(), Style::new()),
        (lease, if row.severity() > Severity::Fine { accent } else { Style::new() }),
        (row.held_now_ms(now_ms).filter(|_| held).map(short_span).unwrap_or_default(), Style::new()),
        (beats, if row.missed > 0 { colour(paint, Color::Yellow) } else { Style::new() }),
        (waiting, Style::new()),
    ];
    let order = [1, 0, 2, 3, 4, 5, 6, 7];
    let spans = cells.into_iter().zip(order).filter(|(_, column)| widths[*column] > 0).flat_map(
        |((text, style), column)| {
            let style = if fresh { base.patch(style) } else { base };
            [Span::styled(pad(&text, widths[column]), style), Span::styled(" ", base)]
        },
    );
    Text::from(spans.collect::<Vec<_>>())
}

fn pad(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text + &" ".repeat(missing)
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, app: &App, paint: &Paint, now_ms: u64) {
    let (fleet, at_ms) = app.overview(now_ms);
    let title = app.selected_row(now_ms).map(|row| format!(" {} ", row.name)).unwrap_or_default();
    let lines = app
        .selected
        .as_ref()
        .map(|key| details(fleet, key, paint, at_ms))
        .unwrap_or_else(|| vec![Text::styled("nothing is selected", dim())]);
    let block = Block::bordered().title(title).border_style(dim());
    let text = Paragraph::new(lines).block(block).wrap(Wrap { trim: false }).scroll((app.detail_scroll, 0));
    frame.render_widget(text, area);
}

/// Why, what to do, who holds, who waits, the beats, and what happened.
fn details<'a>(fleet: &Fleet, key: &RowKey, paint: &Paint, now_ms: u64) -> Vec<Text<'a>> {
    let mut lines = Vec::new();
    let findings = fleet.explain_now(key, now_ms);
    for finding in &findings {
        lines.push(Text::styled(finding.sentence.clone(), severity_style(paint, finding.severity)));
    }
    for next in findings.iter().flat_map(|finding| &finding.next) {
        lines.push(match next {
            Next::Run(command) => Text::from(vec![Span::styled("  $ ", dim()), Span::raw(command.clone())]),
            Next::Do(advice) => Text::from(vec![Span::styled("  > ", dim()), Span::raw(advice.clone())]),
        });
    }
    let (Some(store), Some(lock)) = (fleet.store(&key.connection), fleet.lock(key)) else {
        lines.push(Text::styled("it is free: it is no longer held or waited for", dim()));
        return lines;
    };
    let Some(snapshot) = store.snapshot() else { return lines };
    let facts = model::NoHostFacts;
    let evidence = Evidence::new(snapshot, &facts, &store.connection().command);
    let section = |title: &str| Text::styled(title.to_owned(), Style::new().add_modifier(Modifier::BOLD));
    if !lock.holders.is_empty() {
        lines.push(section("HOLDERS"));
    }
    for holder in &lock.holders {
        let who = holder.client.as_ref().map_or_else(|| "another program".into(), |id| evidence.who(id));
        let label = if holder.label.is_empty() {
            String::new()
        } else {
            format!(" \"{}\"", sanitized(&holder.label))
        };
        let token = holder.fencing_token.map(|token| format!(", token {token}")).unwrap_or_default();
        let held = holder.held_for_ms.map(|ms| format!(", held {}", span(ms))).unwrap_or_default();
        lines.push(Text::raw(format!("  {who}{label}{token}{held}, {}", sanitized(&holder.mode))));
    }
    if !lock.waiters.is_empty() {
        lines.push(section("QUEUE"));
    }
    for waiter in lock.waiters.iter().take(20) {
        let silent = if waiter.silent { ", silent" } else { "" };
        let label = if waiter.label.is_empty() {
            String::new()
        } else {
            format!(" \"{}\"", sanitized(&waiter.label))
        };
        let (place, who) = (waiter.position + 1, evidence.who(&waiter.client));
        let waited = span(waiter.waited_ms + now_ms.saturating_sub(store.sampled_at_ms().unwrap_or(now_ms)));
        let limit = match gives_up(waiter, store.store_now_ms(now_ms)) {
            limit if limit.is_empty() => limit,
            limit => format!(", {limit}"),
        };
        lines.push(Text::raw(format!("  {place}. {who}{label}, for {waited}{limit}{silent}")));
    }
    if let Some(history) = fleet.history(key) {
        let beats: String = history
            .pulses
            .iter()
            .map(|pulse| match (pulse.kind, paint.unicode) {
                (PulseKind::Granted, true) => '◆',
                (PulseKind::Granted, false) => 'G',
                (PulseKind::Renewed { .. }, true) => '│',
                (PulseKind::Renewed { .. }, false) => '|',
                (PulseKind::Missed, true) => '×',
                (PulseKind::Missed, false) => 'x',
                (PulseKind::Ended, true) => '┄',
                (PulseKind::Ended, false) => '-',
            })
            .collect();
        lines.push(Text::from(vec![
            Span::styled("RENEWALS ", Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(beats),
            Span::styled("   granted, renewed, missed, ended", dim()),
        ]));
    }
    for detail in &lock.details {
        lines.push(Text::styled(
            format!("  {}: {}", sanitized(&detail.name), sanitized(&detail.value)),
            dim(),
        ));
    }
    let events: Vec<_> = fleet.events_of(key).collect();
    if !events.is_empty() {
        lines.push(section("EVENTS"));
    }
    for logged in events.iter().rev().take(EVENTS) {
        let text = line(&logged.event, snapshot.taken_at_ms, |id| evidence.who(id));
        lines.push(Text::raw(format!("  {text}")));
    }
    lines
}

fn draw_break(frame: &mut Frame<'_>, area: Rect, app: &App, form: &BreakForm, paint: &Paint, now_ms: u64) {
    let name = sanitized(&form.key.lock);
    let changed = app.fleet.find(&form.key).map(|place| app.fleet.at(place).fencing_token);
    let held = app
        .selected_row(now_ms)
        .and_then(|row| row.held_now_ms(now_ms))
        .map(|ms| format!(", held for {}", span(ms)))
        .unwrap_or_default();
    let cursor = |here: bool| if here { "▏" } else { "" };
    let mut lines = vec![
        Text::raw(format!("Lock    {name}")),
        Text::raw(format!("Holder  {}{held}", form.holder)),
        Text::raw(format!("Token   {}: if the lock changes hands, nothing is broken", form.expected)),
    ];
    lines.push(if form.alive {
        Text::styled(
            "It looks ALIVE. It learns of the loss at its next renewal; until then two may work.",
            colour(paint, Color::Red).add_modifier(Modifier::BOLD),
        )
    } else {
        Text::styled("It was not heard of lately. If it is alive, it is notified at its next renewal.", dim())
    });
    if changed != Some(Some(form.expected.get())) {
        let text = "The lock changed hands meanwhile: this would break nothing.";
        lines.push(Text::styled(text, colour(paint, Color::Yellow)));
    }
    lines.push(Text::raw(""));
    lines.push(Text::raw(format!("Why     {}{}", sanitized(&form.reason), cursor(!form.at_name))));
    if form.alive {
        lines.push(Text::raw(format!("Name    {}{}", sanitized(&form.name), cursor(form.at_name))));
    }
    lines.push(Text::raw(""));
    let what = form
        .missing()
        .map_or_else(|| "Enter breaks the lease".to_owned(), |missing| format!("To do: {missing}"));
    lines.push(Text::styled(format!("{what}   Tab other field   Esc leaves it alone"), dim()));
    window(frame, area, " Break a lease ", lines);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let keys = [
        ("arrows, j k, PgUp PgDn", "select"),
        ("Enter", "details: why, who holds, who waits, renewals, events (J K scroll)"),
        ("/", "filter: text, state:stuck, holder:web-1, held>10m, ttl<5s, waiters>0, -part"),
        ("1 2 3 4 5", "all, need attention, deadlocks, no expiry or holder gone, waited for"),
        ("s S g", "sort by another column, reverse, group"),
        ("space", "pause the overview; reading goes on"),
        ("r", "read now"),
        ("b, Del", "break the selected lease, after a confirmation"),
        ("Esc", "close details, clear the filter, leave"),
        ("q, Ctrl-C", "leave"),
    ];
    let mut lines: Vec<Text<'_>> =
        keys.iter().map(|(key, what)| Text::raw(format!("{key:<24}{what}"))).collect();
    lines.push(Text::raw(""));
    let states = LockState::ALL.map(LockState::word).join(", ");
    lines.push(Text::styled(format!("States, worst first: {states}"), dim()));
    lines.push(Text::styled("Any key closes this.", dim()));
    window(frame, area, " Keys ", lines);
}

fn window(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Text<'_>>) {
    let width = area.width.min(96);
    let longest = usize::from(width.saturating_sub(2)).max(1);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(longest).max(1)).sum();
    let height = (rows as u16 + 2).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: false }), place);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn colour(paint: &Paint, colour: Color) -> Style {
    if paint.colour { Style::new().fg(colour) } else { Style::new() }
}

fn state_style(paint: &Paint, state: LockState) -> Style {
    let bold = |style: Style| style.add_modifier(Modifier::BOLD);
    match state {
        LockState::Deadlock => bold(colour(paint, Color::Magenta)),
        LockState::MayDeadlock => colour(paint, Color::Magenta),
        LockState::Stopped | LockState::NoExpiry => bold(colour(paint, Color::Red)),
        LockState::Gone | LockState::NoRenewal => bold(colour(paint, Color::Yellow)),
        LockState::Endangered => colour(paint, Color::Yellow),
        LockState::Contended => colour(paint, Color::Cyan),
        LockState::Held => colour(paint, Color::Green),
        LockState::Foreign | LockState::LockDelay | LockState::Free | LockState::Unknown => dim(),
    }
}

fn severity_style(paint: &Paint, severity: Severity) -> Style {
    match severity {
        Severity::Problem => colour(paint, Color::Red).add_modifier(Modifier::BOLD),
        Severity::Warning => colour(paint, Color::Yellow).add_modifier(Modifier::BOLD),
        Severity::Notice => colour(paint, Color::Yellow),
        Severity::Fine => colour(paint, Color::Green),
    }
}
