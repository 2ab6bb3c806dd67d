//! The platform's store of passwords.

/// Whether there is one that this build can use.
pub const AVAILABLE: bool = false;

/// Reads the password of a connection.
pub fn read(_connection: &str) -> Result<Option<String>, String> {
    Err("this build has no keyring".into())
}

/// Keeps the password of a connection.
pub fn write(_connection: &str, _secret: &str) -> Result<(), String> {
    Err("this build has no keyring".into())
}
