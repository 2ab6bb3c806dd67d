//! Every action as a value, with its key: keys, buttons, palette and help all name the same ones.

use eframe::egui::{self, Key, KeyboardShortcut, Modifiers};

/// A page of the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tab {
    /// Why it is as it is, what to do, holders, line.
    #[default]
    Explain,
    /// Who held when.
    Timeline,
    /// The beats of renewal.
    Renewals,
    /// Who waits for whom.
    Graph,
    /// What stands in the store.
    Raw,
    /// What happened.
    Events,
}

impl Tab {
    /// All, in order.
    pub const ALL: [Self; 6] =
        [Self::Explain, Self::Timeline, Self::Renewals, Self::Graph, Self::Raw, Self::Events];

    /// Returns the word on the tab.
    pub fn word(self) -> &'static str {
        match self {
            Self::Explain => "Explain",
            Self::Timeline => "Timeline",
            Self::Renewals => "Renewals",
            Self::Graph => "Graph",
            Self::Raw => "Raw",
            Self::Events => "Events",
        }
    }
}

/// An action of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Help,
    Palette,
    Filter,
    Back,
    Pause,
    Refresh,
    Open,
    Show(Tab),
    CopyRow,
    CopyStep,
    CopyLink,
    Export,
    Break,
    Follow,
    PreviousFinding,
    NextFinding,
    ToggleRail,
    ToggleDetails,
    View(u8),
    GroupByPrefix,
    Clients,
    Records,
    Connections,
    SaveView,
    Record,
    OpenRecording,
    Alerts,
    NextTheme,
    Contrast,
    Density,
    Larger,
    Smaller,
    NormalSize,
    Quit,
}

/// One line of the help.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub command: Command,
    /// What it does, as the palette says it.
    pub name: &'static str,
    /// Its key; `None` if it has none.
    pub key: Option<KeyboardShortcut>,
}

const PLAIN: Modifiers = Modifiers::NONE;
const CTRL: Modifiers = Modifiers::COMMAND;

const fn entry(command: Command, name: &'static str, modifiers: Modifiers, key: Key) -> Entry {
    Entry { command, name, key: Some(KeyboardShortcut::new(modifiers, key)) }
}

const fn keyless(command: Command, name: &'static str) -> Entry {
    Entry { command, name, key: None }
}

/// Everything the palette and the help list.
pub const ENTRIES: &[Entry] = &[
    entry(Command::Filter, "Filter", PLAIN, Key::Slash),
    entry(Command::Open, "Show details of the selected lock", PLAIN, Key::Enter),
    entry(Command::Show(Tab::Explain), "Explain why it is stuck", PLAIN, Key::E),
    entry(Command::Show(Tab::Timeline), "Timeline of holders", PLAIN, Key::T),
    entry(Command::Show(Tab::Renewals), "Renewals", PLAIN, Key::H),
    entry(Command::Show(Tab::Graph), "Graph of who waits for whom", PLAIN, Key::G),
    entry(Command::Show(Tab::Raw), "Raw record", PLAIN, Key::W),
    entry(Command::Show(Tab::Events), "Events", PLAIN, Key::V),
    entry(Command::PreviousFinding, "Previous finding", PLAIN, Key::OpenBracket),
    entry(Command::NextFinding, "Next finding", PLAIN, Key::CloseBracket),
    entry(Command::CopyStep, "Copy the command that helps", PLAIN, Key::C),
    entry(Command::CopyRow, "Copy the row as Markdown", CTRL, Key::C),
    entry(Command::CopyLink, "Copy a link to the lock", CTRL, Key::L),
    entry(Command::Break, "Break the lease…", PLAIN, Key::Delete),
    entry(Command::Follow, "Follow the selected lock", PLAIN, Key::F),
    entry(Command::Pause, "Pause or go on", PLAIN, Key::Space),
    entry(Command::Refresh, "Read again now", PLAIN, Key::R),
    entry(Command::View(1), "View: all locks", PLAIN, Key::Num1),
    entry(Command::View(2), "View: need attention", PLAIN, Key::Num2),
    entry(Command::View(3), "View: deadlocks", PLAIN, Key::Num3),
    entry(Command::View(4), "View: no expiry", PLAIN, Key::Num4),
    entry(Command::View(5), "View: held long", PLAIN, Key::Num5),
    entry(Command::View(6), "View: waited for", PLAIN, Key::Num6),
    entry(Command::Clients, "View: clients", PLAIN, Key::Num7),
    entry(Command::Records, "View: idempotency keys", PLAIN, Key::Num8),
    entry(Command::GroupByPrefix, "Group by prefix", PLAIN, Key::P),
    entry(Command::ToggleRail, "Show or hide connections and views", PLAIN, Key::B),
    entry(Command::ToggleDetails, "Show or hide details", PLAIN, Key::D),
    entry(Command::Connections, "Connections…", CTRL, Key::N),
    entry(Command::SaveView, "Save the filter as a view…", CTRL, Key::S),
    entry(Command::Alerts, "Alert rules…", CTRL, Key::A),
    entry(Command::Export, "Export the view…", CTRL, Key::E),
    entry(Command::Record, "Record, or stop recording", CTRL, Key::R),
    entry(Command::OpenRecording, "Open a recording…", CTRL, Key::O),
    keyless(Command::NextTheme, "Theme: system, dark, light"),
    keyless(Command::Contrast, "High contrast"),
    keyless(Command::Density, "Compact or comfortable rows"),
    entry(Command::Larger, "Larger", CTRL, Key::Plus),
    entry(Command::Smaller, "Smaller", CTRL, Key::Minus),
    entry(Command::NormalSize, "Normal size", CTRL, Key::Num0),
    entry(Command::Palette, "All commands", CTRL, Key::K),
    entry(Command::Help, "Help", PLAIN, Key::F1),
    entry(Command::Back, "Back, or clear", PLAIN, Key::Escape),
    entry(Command::Quit, "Quit", CTRL, Key::Q),
];

