//! What the steps answer is compared with the specification in `differential`; the rest is about the
//! file and about the processes that share it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::backend::{Answer, Ask, Backend, Contender, OpenContext};
use crate::client_info::ClientInfo;
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

use super::SqliteOptions;

mod bad_files;
mod differential;
mod disks;
mod family;
mod sharing;
mod versions;

/// Nothing ends by time unless a test is about that: on a loaded machine a few requests take seconds.
const WAIT: Ask = Ask::Wait {
    near_heartbeat: Duration::from_secs(120),
    far_heartbeat: Duration::from_secs(240),
    left: None,
};
const LEASE: Duration = Duration::from_secs(120);
/// For a request, and for what another client has to notice.
const SOON: Duration = Duration::from_secs(30);

/// One client of a file, as another process would be.
struct Client {
    backend: Arc<dyn Backend>,
    wakeups: Arc<Wakeups>,
    id: ClientId,
}

impl Client {
    #[track_caller]
    fn open(path: &Path) -> Self {
        Self::try_open(path).expect("the file can be opened")
    }

    fn try_open(path: &Path) -> Result<Self> {
        Self::with(path, SqliteOptions { busy_timeout: SOON, ..Default::default() }, SOON)
    }

    fn with(path: &Path, options: SqliteOptions, timeout: Duration) -> Result<Self> {
        let id = ClientId::new("test", std::process::id())?;
        let wakeups = Arc::<Wakeups>::default();
        let context = OpenContext {
            clock: std::sync::Arc::new(crate::clock::SystemClock),
            wakeups: Arc::clone(&wakeups),
            runtime: runtime().handle().clone(),
            client: id.clone(),
            timeout,
        };
        let backend = pollster::block_on(crate::backend::sqlite::open(path.to_owned(), options, context))?;
        Ok(Self { backend, wakeups, id })
    }

    fn contender(&self, name: &str) -> Arc<Contender> {
        contender(name, &self.id, LEASE)
    }

    fn wants(&self, name: &str, mode: Mode) -> Arc<Contender> {
        Arc::new(Contender { mode, ..(*self.contender(name)).clone() })
    }

    fn ask(&self, contender: &Arc<Contender>, ask: Ask) -> Result<Answer> {
        pollster::block_on(self.backend.poll(contender, ask))
    }

    #[track_caller]
    fn hold(&self, name: &str) -> (Arc<Contender>, FencingToken) {
        let contender = self.contender(name);
        let fence = held(self.ask(&contender, Ask::Try).unwrap());
        (contender, fence)
    }

    fn info(&self) -> Arc<ClientInfo> {
        let mut info = ClientInfo::of_this_process(Some("test".into()), "rust", "0").unwrap();
        info.id = self.id.clone();
        Arc::new(info)
    }
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
}

fn contender(name: &str, client: &ClientId, first_lease: Duration) -> Arc<Contender> {
    Arc::new(Contender {
        name: LockName::new(name).unwrap(),
        owner: OwnerToken::random().unwrap(),
        client: client.clone(),
        label: "testing".into(),
        lease: LEASE,
        first_lease,
        barge: false,
        mode: Mode::Mutex,
    })
}

#[track_caller]
fn held(answer: Answer) -> FencingToken {
    match answer {
        Answer::Held { fence } => fence,
        other => panic!("must be held: {other:?}"),
    }
}

#[track_caller]
fn refused<T>(result: Result<T>, code: &str, part: &str) -> Error {
    match result {
        Ok(_) => panic!("must be refused with {code}"),
        Err(error) => {
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            error
        }
    }
}
