//! What drawing asks for. It is done after the frame is drawn, so that nothing changes under it.

use model::{BreakOrder, ConnectionId, RowKey};

use super::command::Command;

/// A wish.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    Run(Command),
    Select(RowKey),
    /// Selects and shows the details.
    Open(RowKey),
    SetFilter(String),
    /// Puts text on the clipboard and says what it was.
    Copy {
        text: String,
        what: String,
    },
    AskBreak(RowKey, polylatch::FencingToken),
    Break(BreakOrder),
    /// Connects a saved connection.
    Connect(String),
    Disconnect(ConnectionId),
    EditConnection(Option<String>),
    /// Connects to the store that programs use if none is named.
    ConnectDefault,
    StartDemo,
    CloseRecording,
    RemoveView(String),
}
