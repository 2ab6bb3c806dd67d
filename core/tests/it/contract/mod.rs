//! What every store does, told as cases that a backend receives through [`contract!`].
//!
//! A backend supplies a factory: a fresh, empty store whose clients are made with `connect`. Every
//! case gets a store of its own. Cases that need an ability which a store declares not to have check that
//! it refuses them as it should ([`abilities`]).

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use polylatch::Polylatch;

pub mod abilities;
pub mod cases;
pub mod cases_extend;
pub mod cases_family;
pub mod cases_inspect;
pub mod cases_keep;
pub mod cases_lease;
pub mod cases_sets;
pub mod cases_steal;
pub mod cases_wait;

/// A fresh store for one case.
pub trait Store: Send + Sync {
    /// Returns the URL of a client, with these options (`key=value` joined by `&`, or nothing).
    fn url(&self, options: &str) -> String;

    /// How much longer than usual leases and what depends on them are, so that a slower store can renew
    /// short leases in time on a busy machine.
    fn stretch(&self) -> u32 {
        1
    }

    /// A length of time that has to do with leases.
    fn time(&self, millis: u64) -> Duration {
        Duration::from_millis(millis) * self.stretch()
    }

    /// A lease that must not be lost, also on a busy machine. It is renewed every second.
    fn safe(&self) -> Duration {
        self.time(600).max(Duration::from_secs(3))
    }

    /// How many waiters, readers or leases a case has that has `of` on most stores.
    fn crowd(&self, of: usize) -> usize {
        of
    }

    /// Whether the store can say what is left of a lease and when it was renewed. Where it cannot,
    /// inspection has to leave both open.
    fn tells_renewals(&self) -> bool {
        true
    }

    /// Whether a waiter is told apart that gives no sign of life although its client lives. Where the
    /// session of a client is the sign of life of all its waiters, it is not.
    fn waiters_fall_silent(&self) -> bool {
        true
    }

    /// Whether the store records until when a waiter waits. Where it does not, inspection leaves it open.
    fn tells_deadlines(&self) -> bool {
        matches!(self.connect().capability().backend, "memory" | "sqlite" | "redis")
    }

