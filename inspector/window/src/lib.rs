//! The desktop window: everything the model knows, to look at and to act on.
//!
//! Drawing changes nothing: it pushes wishes (`act`), which are carried out after the frame
//! (`doing`). What is shown is a [`Fleet`](model::Fleet): the live one, which a thread keeps
//! (`live`), a frozen copy of it, or that of a recording (`replaying`).

#![deny(missing_docs)]

mod act;
mod app;
mod args;
mod clients;
mod command;
mod connecting;
#[cfg(unix)]
mod demo;
mod details;
mod dialogs;
mod doing;
mod empty;
mod fonts;
mod key_bar;
pub mod keyring;
mod live;
mod locks;
mod marks;
mod notify;
mod people;
mod rail;
mod records;
mod replaying;
mod run;
mod settings;
mod table;
mod theme;
mod toasts;
mod top;
mod wanted;

pub use app::App;
pub use args::Args;
pub use run::main;
pub use settings::Settings;
pub use theme::ThemeChoice;
