//! Text for display: ages, bars, times of day, and sanitized text from a store.

use std::fmt::Display;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest piece of stored text that is shown, in columns. Names may have 512 bytes, labels 256.
pub const MAX_SHOWN: usize = 600;

/// Said of a process number that counts in another PID namespace of this host.
pub const APART: &str =
    "on this machine in another PID namespace (a container): the number counts there only";

/// Sanitizes text from a store for display: control, bidirectional and invisible characters are
/// written as `\u{202e}`, and everything behind [`MAX_SHOWN`] columns is cut off with `…`.
///
/// Stores are shared with programs that we do not know, so every name, label, host and reason is
/// hostile until it went through here.
pub fn sanitized(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // Bounded before anything else is done with it: each character adds at most ten columns.
    for c in text.chars().take(MAX_SHOWN) {
        if is_treacherous(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    fit(&shown, MAX_SHOWN)
}

/// Writes everything but ASCII as `\u{6ce8}`, for a name that cannot be read where it is shown.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown
}

/// Says whether a character could move the cursor, hide, or reorder what stands around it.
pub fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Columns that text takes in a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cuts text to at most `columns`, with `…` as the last one if something is missing.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        cut.push(c);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Cuts a name to at most `columns`. A long one loses its middle: names of locks differ at their end, and
/// belong together by their beginning.
pub fn fit_middle(text: &str, columns: usize) -> String {
    if width(text) <= columns || columns < 8 {
        return fit(text, columns);
    }
    let head = (columns - 1) / 3;
    let mut cut = String::with_capacity(text.len());
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > head {
            break;
        }
        cut.push(c);
    }
    let (mut left, mut from) = (columns - 1 - width(&cut), text.len());
    for (at, c) in text.char_indices().rev() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else { break };
        (left, from) = (rest, at);
    }
    cut.push('…');
    cut + &text[from..]
}

/// An age or a rest of time: `0.4 s`, `12.3 s`, `4 min 2 s`, `3 h 05 min`, `9 d 4 h`.
pub fn span(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0..60 => format!("{}.{} s", secs, ms % 1000 / 100),
        60..3_600 => format!("{} min {} s", secs / 60, secs % 60),
        3_600..86_400 => format!("{} h {:02} min", secs / 3_600, secs % 3_600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3_600),
    }
}

/// The same for tables: `12.3s`, `4m02s`, `3h05m`, `9d04h`.
pub fn short_span(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0..60 => format!("{}.{}s", secs, ms % 1000 / 100),
        60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3_600..86_400 => format!("{}h{:02}m", secs / 3_600, secs % 3_600 / 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs % 86_400 / 3_600),
    }
}

/// What is left of a lease as a bar, `[======    ]`. Any rest shows at least one mark.
pub fn bar(remaining_ms: u64, lease_ms: u64, columns: usize) -> String {
    let lease = u128::from(lease_ms.max(1));
    let left = u128::from(remaining_ms.min(lease_ms));
    let filled = usize::try_from((left * columns as u128).div_ceil(lease)).unwrap_or(columns);
    format!("[{}{}]", "=".repeat(filled), " ".repeat(columns - filled))
}

/// The time of day in UTC, with the date if it is not that of `now_ms`: `12:04:21` or
/// `2026-11-20 23:59:58`. Both are milliseconds since the Unix epoch.
pub fn clock_time(at_ms: u64, now_ms: u64) -> String {
    let (day, secs) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let time = format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60);
    if day == now_ms / 86_400_000 {
        return time;
    }
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02} {time}")
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// One or many: `1 lock`, `2 locks`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Quotes a text so that a POSIX shell takes it as one word and expands nothing in it.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a lock's name as the last argument of a command: one that begins with `-` stands behind `--`,
/// or it would be taken for an option.
pub fn name_argument(name: &str) -> String {
    let end_of_options = if name.starts_with('-') { "-- " } else { "" };
    format!("{end_of_options}{}", shell_word(name))
}

/// Returns the command that breaks a lease. `command` is how this program is called, `reason` is quoted.
pub fn break_command(command: &str, name: &str, token: impl Display, reason: &str) -> String {
    let joint = if reason.starts_with("'-") { '=' } else { ' ' };
    let options = format!("--token {token} --reason{joint}{reason}");
    let name_first = !name.starts_with('-');
    match name_argument(name) {
        name if name_first => format!("{command} break {name} {options}"),
        name => format!("{command} break {options} {name}"),
    }
}

