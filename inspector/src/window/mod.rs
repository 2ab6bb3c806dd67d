//! The desktop window: everything the model knows, to look at and to act on.

pub mod args;
pub mod command;
#[cfg(unix)]
pub mod demo;
pub mod dialogs;
pub mod key_bar;
pub mod marks;
pub mod settings;
pub mod table;
pub mod theme;
pub mod toasts;