    fn connect_with(&self, options: &str) -> Polylatch {
        let url = self.url(options);
        block_on(Polylatch::connect(&url)).unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn connect(&self) -> Polylatch {
        self.connect_with("")
    }
}

/// Runs all cases of the contract against the stores that `$factory` makes.
#[macro_export]
macro_rules! contract {
    ($factory:expr) => {
        $crate::contract!(@cases $factory;
            cases::{
                a_free_lock_is_acquired_and_released,
                a_held_lock_is_refused_and_the_wait_names_the_holder,
                a_wait_of_zero_asks_once,
                fencing_tokens_grow_over_release_expiry_and_clients,
                locks_of_different_names_do_not_meet,
                a_dropped_guard_releases_in_the_background,
                a_dropped_guard_is_out_of_its_own_clients_way,
                a_guard_that_ends_with_its_runtime_is_released,
                releasing_twice_is_fine_and_a_released_guard_is_not_held,
                an_owner_id_enters_again_without_a_request,
                different_owner_ids_exclude_each_other,
                two_tasks_of_one_owner_share_one_acquisition,
                bad_arguments_are_errors_before_anything_is_sent,
                closing_a_client_releases_what_it_holds_and_ends_its_waits,
                blocking_calls_do_the_same,
                a_guard_prints_what_the_resource_needs,
            }
            cases_wait::{
                a_barging_contender_may_overtake,
                a_waiter_that_gives_up_leaves_the_queue,
                an_acquisition_cancelled_at_any_point_leaves_nothing,
                a_waiting_acquisition_cancelled_at_any_point_leaves_nothing,
                a_release_cancelled_at_any_point_still_frees_the_lock,
                two_holders_never_meet_under_load,
                many_waiters_are_all_served,
            }
            cases_lease::{
                a_held_lock_is_renewed_beyond_its_lease,
                a_lease_without_renewal_ends_and_its_holder_knows_first,
                the_hold_limit_ends_a_lease_that_would_be_renewed,
                work_that_stops_beating_loses_its_lock,
                many_leases_are_renewed_together,
                a_lost_guard_says_so_and_cannot_be_released,
                a_guard_is_endangered_before_it_reaches_its_hold_limit,
            }
            cases_extend::{
                impossible_extensions_are_errors_and_change_nothing,
            }
            cases_sets::{
                several_locks_are_all_acquired_or_none,
                sets_of_locks_do_not_deadlock,
            }
            cases_inspect::{
                holders_waiters_and_clients_are_visible,
                until_when_a_waiter_waits_is_visible,
                renewals_are_visible,
                a_free_lock_is_shown_when_asked_for_by_name,
                a_query_picks_by_prefix_and_limit,
                names_and_labels_come_back_as_they_were_given,
                a_broken_lease_goes_to_the_next_and_its_holder_is_notified,
                a_lock_that_changed_hands_is_not_broken,
                breaking_needs_a_reason,
                watching_tells_what_happened,
                a_follower_sees_what_a_fresh_snapshot_shows,
            }
        );
        $crate::contract!(@needing order $factory;
            cases_wait::{
                waiters_enter_in_the_order_in_which_they_came,
                a_newcomer_does_not_overtake_a_live_waiter,
                a_newcomer_does_not_overtake_a_live_waiter_behind_many_silent_ones,
            }
        );
        $crate::contract!(@needing changing_leases $factory;
            cases_extend::{
                an_extended_lease_outlives_its_first_length_and_a_shortened_one_its_new_one,
                renewals_use_the_new_length,
            }
        );
        $crate::contract!(@needing stealing $factory;
            cases_steal::{
                a_thief_enters_before_all_waiters,
                a_thief_ends_every_reader,
                the_last_thief_has_the_lock,
                impossible_thefts_are_errors_and_end_nothing,
                a_theft_cancelled_at_any_point_leaves_nothing,
            }
        );
        $crate::contract!(@needing keeping $factory;
            cases_keep::{
                a_kept_lock_is_entered_again_without_a_request,
                a_kept_lock_is_entered_and_left_at_once_or_not_at_all,
                a_kept_lease_is_shown_as_one_that_is_free_for_the_next_caller,
                another_client_has_a_kept_lock_released_at_once,
                a_kept_lock_in_use_is_handed_on_when_its_caller_leaves,
                a_try_elsewhere_is_refused_and_has_a_kept_lock_released,
                a_released_guard_knows_nothing_of_the_next_caller,
                a_kept_lease_that_is_broken_is_not_entered_again,
                a_kept_lease_is_renewed_and_released_when_it_was_idle_for_long_enough,
                the_end_of_a_client_releases_what_it_keeps,
                callers_of_kept_locks_never_meet_under_load,
                what_cannot_be_kept_is_an_error_before_anything_is_sent,
                a_release_that_keeps_may_be_cancelled_at_any_point,
            }
        );
        $crate::contract!(@needing atomic_sets $factory;
            cases_sets::{
                no_client_sees_a_part_of_a_set_that_was_not_available,
                sets_that_many_try_are_acquired_by_one_at_a_time,
                every_lock_of_a_set_is_a_lease_of_its_own,
                a_set_may_mix_kinds,
                a_name_in_use_as_another_kind_refuses_the_whole_set,
                a_set_does_not_overtake_who_waits_for_one_of_its_locks,
                a_set_waits_in_order_and_holds_nothing_after_it_gave_up,
                an_owner_id_enters_again_through_a_set,
                impossible_sets_are_errors_before_anything_is_sent,
                a_set_cancelled_at_any_point_leaves_nothing,
            }
        );
        $crate::contract!(@needing sharing $factory;
            cases_family::{
                readers_share_and_a_writer_is_alone,
                one_readers_end_does_not_touch_another,
                a_reader_that_comes_after_a_waiting_writer_enters_after_it,
                readers_that_stand_together_enter_together,
                permits_are_granted_up_to_the_capacity,
                permits_of_a_dead_holder_come_back,
                a_large_request_is_not_overtaken_by_small_ones,
                a_writer_that_gives_up_lets_the_readers_behind_it_in,
                mixing_kinds_or_capacities_on_one_name_is_refused,
                impossible_permits_are_errors_before_anything_is_sent,
                a_writer_steps_down_without_letting_a_writer_in,
                only_the_only_reader_steps_up,
                a_converted_guard_is_renewed,
                a_conversion_cancelled_at_any_point_leaves_nothing,
                an_owner_id_keeps_its_lock_through_a_conversion,
                one_holder_of_a_shared_lock_can_be_broken,
                shared_holders_and_waiters_are_visible,
                readers_never_meet_a_writer_under_load,
                a_writer_waits_for_the_readers_before_it_and_no_others,
                live_permits_never_exceed_the_capacity_under_load,
            }
        );
    };
    (@needing $ability:ident $factory:expr; $module:ident::{$($case:ident,)*}) => {
        $(
            #[test]
            fn $case() {
                $crate::contract::abilities::$ability(&$factory(), $crate::contract::$module::$case);
            }
        )*
    };
    (@cases $factory:expr; $($module:ident::{$($case:ident,)*})*) => {
        $($(
            #[test]
            fn $case() {
                $crate::contract::$module::$case(&$factory());
            }
        )*)*
    };
}

/// Runs a future on this thread, without any runtime: the library must not need the caller's.
pub fn block_on<F: Future>(future: F) -> F::Output {
    pollster::block_on(future)
}

/// Polls a future at most `times` times, waiting for a wake-up in between, and then drops it.
/// Returns its output if it finished before.
pub fn poll_at_most<F: Future>(times: usize, future: F) -> Option<F::Output> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    for time in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if time + 1 < times {
            // Long enough for any wake-up that is on its way; a waiter with nothing to wait for
            // but its own timer is cut off here.
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
    None
}

/// Begins an acquisition that has to wait, and polls it until so many stand in line.
pub fn stands_in_line<F: Future + ?Sized>(
    mut acquiring: std::pin::Pin<&mut F>,
    looks: &Polylatch,
    name: &str,
    waiters: usize,
) {
    eventually("it stands in line", || {
        assert!(poll_at_most(1, acquiring.as_mut()).is_none(), "it has to wait");
        seen(looks, name).waiters.len() == waiters
    });
}

/// Waits until something is so; panics with `what` after ten seconds.
pub fn eventually(what: &str, so: impl FnMut() -> bool) {
    eventually_within(what, Duration::from_secs(10), so);
}

/// The same with another limit.
pub fn eventually_within(what: &str, limit: Duration, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < limit, "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Who holds and how many wait, from the store.
pub fn seen(client: &Polylatch, name: &str) -> polylatch::inspect::LockView {
    let query = polylatch::inspect::Query { name: Some(name.into()), ..Default::default() };
    let snapshot = block_on(client.inspect().list(&query)).unwrap();
    snapshot.locks.into_iter().next().expect("a lock asked for by name is always shown")
}
