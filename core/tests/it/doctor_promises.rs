//! Every “yes” that an examination can give is played: each set-up below is started and examined, and for each
//! promise it is said to keep, the table names the fault runs that would refute it. A “yes” without a run fails
//! here, and so does a run that no longer exists.

#![cfg(all(
    feature = "redis",
    feature = "sqlite",
    feature = "consul",
    feature = "etcd",
    feature = "zookeeper",
    unix
))]

use std::path::Path;

use crate::contract::block_on;
use polylatch::Polylatch;
use polylatch::inspect::{Examination, Holds};
use polylatch_test_services::TempDir;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::etcd::EtcdCluster;
use polylatch_test_services::redis::{Cluster, RedisBuilder, RedisServer, Service};
use polylatch_test_services::zookeeper::Ensemble;

/// A promise, and the tests that would refute it: a file below the top folder, and a test in it.
type Played = (&'static str, &'static [(&'static str, &'static str)]);

const LOAD: &str = "tests/robustness/tests/redis/load.rs";
const HELD: &str = "tests/robustness/tests/redis/held.rs";
const LINE: &str = "tests/robustness/tests/redis/line.rs";
const FAULTS: &str = "core/tests/it/redis_faults.rs";
const OUTAGES: &str = "core/tests/it/redis_outages.rs";
const STRICT: &str = "core/tests/it/redis_strict.rs";
const SENTINEL: &str = "tests/robustness/tests/sentinel.rs";
const CLUSTER: &str = "tests/robustness/tests/cluster.rs";
const REDLOCK: &str = "tests/robustness/tests/redlock.rs";
const CONSUL: &str = "tests/robustness/tests/consul.rs";
const SQLITE: &str = "tests/robustness/tests/sqlite.rs";
const ETCD: &str = "core/tests/it/etcd_faults.rs";
const ETCD_BESIDE: &str = "core/tests/it/etcd_interop.rs";
const ZOOKEEPER: &str = "core/tests/it/zookeeper_faults.rs";
const ZOOKEEPER_BESIDE: &str = "core/tests/it/zookeeper_interop.rs";
const ZOOKEEPER_HURT: &str = "tests/robustness/tests/zookeeper.rs";
const ZOOKEEPER_UNDER_LOAD: (&str, &str) =
    (ZOOKEEPER_HURT, "sections_never_overlap_while_sessions_end_and_leaders_die");
const ETCD_UNDER_LOAD: (&str, &str) =
    ("tests/robustness/tests/etcd.rs", "sections_never_overlap_while_sessions_end_and_leaders_die");
const WAITING: &str = "core/tests/it/contract/cases_wait.rs";
const CASES: &str = "core/tests/it/contract/cases.rs";

const UNDER_FAULTS: (&str, &str) =
    (LOAD, "sections_never_overlap_while_workers_connections_and_server_are_hurt");
const RESTARTED: (&str, &str) =
    (LOAD, "sections_never_overlap_while_the_server_is_killed_and_comes_back_with_its_data");
const HELD_ACROSS: (&str, &str) = (HELD, "a_renewed_lease_outlasts_faults_with_the_options_that_users_have");

const REDIS_EXCLUSION: Played = ("exclusion", &[UNDER_FAULTS, HELD_ACROSS]);
const REDIS_TOKENS: Played = (
    "fencing-order",
    &[UNDER_FAULTS, (OUTAGES, "a_server_restarted_empty_tells_its_holder_and_fences_go_on_growing")],
);
const REDIS_PUSH: Played = (
    "push",
    &[
        (FAULTS, "a_reset_subscription_comes_back_and_meanwhile_waiters_poll"),
        (LINE, "a_hand_over_costs_few_commands_however_many_wait"),
    ],
);
const REDIS_FIFO: Played =
    ("fifo", &[(LINE, "fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue")]);

const STRICT_AFTER_RESTART: Played = (
    "exclusion-after-restart",
    &[(STRICT, "after_a_restart_with_its_data_nothing_is_granted_before_every_old_lease_has_ended")],
);
const STRICT_AFTER_WIPE: Played = (
    "exclusion-after-wipe",
    &[
        (STRICT, "after_a_restart_without_data_nothing_is_granted_early_and_fences_go_on_growing"),
        (STRICT, "a_flush_of_the_whole_store_closes_it_too"),
    ],
);

