//! Values of parameters and of columns: text, numbers, lists of them.

/// A value that goes with a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Param {
    Text(String),
    Int(i64),
    OptionalInt(Option<i64>),
    OptionalText(Option<String>),
    Texts(Vec<String>),
    Ints(Vec<i64>),
    Bytes(Vec<u8>),
}

/// A statement with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub sql: String,
    pub params: Vec<Param>,
}

impl Statement {
    pub(crate) fn new(sql: impl Into<String>, params: Vec<Param>) -> Self {
        Self { sql: sql.into(), params }
    }
}

/// A value of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Bytes(Vec<u8>),
}

/// A row of an answer. A column that is missing or of another type reads as empty: the statements name the
/// columns, and their types are those of our own tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells(pub Vec<Cell>);

impl Cells {
    pub(crate) fn text(&self, at: usize) -> String {
        match self.0.get(at) {
            Some(Cell::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    pub(crate) fn optional_text(&self, at: usize) -> Option<String> {
        match self.0.get(at) {
            Some(Cell::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, at: usize) -> Vec<u8> {
        match self.0.get(at) {
            Some(Cell::Bytes(bytes)) => bytes.clone(),
            Some(Cell::Text(text)) => text.clone().into_bytes(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn int(&self, at: usize) -> i64 {
        self.optional_int(at).unwrap_or(0)
    }

    pub(crate) fn optional_int(&self, at: usize) -> Option<i64> {
        match self.0.get(at) {
            Some(Cell::Int(value)) => Some(*value),
            _ => None,
        }
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Param {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Param {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<Option<i64>> for Param {
    fn from(value: Option<i64>) -> Self {
        Self::OptionalInt(value)
    }
}

impl From<Vec<String>> for Param {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl From<Vec<i64>> for Param {
    fn from(values: Vec<i64>) -> Self {
        Self::Ints(values)
    }
}
