//! How a connection says who it is.

use redis::RedisConnectionInfo;

use crate::credential::Credential;

/// User and password of connections yet to be opened.
#[derive(Clone)]
pub(crate) struct Login {
    without_password: RedisConnectionInfo,
    password: Option<Credential>,
}

impl Login {
    pub(crate) fn new(database: u32, user: Option<&str>, password: Option<&Credential>) -> Self {
        let mut login = RedisConnectionInfo::default().set_db(i64::from(database)).set_skip_set_lib_name();
        if let Some(user) = user {
            login = login.set_username(user);
        }
        Self { without_password: login, password: password.cloned() }
    }

    /// As it is for a connection that is opened now: with a password that may have been rotated.
    pub(crate) fn now(&self) -> RedisConnectionInfo {
        let login = self.without_password.clone();
        let Some(password) = &self.password else { return login };
        password.read_again(|_| true);
        login.set_password(&password.latest().0)
    }
}
