//! The command line of `polylatch-inspector`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::theme::ThemeChoice;
use host::duration::parse_duration;

/// See who holds which lock, who waits, and why a lock is stuck
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "polylatch-inspector", version, max_term_width = 100, after_help = HELP)]
pub struct Args {
    /// A store to connect to, such as redis://cache:6379; can be given several times
    ///
    /// Without it: the saved connections, or else POLYLATCH_URL.
    // The value is not shown in help texts: it may hold a password.
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,

    /// Select this lock and show its details
    #[arg(long, value_name = "NAME")]
    pub lock: Option<String>,

    /// Start with this filter, such as `state:stuck`
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,

    /// A store to connect to, as with --url, or a link that the window made: polylatch://connection/lock
    #[arg(value_name = "URL|LINK")]
    pub link: Option<String>,

    /// Open a recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "demo"])]
    pub replay: Option<PathBuf>,

    /// Show a living scene on a throw-away store: contention, a deadlock, stalled and dead holders
    #[arg(long)]
    pub demo: bool,

    /// Colours: system, dark or light
    #[arg(long, value_name = "THEME")]
    pub theme: Option<ThemeChoice>,

    /// Size of everything, 0.5 to 3
    #[arg(long, value_name = "FACTOR", value_parser = scale)]
    pub scale: Option<f32>,

    /// Where the window's settings are kept, instead of in your configuration folder
    #[arg(long, value_name = "FOLDER")]
    pub settings: Option<PathBuf>,

    /// Show this page of the details: explain, timeline, renewals, graph, raw or events
    #[arg(long, value_name = "PAGE", value_parser = tab)]
    pub page: Option<super::command::Tab>,

    /// Save a picture of the window as PNG after a while, and end
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,

    /// When to take the picture
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration, requires = "screenshot")]
    pub after: Duration,
}

impl Args {
    /// Puts a store that was given without `--url` among the others.
    pub(super) fn sorted(mut self) -> Self {
        const STORES: [&str; 9] =
            ["sqlite:", "redis", "redlock", "consul", "etcd", "postgres", "mysql:", "mariadb:", "zookeeper:"];
        let is_store = |text: &mut String| STORES.iter().any(|scheme| text.starts_with(scheme));
        self.url.extend(self.link.take_if(is_store));
        self
    }
}

const HELP: &str = "\
Examples:
  polylatch-inspector --demo                      everything there is to see
  polylatch-inspector redis://cache:6379          one store
  polylatch-inspector --url redis://cache --lock orders/17/ship
  polylatch-inspector --replay stuck.polylatch    what happened last night

A password on the command line can be read by other users of this machine; use a saved
connection, or POLYLATCH_URL. Without a desktop, `polylatch watch` shows the same in
a terminal. Inside, F1 lists the keys.";

fn scale(text: &str) -> Result<f32, String> {
    let factor: f32 = text.parse().map_err(|_| format!("{text:?} is not a number, such as 1.25"))?;
    if (0.5..=3.0).contains(&factor) { Ok(factor) } else { Err(format!("{factor} is not between 0.5 and 3")) }
}

fn tab(text: &str) -> Result<super::command::Tab, String> {
    let found = super::command::Tab::ALL.into_iter().find(|tab| tab.word().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("{text:?} is none of explain, timeline, renewals, graph, raw, events"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("polylatch-inspector").chain(line.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn arguments_are_understood_or_told_to_be_wrong() {
        let args = parse("--url redis://a --url sqlite:b --lock x --theme light --scale 1.5").unwrap();
        assert_eq!((args.url.len(), args.lock.as_deref()), (2, Some("x")));
        assert_eq!((args.theme, args.scale), (Some(ThemeChoice::Light), Some(1.5)));
        assert_eq!(parse("").unwrap().after, Duration::from_secs(4));
        let plain = parse("redis://a --url redis://b").unwrap().sorted();
        assert_eq!((plain.url.len(), plain.link), (2, None));
        for store in [
            "etcd://a,b",
            "etcd+https://a",
            "postgres://a/app",
            "postgresql://a",
            "mysql://a",
            "mariadb://a",
            "zookeeper://a,b",
        ] {
            assert_eq!(parse(store).unwrap().sorted().url, [store], "a store without --url");
        }
        let link = parse("polylatch://shop/orders").unwrap().sorted();
        assert_eq!((link.url.len(), link.link.as_deref()), (0, Some("polylatch://shop/orders")));
        for (line, part) in [
            ("--theme pink", "possible values"),
            ("--scale 7", "not between 0.5 and 3"),
            ("--scale big", "not a number"),
            ("--page prose", "explain, timeline"),
            ("--replay a --demo", "cannot be used with"),
            ("--after 3s", "--screenshot"),
            ("--frobnicate", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
