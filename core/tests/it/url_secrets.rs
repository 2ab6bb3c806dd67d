//! A password that is not percent-encoded is in no message, whatever it does to the URL around it.
//!
//! Which pieces of it a URL is split into depends on its characters, so there are many of them, in every
//! place where a user may write one. Nothing listens at the addresses: where the URL can be read, the
//! message is that of a failed connection.

use polylatch::Polylatch;

/// Passwords with every character that means something in a URL. Their letters are in no message.
const PASSWORDS: [&str; 24] = [
    "Zq7xWv/Kj9pLm",
    "Zq7xWv?Kj9pLm",
    "Zq7xWv#Kj9pLm",
    "Zq7xWv@Kj9pLm",
    "Zq7xWv:Kj9pLm",
    "Zq7xWv,Kj9pLm",
    "Zq7xWv&Kj9pLm=Xw8vQz",
    "Zq7x/Kj9p?Xw8v#Yt5r@Bh3n",
    "@Kj9pLm?Zq7xWv/Xw8vQz",
    "/Zq7xWvKj9pLm",
    "//Zq7xWvKj9pLm",
    "?Zq7xWvKj9pLm",
    "#Zq7xWvKj9pLm",
    "Zq7xWvKj9pLm/",
    "Zq7xWvKj9pLm@",
    "40917/Kj9pLm",
    "40917?Kj9pLm=Xw8vQz@",
    "40917@Kj9pLm/0",
    "Zq7xWv%zzKj9pLm",
    "Zq7xWv%ffKj9pLm",
    "Zq7xWv%40Kj9pLm/Xw8vQz",
    "[Zq7xWv]:Kj9pLm",
    "Zq7xWv\nKj9pLm",
    "Zq7xWv Kj9pLm\\Xw8vQz'Yt5rBh\"/",
];

const URLS: [&str; 33] = [
    "redis://:PASSWORD@127.0.0.1:1",
    "redis://bob:PASSWORD@127.0.0.1:1/0?timeout=100ms",
    "redis://127.0.0.1:1?password=PASSWORD",
    "rediss://bob:PASSWORD@127.0.0.1:1",
    "redis+sentinel://bob:PASSWORD@127.0.0.1:1,127.0.0.1:2/main",
    "redis+sentinel://127.0.0.1:1/main?sentinel_password=PASSWORD",
    "rediss+sentinel://:PASSWORD@127.0.0.1:1/main/0",
    "redis+cluster://bob:PASSWORD@127.0.0.1:1,127.0.0.1:2",
    "rediss+cluster://:PASSWORD@127.0.0.1:1",
    "redis+unix://bob:PASSWORD@/nowhere/redis.sock",
    "redis+unix::PASSWORD@/nowhere/redis.sock",
    "redlock://:PASSWORD@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "redlock://127.0.0.1:1,bob:PASSWORD@127.0.0.1:2,127.0.0.1:3/0",
    "redlocks://bob:PASSWORD@127.0.0.1:1,bob:PASSWORD@127.0.0.1:2",
    "consul://bob:PASSWORD@127.0.0.1:1",
    "consul://127.0.0.1:1?token=PASSWORD",
    "consul+https://:PASSWORD@127.0.0.1:1",
    "consul+unix://bob:PASSWORD@/nowhere/consul.sock",
    "etcd://bob:PASSWORD@127.0.0.1:1,127.0.0.1:2/locks",
    "etcd+https://:PASSWORD@127.0.0.1:1",
    "mysql://bob:PASSWORD@127.0.0.1:1/app",
    "mariadb://:PASSWORD@127.0.0.1:1/app?sslmode=disable",
    "postgres://bob:PASSWORD@127.0.0.1:1/app",
    "postgresql://:PASSWORD@127.0.0.1:1?sslmode=disable",
    "zookeeper://bob:PASSWORD@127.0.0.1:1,127.0.0.1:2/apps",
    "zookeeper://:PASSWORD@127.0.0.1:1",
    "zookeepers://bob:PASSWORD@127.0.0.1:1",
    "sqlite://bob:PASSWORD@127.0.0.1/locks.db",
    "sqlite::PASSWORD@127.0.0.1/locks.db",
    "memory://bob:PASSWORD@127.0.0.1",
    "redsi://bob:PASSWORD@127.0.0.1:1",
    "bob:PASSWORD@127.0.0.1:1",
    ":PASSWORD@127.0.0.1:1",
];

/// Any piece of the password with four characters or more, as a message would show it.
fn leaked<'a>(password: &'a str, told: &str) -> Option<&'a str> {
    let starts: Vec<usize> = password.char_indices().map(|(at, _)| at).collect();
    let pieces = starts.windows(4).map(|at| {
        let end = starts.iter().copied().find(|end| *end > at[3]).unwrap_or(password.len());
        &password[at[0]..end]
    });
    pieces.into_iter().find(|piece| told.contains(piece))
}

#[tokio::test(flavor = "current_thread")]
async fn no_piece_of_a_password_is_in_an_error() {
    for url in URLS {
        let ways = PASSWORDS.map(|password| async move {
            let url = url.replace("PASSWORD", password);
            // Of the two stores that need no server, none may take a login for a path or a name.
            match Polylatch::connect(&url).await {
                Ok(client) => panic!("connected to {:?} with {url:?}", client.url_for_display()),
                Err(error) => {
                    let told = format!("{error} {error:?} {error:#?}");
                    (
                        leaked(password, &told).map(|piece| format!("{piece:?} of {url:?} is in: {told}")),
                        error,
                    )
                }
            }
        });
        for (leak, error) in futures_util::future::join_all(ways).await {
            assert_eq!(leak, None);
            assert!(
                matches!(
                    error.code(),
                    "invalid_config" | "backend_unavailable" | "quorum_unreachable" | "backend_rejected"
                ),
                "{error}"
            );
        }
    }
}

#[test]
fn the_check_finds_pieces() {
    assert_eq!(leaked("ab/cdefg", "port \"cdef\""), Some("cdef"));
    assert_eq!(leaked("ab/cdefg", "port \"cde\""), None);
}