const NODES: &str = "core/tests/it/redlock_nodes.rs";

const NODES_HURT: (&str, &str) =
    (REDLOCK, "sections_never_overlap_while_nodes_are_killed_emptied_paused_slow_and_cut_off");

const RECOVERY: &str = "core/tests/it/redlock_recovery.rs";
const CLOCKS: &str = "core/tests/it/redlock_clocks.rs";

const NODES_EXCLUSION: Played = (
    "exclusion",
    &[
        NODES_HURT,
        (CLOCKS, "a_node_whose_clock_steps_forward_does_not_vote_until_what_it_dropped_has_ended"),
        (RECOVERY, "a_healed_node_keeps_the_lease_from_one_renewal_to_the_next_with_default_options"),
    ],
);
const NODES_FAILOVER: Played = (
    "exclusion-after-failover",
    &[NODES_HURT, (RECOVERY, "a_node_that_was_a_replica_takes_part_when_that_is_fixed")],
);
const NODES_WIPE: Played = (
    "exclusion-after-wipe",
    &[
        (NODES, "a_flushed_node_counts_as_restarted"),
        (
            RECOVERY,
            "a_client_that_saw_the_store_in_use_does_not_take_it_for_new_when_all_nodes_lose_their_data",
        ),
    ],
);
const NODES_TOKENS: Played = ("fencing-order", &[NODES_HURT]);
const NODES_PUSH: Played = ("push", &[(NODES, "waiters_follow_each_other_without_waiting_for_a_poll")]);
const NODES_RESTART: Played = (
    "exclusion-after-restart",
    &[
        NODES_HURT,
        (NODES, "a_node_that_restarts_empty_does_not_vote_until_its_time_is_over"),
        (CLOCKS, "a_node_that_restarts_with_a_wrong_clock_is_quarantined_by_the_clients_clock"),
    ],
);

struct SetUp {
    what: &'static str,
    start: fn() -> (Box<dyn std::any::Any>, String),
    keeps: &'static [Played],
}

fn redis(builder: RedisBuilder, options: &str) -> (Box<dyn std::any::Any>, String) {
    let server = builder.start();
    let url = format!("{}?{options}", server.url());
    (Box::new(server), url)
}

fn redlock(node: fn() -> RedisBuilder, options: &str) -> (Box<dyn std::any::Any>, String) {
    let nodes = [(); 3].map(|()| node().start());
    let addresses = nodes.each_ref().map(|node| node.address().to_string());
    let url = format!("redlock://{}?{options}", addresses.join(","));
    (Box::new(nodes), url)
}