/// Further keys for actions of the list.
const MORE_KEYS: &[(Command, Modifiers, Key)] = &[
    (Command::Filter, CTRL, Key::F),
    (Command::Help, Modifiers::SHIFT, Key::Questionmark),
    (Command::Help, PLAIN, Key::Questionmark),
    (Command::Larger, CTRL, Key::Equals),
];

/// Returns the action's line.
pub fn of(command: Command) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.command == command)
}

/// Writes a key as people read it: `Ctrl+K`, `/`, `Del`.
pub fn key_text(shortcut: KeyboardShortcut) -> String {
    let name = match shortcut.logical_key {
        Key::Slash => "/",
        Key::OpenBracket => "[",
        Key::CloseBracket => "]",
        Key::Escape => "Esc",
        Key::Delete => "Del",
        Key::Plus => "+",
        Key::Minus => "-",
        key => key.name(),
    };
    if shortcut.modifiers.command { format!("Ctrl+{name}") } else { name.to_owned() }
}

/// Takes the commands whose keys were pressed. While somebody types (`typing`), only keys that mean
/// nothing in a text field count: those with Ctrl (but not those that edit text) and function keys.
pub fn pressed(ctx: &egui::Context, typing: bool) -> Vec<Command> {
    let all = ENTRIES.iter().filter_map(|entry| entry.key.map(|key| (entry.command, key)));
    let more =
        MORE_KEYS.iter().map(|&(command, modifiers, key)| (command, KeyboardShortcut::new(modifiers, key)));
    ctx.input_mut(|input| {
        let mut found = Vec::new();
        for (command, key) in all.chain(more) {
            let edits_text = matches!(key.logical_key, Key::A | Key::C | Key::E) && key.modifiers.command;
            let free = key.modifiers.command && !edits_text;
            let free = free || matches!(key.logical_key, Key::F1 | Key::Escape);
            if (!typing || free) && consume(input, &key) && !found.contains(&command) {
                found.push(command);
            }
        }
        // The platform's own copy key arrives as an event of its own.
        if !typing && input.events.iter().any(|event| matches!(event, egui::Event::Copy)) {
            input.events.retain(|event| !matches!(event, egui::Event::Copy));
            found.push(Command::CopyRow);
        }
        found
    })
}

/// As `consume_shortcut`, but Shift must match too, so that a capital letter is not a small one.
fn consume(input: &mut egui::InputState, key: &KeyboardShortcut) -> bool {
    let mut found = false;
    input.events.retain(|event| {
        let hit = matches!(event, egui::Event::Key { key: pressed, modifiers, pressed: true, .. }
            if *pressed == key.logical_key && modifiers.matches_exact(key.modifiers));
        found |= hit;
        !hit
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_and_no_command_is_listed_twice() {
        let mut keys: Vec<(Modifiers, Key)> = Vec::new();
        let listed = ENTRIES.iter().filter_map(|entry| entry.key).map(|key| (key.modifiers, key.logical_key));
        for key in listed.chain(MORE_KEYS.iter().map(|(_, modifiers, key)| (*modifiers, *key))) {
            assert!(!keys.contains(&key), "{key:?}");
            keys.push(key);
        }
        for (at, entry) in ENTRIES.iter().enumerate() {
            assert!(
                !ENTRIES[..at].iter().any(|other| other.command == entry.command || other.name == entry.name)
            );
        }
    }

    #[test]
    fn keys_are_written_as_people_read_them() {
        let text = |command| key_text(of(command).unwrap().key.unwrap());
        assert_eq!(text(Command::Palette), "Ctrl+K");
        assert_eq!(text(Command::Filter), "/");
        assert_eq!(text(Command::Break), "Del");
        assert_eq!(text(Command::View(1)), "1");
    }
}
