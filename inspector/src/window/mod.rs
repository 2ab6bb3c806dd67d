//! The desktop window: everything the model knows, to look at and to act on.

pub mod command;
#[cfg(unix)]
pub mod demo;
pub mod marks;
pub mod settings;
pub mod theme;
pub mod toasts;