const SET_UPS: &[SetUp] = &[
    SetUp {
        what: "memory",
        start: || (Box::new(()), "memory:".into()),
        keeps: &[
            ("exclusion", &[(WAITING, "two_holders_never_meet_under_load")]),
            (
                "exclusion-after-restart",
                &[(CASES, "closing_a_client_releases_what_it_holds_and_ends_its_waits")],
            ),
            (
                "exclusion-after-wipe",
                &[(CASES, "closing_a_client_releases_what_it_holds_and_ends_its_waits")],
            ),
            ("fencing-order", &[(CASES, "fencing_tokens_grow_over_release_expiry_and_clients")]),
            ("push", &[(WAITING, "many_waiters_are_all_served")]),
            ("fifo", &[(WAITING, "waiters_enter_in_the_order_in_which_they_came")]),
        ],
    },
    SetUp {
        what: "SQLite file",
        start: || {
            let dir = TempDir::new();
            let url = format!("sqlite:{}", dir.join("locks.sqlite").display());
            (Box::new(dir), url)
        },
        keeps: &[
            (
                "exclusion",
                &[
                    (SQLITE, "sections_never_overlap_while_processes_are_killed_and_paused"),
                    (
                        "core/src/backend/sqlite/tests/bad_files.rs",
                        "a_removed_or_replaced_file_is_noticed_before_anything_is_promised",
                    ),
                ],
            ),
            (
                "exclusion-after-restart",
                &[(
                    "core/src/backend/sqlite/tests/bad_files.rs",
                    "leases_end_with_the_boot_and_fences_go_on",
                )],
            ),
            (
                "fencing-order",
                &[
                    (SQLITE, "sections_never_overlap_while_processes_are_killed_and_paused"),
                    (
                        "core/src/backend/sqlite/tests/bad_files.rs",
                        "the_reservation_is_moved_on_before_it_is_used_up",
                    ),
                ],
            ),
            (
                "push",
                &[(
                    "core/src/backend/sqlite/tests/sharing.rs",
                    "a_grant_by_another_client_is_pushed_with_a_fence_above_the_answer",
                )],
            ),
            ("fifo", &[(SQLITE, "fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue")]),
        ],
    },
    SetUp {
        what: "Redis that keeps nothing",
        start: || redis(RedisServer::builder(), ""),
        keeps: &[REDIS_EXCLUSION, REDIS_TOKENS, REDIS_PUSH, REDIS_FIFO],
    },
    SetUp {
        what: "Redis that writes every grant down",
        start: || redis(RedisServer::builder().append_only().config("appendfsync always"), ""),
        keeps: &[
            REDIS_EXCLUSION,
            ("exclusion-after-restart", &[RESTARTED, HELD_ACROSS]),
            REDIS_TOKENS,
            REDIS_PUSH,
            REDIS_FIFO,
        ],
    },
    SetUp {
        what: "Redis, strict",
        start: || redis(RedisServer::builder(), "guarantee=strict"),
        keeps: &[
            REDIS_EXCLUSION,
            STRICT_AFTER_RESTART,
            STRICT_AFTER_WIPE,
            REDIS_TOKENS,
            REDIS_PUSH,
            REDIS_FIFO,
        ],
    },
    SetUp {
        what: "Redis with Sentinels",
        start: || {
            let service = Service::with_replicas(1).start();
            let url = service.url();
            (Box::new(service), url)
        },
        keeps: &[REDIS_EXCLUSION, REDIS_TOKENS, REDIS_PUSH, REDIS_FIFO],
    },
    SetUp {
        what: "Redis with Sentinels, strict",
        start: || {
            let service = Service::with_replicas(1).config("min-replicas-to-write 1").start();
            let url = format!("{}?guarantee=strict&ack=majority", service.url());
            (Box::new(service), url)
        },
        keeps: &[
            REDIS_EXCLUSION,
            STRICT_AFTER_RESTART,
            (
                "exclusion-after-failover",
                &[(SENTINEL, "strict_never_has_two_holders_whatever_a_promotion_forgets")],
            ),
            STRICT_AFTER_WIPE,
            REDIS_TOKENS,
            REDIS_PUSH,
            REDIS_FIFO,
        ],
    },
    SetUp {
        what: "Redis Cluster",
        start: || {
            let cluster = Cluster::start();
            let url = cluster.url();
            (Box::new(cluster), url)
        },
        keeps: &[
            ("exclusion", &[(CLUSTER, "no_mutex_is_lost_while_slots_move")]),
            ("fencing-order", &[(CLUSTER, "what_a_failed_master_takes_along_is_counted_and_all_else_holds")]),
            (
                "push",
                &[(
                    "core/tests/it/redis_cluster_pushes.rs",
                    "listeners_go_along_with_a_slot_and_no_waiter_waits_for_a_poll",
                )],
            ),
            ("fifo", &[(WAITING, "waiters_enter_in_the_order_in_which_they_came")]),
        ],
    },
    SetUp {
        what: "RedLock",
        start: || redlock(RedisServer::builder, ""),
        keeps: &[NODES_EXCLUSION, NODES_FAILOVER, NODES_WIPE, NODES_TOKENS, NODES_PUSH],
    },
    SetUp {
        what: "RedLock on nodes that keep their data",
        start: || redlock(|| RedisServer::builder().append_only(), ""),
        keeps: &[NODES_EXCLUSION, NODES_RESTART, NODES_FAILOVER, NODES_WIPE, NODES_TOKENS, NODES_PUSH],
    },
    SetUp {
        what: "RedLock, strict",
        start: || redlock(RedisServer::builder, "guarantee=strict"),
        keeps: &[NODES_EXCLUSION, NODES_RESTART, NODES_FAILOVER, NODES_WIPE, NODES_TOKENS, NODES_PUSH],
    },
    SetUp {
        what: "Consul",
        start: || {
            let agent = ConsulAgent::start();
            let url = agent.url();
            (Box::new(agent), url)
        },
        keeps: &[
            (
                "exclusion",
                &[(CONSUL, "sections_never_overlap_while_workers_connections_and_the_agent_are_hurt")],
            ),
            (
                "fencing-order",
                &[(CONSUL, "sections_never_overlap_while_workers_connections_and_the_agent_are_hurt")],
            ),
            (
                "push",
                &[(
                    "core/tests/it/consul_faults.rs",
                    "locks_and_places_in_the_queue_outlast_broken_connections",
                )],
            ),
            ("fifo", &[(CONSUL, "fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue")]),
        ],
    },
    SetUp {
        what: "etcd of three members",
        start: || {
            let cluster = EtcdCluster::start();
            let url = cluster.url();
            (Box::new(cluster), url)
        },
        keeps: &[
            (
                "exclusion",
                &[
                    (ETCD_BESIDE, "sections_of_etcdctl_and_ours_never_overlap"),
                    (ETCD, "what_a_hung_member_may_still_carry_out_finds_no_lease_after_the_release"),
                ],
            ),
            ("exclusion-after-restart", &[(ETCD, "a_member_that_is_killed_comes_back_with_its_locks")]),
            (
                "exclusion-after-failover",
                &[ETCD_UNDER_LOAD, (ETCD, "locks_survive_the_death_and_the_pause_of_leaders")],
            ),
            ("fencing-order", &[ETCD_UNDER_LOAD]),
            ("push", &[(ETCD_BESIDE, "a_lock_taken_by_etcdctl_excludes_us_and_its_release_wakes_us")]),
            ("fifo", &[(ETCD_BESIDE, "a_lock_of_ours_excludes_etcdctl_which_enters_after_our_release")]),
        ],
    },
    SetUp {
        what: "ZooKeeper of three members",
        start: || {
            let ensemble = Ensemble::start();
            let url = format!("{}?tick=200ms", ensemble.url());
            (Box::new(ensemble), url)
        },
        keeps: &[
            (
                "exclusion",
                &[
                    (ZOOKEEPER_HURT, "a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused"),
                    (ZOOKEEPER_BESIDE, "sections_of_curator_and_ours_never_overlap"),
                ],
            ),
            ("exclusion-after-restart", &[(ZOOKEEPER, "a_server_that_is_killed_comes_back_with_its_locks")]),
            (
                "exclusion-after-failover",
                &[ZOOKEEPER_UNDER_LOAD, (ZOOKEEPER, "locks_survive_the_death_and_the_pause_of_leaders")],
            ),
            ("fencing-order", &[ZOOKEEPER_UNDER_LOAD]),
            ("push", &[(ZOOKEEPER_BESIDE, "curator_and_we_exclude_each_other")]),
            ("fifo", &[(ZOOKEEPER_BESIDE, "curator_and_we_exclude_each_other")]),
        ],
    },
];

#[test]
fn every_yes_names_a_fault_run_that_would_refute_it() {
    let mut wrong = Vec::new();
    for set_up in SET_UPS {
        let (store, url) = (set_up.start)();
        let (_, examined): (_, Examination) = block_on(Polylatch::builder().url(&url).examine())
            .unwrap_or_else(|error| panic!("{}: {error:?}", set_up.what));
        let said: Vec<_> =
            examined.promises.iter().filter(|one| one.holds == Holds::Yes).map(|one| one.id).collect();
        let played: Vec<_> = set_up.keeps.iter().map(|(id, _)| *id).collect();
        if said != played {
            wrong.push(format!(
                "{}: the examination says yes to {said:?}, played are {played:?}",
                set_up.what
            ));
        }
        drop(store);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_run_that_is_named_exists() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the core stands in the top folder");
    for set_up in SET_UPS {
        for (promise, runs) in set_up.keeps {
            assert!(!runs.is_empty(), "{}: nothing plays {promise}", set_up.what);
            for (file, test) in *runs {
                let text =
                    std::fs::read_to_string(top.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
                assert!(text.contains(&format!("fn {test}(")), "{}: {file} has no test {test}", set_up.what);
            }
        }
    }
}
