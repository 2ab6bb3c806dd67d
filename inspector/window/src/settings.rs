//! What the window remembers between runs: sizes and colours. Never a secret.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command::Tab;
use super::theme::ThemeChoice;

/// How much is kept of each list.
const MOST_RECENT: usize = 8;

/// What is remembered. A file of an older or newer version is read as far as it is understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Dark, light, or as the desktop is.
    pub theme: ThemeChoice,
    /// Stronger colours and borders.
    pub high_contrast: bool,
    /// Rows of 20 points instead of 26.
    pub compact: bool,
    /// 1 is the normal size.
    pub scale: f32,
    /// Width and height of the window in points.
    pub window: [f32; 2],
    /// Whether the list of stores is open.
    pub rail_open: bool,
    /// Its width in points.
    pub rail_width: f32,
    /// Whether the details of the selected lock are open.
    pub details_open: bool,
    /// Their height in points.
    pub details_height: f32,
    /// The tab that was shown last.
    pub tab: Tab,
    /// Names of columns that were resized, with their widths in points.
    pub columns: Vec<(String, f32)>,
    /// Names of columns that are not shown.
    pub hidden_columns: Vec<String>,
    /// Recordings that were opened, the latest first.
    pub recordings: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            theme: ThemeChoice::default(),
            high_contrast: false,
            compact: false,
            scale: 1.0,
            window: [1280.0, 800.0],
            rail_open: true,
            rail_width: 190.0,
            details_open: true,
            details_height: 290.0,
            tab: Tab::default(),
            columns: Vec::new(),
            hidden_columns: Vec::new(),
            recordings: Vec::new(),
        }
    }
}

impl Settings {
    /// Where they stand unless told otherwise: `polylatch/window.json` in the user's configuration
    /// folder. `None` if this user has none.
    pub fn default_path() -> Option<PathBuf> {
        Some(config_folder()?.join("polylatch").join("window.json"))
    }

    /// Reads them; what is missing, unreadable or out of range is as on the first day.
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut settings: Self = serde_json::from_str(&text).unwrap_or_default();
        settings.scale = sane(settings.scale, 0.5, 3.0, 1.0);
        settings.rail_width = sane(settings.rail_width, 120.0, 600.0, 190.0);
        settings.details_height = sane(settings.details_height, 120.0, 2_000.0, 290.0);
        settings.window = [
            sane(settings.window[0], 640.0, 10_000.0, 1280.0),
            sane(settings.window[1], 400.0, 10_000.0, 800.0),
        ];
        settings
    }

    /// Writes them, beside the old ones first, so that a crash leaves the one or the other.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(self)?;
        let new = path.with_extension("json.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, path)
    }

    /// Puts a recording at the head of the list of recent ones.
    pub fn remember_recording(&mut self, path: &Path) {
        self.recordings.retain(|known| known != path);
        self.recordings.insert(0, path.to_owned());
        self.recordings.truncate(MOST_RECENT);
    }
}

fn sane(value: f32, least: f32, most: f32, otherwise: f32) -> f32 {
    if value.is_finite() && (least..=most).contains(&value) { value } else { otherwise }
}

fn config_folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return absolute("APPDATA");
    }
    let home = || absolute("HOME");
    if cfg!(target_os = "macos") {
        return home().map(|home| home.join("Library/Application Support"));
    }
    // XDG Base Directory Specification: a relative path is to be ignored.
    absolute("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_and_nonsense_does_no_harm() {
        let folder = std::env::temp_dir().join(format!("polylatch-settings-{}", std::process::id()));
        let path = folder.join("deep").join("window.json");
        let mut settings = Settings { compact: true, rail_width: 222.0, ..Settings::default() };
        for at in 0..20 {
            settings.remember_recording(Path::new(&format!("/r/{at}")));
        }
        settings.save(&path).unwrap();
        assert_eq!(Settings::load(&path), settings);
        assert_eq!((settings.recordings.len(), &settings.recordings[0]), (8, &PathBuf::from("/r/19")));
        std::fs::write(&path, r#"{"compact":true,"scale":1e9,"rail_width":-4,"unknown":1}"#).unwrap();
        assert_eq!(Settings::load(&path), Settings { compact: true, ..Settings::default() });
        std::fs::write(&path, "not JSON").unwrap();
        assert_eq!(Settings::load(&path), Settings::default());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
