//! What users rely on, seen from outside, on real stores. One program: linking one for each file would take minutes.
//! A test that needs a process for itself, such as for its log, has a file beside this folder.

mod contract;

mod consul_access;
mod consul_cluster;
mod consul_faults;
mod consul_following;
mod consul_forced;
mod consul_interop;
mod consul_sessions;
mod contract_cluster;
mod contract_consul;
mod contract_memory;
mod contract_redis;
mod contract_redlock;
mod contract_sentinel;
mod contract_sqlite;
mod doctor_promises;
mod layers;
mod program_end;
mod redis_bad_input;
mod redis_cluster;
mod redis_cluster_promises;
mod redis_cluster_pushes;
mod redis_dropped_flow;
mod redis_faults;
mod redis_following;
mod redis_foreign;
mod redis_outages;
mod redis_promises;
mod redis_queue;
mod redis_rotation;
mod redis_runtimes;
mod redis_sentinel;
mod redis_shared;
mod redis_strict;
mod redis_versions;
mod redlock_bad_input;
mod redlock_clocks;
mod redlock_following;
mod redlock_nodes;
mod redlock_recovery;
mod redlock_tls;
mod resource_guards;
mod stats;
mod url_secrets;
