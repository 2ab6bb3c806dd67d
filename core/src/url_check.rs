//! What a URL looks like before it is taken apart: which text in it may be a password.

/// The schemes of all stores, whether or not this build has them.
const SCHEMES: [&str; 22] = [
    "memory",
    "sqlite",
    "redis",
    "rediss",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "redlock",
    "redlocks",
    "consul",
    "consul+https",
    "consul+unix",
    "etcd",
    "etcd+https",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "zookeeper",
    "zookeepers",
];

/// Returns the scheme of a URL and what stands behind its colon.
///
/// `None` if the text before the first colon cannot be a scheme, or may be a user or a password: then no
/// message repeats it.
pub(crate) fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let has_form = scheme.len() < 32
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
    let certain = SCHEMES.contains(&scheme) || rest.starts_with("//") || !url.contains('@');
    (has_form && certain).then_some((scheme, rest))
}

/// Refuses an `@` behind the place of user and password: an unencoded `/` or `?` of a password splits the
/// URL too early, and its pieces become a port, a path or an option. `rest` stands behind `scheme:`.
///
/// Errors: a sentence that repeats nothing of the URL but its scheme.
pub(crate) fn refuse_misplaced_at(scheme: &str, rest: &str) -> Result<(), String> {
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    let in_target = match scheme {
        "memory" => target.contains('@'),
        "sqlite" | "redis+unix" | "consul+unix" => {
            let path = target.strip_prefix("//").unwrap_or(target);
            path.contains('@') && !is_plainly_a_path(path)
        }
        _ => target.trim_start_matches('/').split_once('/').is_some_and(|(_, path)| path.contains('@')),
    };
    if !in_target && !query.contains('@') {
        return Ok(());
    }
    let way_out = match scheme {
        "redis+unix" => "use user= and password_env=, and begin the path with /",
        "consul" | "consul+https" | "consul+unix" => "use token_env= or token_file=",
        "sqlite" => "begin the path with / or ./",
        "memory" => "leave it out",
        _ => "percent-encode the password (/ as %2F, ? as %3F, @ as %40), or use password_env=",
    };
    Err(format!(
        "the {scheme}: URL has an @ where no user and password can stand; {way_out}; write any other @ as %40"
    ))
}

/// Whether a text is the path of a file even if an `@` is in it.
fn is_plainly_a_path(text: &str) -> bool {
    let on_a_drive =
        matches!(text.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    text.starts_with(['/', '.']) || cfg!(windows) && (on_a_drive || text.starts_with('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_is_refused_where_a_password_may_have_split_the_url() {
        for url in [
            "redis://:pa/ss@h",
            "postgres://u:pa/ss@h/db",
            "redis://:pa?ss@h",
            "redis://u:p@s/s@h",
            "redis+sentinel://:pa/ss@a,b/m",
            "redlock://:pa/ss@a,b",
            "consul://u:pa?ss@h",
            "redis+unix://:pass@/run/r.sock",
            "redis+unix::pass@/run/r.sock",
            "sqlite://u:pass@h/locks.db",
            "sqlite:locks.db?pa@ss",
            "memory://u:pass@h",
        ] {
            let (scheme, rest) = split_scheme(url).unwrap();
            let told = refuse_misplaced_at(scheme, rest).unwrap_err();
            assert!(told.contains("%40"), "{url}: {told}");
        }
    }

    #[test]
    fn an_at_stays_where_it_has_a_meaning() {
        for url in [
            "redis://:pass@h",
            "redis://u:p@ss@h/2?prefix=a%40b",
            "redis+unix:///run/redis@1.sock",
            "sqlite:/var/a@b/locks.db",
            "sqlite:./a@b.db",
            #[cfg(windows)]
            r"sqlite:C:\Users\a@b\locks.db",
        ] {
            let (scheme, rest) = split_scheme(url).unwrap();
            assert_eq!(refuse_misplaced_at(scheme, rest), Ok(()), "{url}");
        }
    }

    #[test]
    fn what_may_be_a_user_or_a_password_is_no_scheme() {
        assert_eq!(split_scheme("hunter2:x@h"), None);
        assert_eq!(split_scheme("pa ss://h"), None);
        assert_eq!(split_scheme("hunter2"), None);
        assert_eq!(split_scheme("redsi://:x@h"), Some(("redsi", "//:x@h")));
    }
}
