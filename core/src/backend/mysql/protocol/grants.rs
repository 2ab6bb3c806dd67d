//! The rights of a user, as statements.

use super::schema::TABLES;

/// What a user does with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MysqlRole {
    /// Acquires, waits, renews, releases and breaks.
    Client,
    /// Reads what is held and waited for, and sees no owner token.
    Inspector,
}

/// Longest name of a user and longest host, in characters.
const MAX_USER_CHARS: usize = 80;
const MAX_HOST_CHARS: usize = 255;

/// The statements that give a user, `NAME` or `NAME@HOST`, what it needs and no more.
pub(crate) fn grants(kind: MysqlRole, user: &str) -> Result<String, String> {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let has_form = |text: &str, most: usize| {
        !text.is_empty() && text.chars().count() <= most && !text.chars().any(|c| c.is_control() || c == '\\')
    };
    if !has_form(name, MAX_USER_CHARS) || !has_form(host, MAX_HOST_CHARS) {
        return Err(format!(
            "the user {user:?} must be NAME or NAME@HOST, with a name of 1 to {MAX_USER_CHARS} and a host of 1 to \
             {MAX_HOST_CHARS} characters, without control characters and backslashes"
        ));
    }
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let account = format!("{}@{}", quoted(name), quoted(host));
    let grant = |rights: &str, table: &str| format!("GRANT {rights} ON {table} TO {account};\n");
    let of = |table: &super::schema::Table| match kind {
        MysqlRole::Client => grant(&table.client.join(", "), table.name),
        MysqlRole::Inspector => grant(&format!("SELECT ({})", table.seen), table.name),
    };
    Ok(TABLES.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_what_it_needs_under_its_own_name() {
        let client = grants(MysqlRole::Client, "shop'app@10.%").unwrap();
        assert!(
            client.contains("GRANT SELECT, UPDATE (floor) ON polylatch_schema TO 'shop''app'@'10.%';"),
            "{client}"
        );
        assert!(client.contains("GRANT SELECT, INSERT, DELETE ON polylatch_audit TO"), "{client}");
        let inspector = grants(MysqlRole::Inspector, "eyes").unwrap();
        assert!(inspector.contains(" TO 'eyes'@'%';"), "{inspector}");
        assert!(
            !["owner", "INSERT", "UPDATE", "DELETE"].iter().any(|word| inspector.contains(word)),
            "{inspector}"
        );
        for user in ["", "@h", "a@", "a\nb", "a\\", &"r".repeat(81)] {
            assert!(grants(MysqlRole::Client, user).unwrap_err().contains("user"), "{user}");
        }
    }
}
