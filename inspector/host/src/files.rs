//! Files of this program: saved connections, its own audit, recordings.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use model::order::AuditLine;
use model::recording::{Encoder, Recording};
use model::saved::Saved;
use model::{Connection, Update};

/// A recording larger than this is not opened: it would not fit into memory together with its pictures.
const MOST_BYTES: u64 = 1 << 30;

/// Returns the file of saved connections: `$XDG_CONFIG_HOME/polylatch/inspector.json`, or the platform's
/// equivalent. `None` if the environment names no home.
///
/// Source: freedesktop.org base directory specification.
pub fn saved_path() -> Option<PathBuf> {
    let base = if cfg!(windows) {
        from_env("APPDATA")?
    } else if cfg!(target_os = "macos") {
        from_env("HOME")?.join("Library/Application Support")
    } else {
        from_env("XDG_CONFIG_HOME").or_else(|| Some(from_env("HOME")?.join(".config")))?
    };
    Some(base.join("polylatch/inspector.json"))
}

/// Returns the audit file: `$XDG_STATE_HOME/polylatch/inspector-audit.jsonl`, or the platform's equivalent.
pub fn audit_path() -> Option<PathBuf> {
    let base = if cfg!(windows) {
        from_env("LOCALAPPDATA")?
    } else if cfg!(target_os = "macos") {
        from_env("HOME")?.join("Library/Application Support")
    } else {
        from_env("XDG_STATE_HOME").or_else(|| Some(from_env("HOME")?.join(".local/state")))?
    };
    Some(base.join("polylatch/inspector-audit.jsonl"))
}

/// A relative path in these variables is to be ignored.
fn from_env(key: &str) -> Option<PathBuf> {
    std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Reads saved connections; a file that is not there is an empty one. Errors: a sentence with the path.
pub fn load(path: &Path) -> Result<Saved, String> {
    match fs::read_to_string(path) {
        Ok(text) => Saved::parse(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Saved::default()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

/// Writes saved connections so that a crash leaves either the old file or the new one, readable by the
/// user only. Errors: a sentence with the path.
pub fn save(path: &Path, saved: &Saved) -> Result<(), String> {
    saved.check()?;
    write_whole(path, saved.text().as_bytes()).map_err(|error| format!("{}: {error}", path.display()))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_private_folder(folder)?;
    // Beside the file, because only within one file system is a rename a single step.
    let beside = folder.join(format!(".inspector-{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = private().write(true).create(true).truncate(true).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Appends to the audit file; one write, so that lines of two programs do not mix.
pub fn audit(path: &Path, line: &AuditLine<'_>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        make_private_folder(folder)?;
    }
    let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
    text.push('\n');
    let mut file = private().append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    encoder: Encoder,
    bytes: u64,
}

impl Recorder {
    /// Begins a new file; one that is there already is left alone. Errors: a sentence with the path.
    pub fn create(path: &Path, connections: &[Connection], now_ms: u64) -> Result<Self, String> {
        let file = private().write(true).create_new(true).open(path).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                format!("{} is there already; give another name, it was left as it is", path.display())
            } else {
                format!("{} cannot be made: {error}", path.display())
            }
        })?;
        let (encoder, head) = Encoder::begin(connections, now_ms);
        let mut recorder = Self { file, encoder, bytes: 0 };
        recorder.write(&head).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(recorder)
    }

    /// Writes an update, and hands it to the operating system before it returns: a crash of this program
    /// loses nothing that was written.
    pub fn update(&mut self, update: &Update) -> io::Result<()> {
        let line = self.encoder.update(update);
        self.write(&line)
    }

    /// Writes that a connection was added.
    pub fn connection(&mut self, connection: &Connection, now_ms: u64) -> io::Result<()> {
        let line = self.encoder.connection(connection, now_ms);
        self.write(&line)
    }

    /// Returns the size of the file so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// Reads a recording. Errors: a sentence with the path.
pub fn open_recording(path: &Path) -> Result<Recording, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let size = fs::metadata(path).map_err(|error| told(&error))?.len();
    if size > MOST_BYTES {
        return Err(told(&"it has more than 1 GiB, which is more than can be played back"));
    }
    let bytes = fs::read(path).map_err(|error| told(&error))?;
    // A cut may go through a character; what cannot be read is a damaged line.
    Recording::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| told(&error))
}

#[cfg(test)]
mod tests {
    use polylatch_test_services::TempDir;

    use super::*;
    use model::saved::SavedConnection;

    #[test]
    fn what_is_saved_is_read_back_and_belongs_to_its_user() {
        let dir = TempDir::new();
        let path = dir.path().join("deep/polylatch/inspector.json");
        assert_eq!(load(&path).unwrap(), Saved::default());
        let (connection, _) = SavedConnection::from_url("cache", "redis://cache").unwrap();
        let mut saved = Saved { connections: vec![connection], ..Saved::default() };
        save(&path, &saved).unwrap();
        saved.version = 1;
        assert_eq!(load(&path).unwrap(), saved);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        saved.connections[0].url = "redis://:s3cret@cache".into();
        assert!(save(&path, &saved).unwrap_err().contains("no place for one"));
        fs::write(&path, "{").unwrap();
        assert!(load(&path).unwrap_err().contains("inspector.json"));
    }

    #[test]
    fn a_recording_does_not_replace_a_file() {
        let dir = TempDir::new();
        let path = dir.path().join("notes.txt");
        fs::write(&path, "mine").unwrap();
        let error = Recorder::create(&path, &[], 0).unwrap_err();
        assert!(error.contains("there already"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(open_recording(&path).unwrap_err().contains("no recording"));
    }
}