/// Returns how this program is called for a store, from the URL that is shown for it. A URL that cannot
/// be shown as it is comes from the environment.
pub fn command_for_shown(url: &str) -> String {
    if url.is_empty() || sanitized(url) != url {
        return "polylatch --url \"$POLYLATCH_URL\"".into();
    }
    format!("polylatch --url {}", shell_word(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_and_never_rounded_up() {
        for (ms, text, short) in [
            (0, "0.0 s", "0.0s"),
            (449, "0.4 s", "0.4s"),
            (12_399, "12.3 s", "12.3s"),
            (59_999, "59.9 s", "59.9s"),
            (60_000, "1 min 0 s", "1m00s"),
            (242_000, "4 min 2 s", "4m02s"),
            (11_100_000, "3 h 05 min", "3h05m"),
            (792_000_000, "9 d 4 h", "9d04h"),
        ] {
            assert_eq!((span(ms).as_str(), short_span(ms).as_str()), (text, short));
        }
    }

    #[test]
    fn a_bar_is_full_empty_or_in_between() {
        assert_eq!(bar(10, 10, 4), "[====]");
        assert_eq!(bar(0, 10, 4), "[    ]");
        assert_eq!(bar(1, 1_000, 4), "[=   ]");
        assert_eq!(bar(5, 10, 4), "[==  ]");
        assert_eq!(bar(u64::MAX, 10, 4), "[====]");
        assert_eq!(bar(0, 0, 4), "[    ]");
    }

    #[test]
    fn hostile_text_cannot_reach_the_terminal() {
        for (hostile, shown) in [
            ("a\u{1b}[31mred", r"a\u{1b}[31mred"),
            ("line\nfeed\r", r"line\u{a}feed\u{d}"),
            ("c1\u{9b}2J", r"c1\u{9b}2J"),
            ("user\u{202e}gpj.exe", r"user\u{202e}gpj.exe"),
            ("in\u{2066}ner\u{2069}", r"in\u{2066}ner\u{2069}"),
            ("zero\u{200b}width\u{feff}", r"zero\u{200b}width\u{feff}"),
            ("tag\u{e0041}", r"tag\u{e0041}"),
            ("Größe/注文 ok", "Größe/注文 ok"),
        ] {
            assert_eq!(sanitized(hostile), shown);
        }
    }

    #[test]
    fn what_cannot_be_read_is_escaped() {
        assert_eq!(escaped("orders/17"), "orders/17");
        assert_eq!(escaped("注文/é"), r"\u{6ce8}\u{6587}/\u{e9}");
    }

    #[test]
    fn long_text_is_cut_by_columns() {
        assert_eq!(fit("orders/42", 9), "orders/42");
        assert_eq!(fit("orders/42", 6), "order…");
        assert_eq!(fit("注文注文", 5), "注文…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(width(&sanitized(&"x".repeat(10_000))), MAX_SHOWN);
        assert!(width(&sanitized(&"\u{7}".repeat(10_000))) <= MAX_SHOWN);
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_more_of_its_end() {
        assert_eq!(fit_middle("orders/17/ship", 14), "orders/17/ship");
        assert_eq!(fit_middle("shop/orders/2026/17/ship", 13), "shop…/17/ship");
        assert_eq!(fit_middle("äöü/0123456789/ende", 10), "äöü…9/ende");
        assert_eq!(fit_middle("注文/2026/17/出荷", 11), "注…/17/出荷");
        assert_eq!(fit_middle("too narrow for both", 5), "too …");
        for most in 8..24 {
            assert_eq!(width(&fit_middle("shop/orders/2026/17/ship", most)), most);
            assert!(width(&fit_middle("注文注文注文注文注文注文", most)) <= most);
        }
    }

    #[test]
    fn times_of_day_show_the_date_only_when_it_differs() {
        let now = 1_795_131_062_000; // 2026-11-19 23:31:02 UTC
        assert_eq!(clock_time(now, now), "23:31:02");
        assert_eq!(clock_time(now - 86_400_000, now), "2026-11-18 23:31:02");
        assert_eq!(clock_time(951_782_400_000, now), "2000-02-29 00:00:00");
        assert_eq!(clock_time(0, now), "1970-01-01 00:00:00");
    }

    #[test]
    fn shell_words_are_quoted_when_needed() {
        assert_eq!(shell_word("orders/42"), "orders/42");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_word("-x"), "'-x'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_name_is_never_taken_for_an_option() {
        assert_eq!(name_argument("orders/42"), "orders/42");
        assert_eq!(name_argument("--json"), "-- '--json'");
        assert_eq!(break_command("p", "a b", 7, "'...'"), "p break 'a b' --token 7 --reason '...'");
        assert_eq!(break_command("p", "-x", 7, "'...'"), "p break --token 7 --reason '...' -- '-x'");
        assert_eq!(break_command("p", "x", 7, "'-v'"), "p break x --token 7 --reason='-v'");
    }
}
