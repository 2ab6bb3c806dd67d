//! The terminal as a screen of lines, and its keys.

use std::io::{self, Write};

use crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue, style};

use crate::paint::Paint;

/// The terminal in its special state; back to normal when dropped.
#[derive(Debug)]
pub(crate) struct Screen(());

impl Screen {
    pub(crate) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self(());
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Replaces everything on the screen by the lines that `page` makes for its size.
    pub(crate) fn draw(&self, page: impl FnOnce(&Paint, usize) -> Vec<String>) -> io::Result<()> {
        let (columns, lines) = size()?;
        let paint = Paint { columns: Some(usize::from(columns).max(20)), ..Paint::for_stdout() };
        let page = page(&paint, usize::from(lines));
        let mut out = io::BufWriter::new(io::stdout().lock());
        queue!(out, BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
        for (at, text) in page.iter().enumerate() {
            if at > 0 {
                queue!(out, style::Print("\r\n"))?;
            }
            queue!(out, style::Print(text), Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Keys and resizes, read by a thread of their own because reading them blocks.
pub(crate) fn keys() -> tokio::sync::mpsc::UnboundedReceiver<Input> {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(input) = event::read() {
            if send.send(input).is_err() {
                break;
            }
        }
    });
    receive
}

/// Returns the key that was pressed, if it was one.
pub(crate) fn pressed(input: &Input) -> Option<KeyEvent> {
    match input {
        Input::Key(key) if key.kind != KeyEventKind::Release => Some(*key),
        _ => None,
    }
}

/// Says whether a key means to leave: q, Escape, Ctrl-C.
pub(crate) fn leaves(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('q') | KeyCode::Esc => true,
        _ => false,
    }
}
