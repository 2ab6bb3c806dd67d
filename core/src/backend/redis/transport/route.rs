//! How a server is found: at its address, or by asking Sentinels.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::redis::config::Place;
use crate::backend::redis::transport::login::Login;
use crate::backend::redis::transport::sentinel::Sentinels;
use crate::backend::redis::transport::stream::{Opened, Opener};
use crate::error::Result;

/// The way to the server that locks are kept on.
pub(crate) enum Way {
    Straight(Box<Opener>),
    Sentinels(Box<Sentinels>),
}

impl Way {
    /// Reads certificates and keys. `login` is that of the server.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(place: &Place, login: &Login, timeout: Duration, runtime: &Handle) -> Result<Self> {
        Ok(match place {
            Place::At(address) => Self::Straight(Box::new(Opener::new("Redis", address.clone())?)),
            Place::MasterOf(service) => {
                let (service, login) = (service.clone(), login.clone());
                Self::Sentinels(Box::new(Sentinels::new(service, login, timeout, runtime.clone())?))
            }
        })
    }

    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        match self {
            Self::Straight(_) => None,
            Self::Sentinels(sentinels) => Some(sentinels),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Straight(opener) => opener.is_tls(),
            Self::Sentinels(sentinels) => sentinels.is_tls(),
        }
    }

    /// Says where it leads, without secrets.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Straight(opener) => opener.place(),
            Self::Sentinels(sentinels) => sentinels.place(),
        }
    }

    /// Connects. Needs the I/O of a running tokio runtime.
    pub(crate) async fn open(&self) -> Result<Opened> {
        match self {
            Self::Straight(opener) => opener.open().await,
            Self::Sentinels(sentinels) => sentinels.open().await,
        }
    }
}
