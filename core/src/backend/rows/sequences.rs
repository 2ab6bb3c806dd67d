//! What the differential tests of all stores of rows draw: contenders, and the arguments of verbs.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Ask, Contender, RenewItem};
use crate::client_info::ClientInfo;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakRequest, Query};
use crate::token::{ClientId, OwnerToken};

/// Random numbers that a seed repeats.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        // xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }

    pub(crate) fn ask(&mut self) -> Ask {
        match self.below(4) {
            0 => Ask::Try,
            _ => Ask::Wait {
                near_heartbeat: Duration::from_millis(900),
                far_heartbeat: Duration::from_millis(2_500),
                left: None,
            },
        }
    }

    pub(crate) fn renewal(&mut self, who: &Arc<Contender>, fence: FencingToken) -> RenewItem {
        RenewItem {
            contender: Arc::clone(who),
            fence,
            // One of the shorter ones may arrive after a longer one.
            lease: if self.below(2) == 0 { who.lease } else { who.first_lease },
            // An extension brings another length, longer or shorter.
            length: who.lease * [2, 2, 2, 1, 5][self.below(5) as usize] / 2,
            renewals: self.below(9) as u32,
        }
    }

    pub(crate) fn query(&mut self) -> Query {
        match self.below(5) {
            0 => Query { name: Some("orders/1".into()), ..Query::default() },
            1 => Query { prefix: Some("orders/".into()), limit: Some(1), ..Query::default() },
            2 => Query { limit: Some(2), ..Query::default() },
            _ => Query::default(),
        }
    }
}

pub(crate) fn break_of(who: &Contender, fence: FencingToken) -> BreakRequest {
    BreakRequest {
        name: who.name.as_str().to_owned(),
        expected: fence,
        by: "operator".into(),
        reason: "test".into(),
    }
}

/// Three clients, and six contenders for each of four names.
pub(crate) fn contenders() -> (Vec<Arc<ClientInfo>>, Vec<Arc<Contender>>) {
    let clients: Vec<_> =
        (0..3).map(|_| Arc::new(ClientInfo::of_this_process(None, "rust", "0").unwrap())).collect();
    let contenders = (0..24).map(|n| contender(n, &clients[n as usize % 3].id)).collect();
    (clients, contenders)
}

/// The contender of this number: alone, reading and writing, by permits, and all mixed up.
pub(crate) fn contender(n: u64, client: &ClientId) -> Arc<Contender> {
    let permits = |count, capacity| Mode::Permits { count, capacity };
    let (name, mode) = match (n % 4, n / 4) {
        (0, _) => ("a", Mode::Mutex),
        (1, 1 | 4) => ("orders/1", Mode::Write),
        (1, _) => ("orders/1", Mode::Read),
        (2, at) => ("orders/2", permits(1 + at as u32 % 3, 4)),
        (_, 0) => ("ordersß", Mode::Read),
        (_, 1) => ("ordersß", permits(1, 2)),
        (_, 2) => ("ordersß", permits(1, 3)),
        (_, 3) => ("ordersß", Mode::Write),
        _ => ("ordersß", Mode::Mutex),
    };
    Arc::new(Contender {
        name: LockName::new(name).unwrap(),
        owner: OwnerToken::random().unwrap(),
        client: client.clone(),
        label: format!("job {n}"),
        lease: Duration::from_secs(5),
        first_lease: Duration::from_millis(800 + 100 * (n % 12)),
        barge: n % 10 == 7,
        mode,
    })
}
