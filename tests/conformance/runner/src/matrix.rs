//! Every scenario with every cast on every store, and the table of what came of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::judge::ErrorTable;
use crate::play::{Stage, Verdict, play};
use crate::pressure::Pressure;
use crate::scenario::Scenario;
use crate::shim::Target;
use crate::shims::Shims;
use crate::skips::Skips;
use crate::stores::Store;

/// One scenario with one cast on one store.
pub struct Run<'a> {
    pub scenario: &'a Scenario,
    pub store: &'a Store,
    /// A target for each actor.
    pub cast: Vec<&'a Target>,
    /// The languages in the order in which they are dealt out, such as `python+node+rust`.
    pub cast_name: String,
}

/// Deals out the parts: each language alone, and, where actors are processes, all languages together
/// in every rotation.
pub fn runs<'a>(scenarios: &'a [Scenario], stores: &'a [Store], targets: &'a [Target]) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for store in stores {
        for scenario in scenarios {
            for target in targets {
                let cast = vec![target; scenario.actors.len()];
                runs.push(Run { scenario, store, cast, cast_name: target.name.clone() });
            }
            if store.one_process || targets.len() < 2 || scenario.actors.len() < 2 {
                continue;
            }
            for first in 0..targets.len() {
                let dealt = |index: usize| &targets[(first + index) % targets.len()];
                let names: Vec<_> = (0..targets.len()).map(|index| dealt(index).name.clone()).collect();
                let cast = (0..scenario.actors.len()).map(dealt).collect();
                runs.push(Run { scenario, store, cast, cast_name: names.join("+") });
            }
        }
    }
    runs
}

/// How many runs were begun so far.
static PLAYED: AtomicUsize = AtomicUsize::new(0);

/// Plays all runs, `jobs` at a time. Two jobs of three begin with what waits for time to pass, the longest first, and the others with
/// what keeps a processor busy: the two overlap from the first run to the last.
pub fn play_all(runs: &[Run<'_>], jobs: usize, shims: &Shims, table: &ErrorTable) -> Vec<Verdict> {
    let (mut waiting, busy): (Vec<_>, Vec<_>) =
        (0..runs.len()).partition(|&index| runs[index].scenario.waits() >= LONG);
    waiting.sort_by_key(|&index| Reverse(runs[index].scenario.waits()));
    let (waiting, busy) = (Queue::new(waiting), Queue::new(busy));
    let verdicts = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for job in 0..jobs.max(1) {
            let (first, second) = if job % 3 == 2 { (&busy, &waiting) } else { (&waiting, &busy) };
            let verdicts = &verdicts;
            scope.spawn(move || {
                while let Some(index) = first.next().or_else(|| second.next()) {
                    let run = &runs[index];
                    // Of this run alone: those that must fail were played before, and may have left locks held.
                    let number = PLAYED.fetch_add(1, Ordering::SeqCst);
                    let prefix = format!("run-{}-{number}", std::process::id());
                    let url = run.store.url(&prefix);
                    let one_process = run.store.one_process;
                    let stage = Stage { url: &url, prefix: &prefix, one_process, shims, table };
                    let pressure = Pressure::now();
                    let verdict = match play(run.scenario, &run.cast, &stage) {
                        Verdict::Failed(why) => Verdict::Failed(format!("{why}\n    ({pressure})")),
                        other => other,
                    };
                    let mut verdicts = verdicts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    verdicts.insert(index, verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect()
}

/// From here on a run mostly waits.
const LONG: Duration = Duration::from_secs(1);

/// The places of runs, each handed out once.
struct Queue {
    places: Vec<usize>,
    next: AtomicUsize,
}

impl Queue {
    fn new(places: Vec<usize>) -> Self {
        Self { places, next: AtomicUsize::new(0) }
    }

    fn next(&self) -> Option<usize> {
        self.places.get(self.next.fetch_add(1, Ordering::SeqCst)).copied()
    }
}

/// Prints the tables and what went wrong, with what was wrong with the ends of the shims. Returns whether everything is as it should be.
pub fn tell(runs: &[Run<'_>], verdicts: &[Verdict], skips: &mut Skips, ends: Vec<String>) -> bool {
    let mut good = true;
    let mut complaints = ends;
    let mut skipped = BTreeMap::new();
    let mut played = BTreeSet::new();
    let mut tables: BTreeMap<&str, BTreeMap<&str, BTreeMap<&str, &str>>> = BTreeMap::new();
    let mut counts = (0, 0, 0);
    for (run, verdict) in runs.iter().zip(verdicts) {
        let (store, scenario, cast) =
            (run.store.name.as_str(), run.scenario.name.as_str(), run.cast_name.as_str());
        played.insert((cast.to_owned(), store.to_owned(), scenario.to_owned()));
        let cell = match verdict {
            Verdict::Passed => {
                counts.0 += 1;
                "passed"
            }
            Verdict::Skipped(why) => match skips.meet(cast, store, scenario) {
                Some(reason) => {
                    counts.1 += 1;
                    skipped.insert((scenario, store), reason.to_owned());
                    "skipped"
                }
                None => {
                    counts.2 += 1;
                    complaints.push(format!("{scenario}, {cast} on {store}: skipped, but not listed: {why}"));
                    "SKIPPED"
                }
            },
            Verdict::Failed(why) => {
                counts.2 += 1;
                let about = &run.scenario.about;
                complaints.push(format!("{scenario}, {cast} on {store}: {why}\n    ({about})"));
                "FAILED"
            }
        };
        tables.entry(store).or_default().entry(scenario).or_default().insert(cast, cell);
    }
    for (store, rows) in &tables {
        let casts: BTreeSet<_> = rows.values().flat_map(BTreeMap::keys).copied().collect();
        println!("\n{store}");
        let name_width = rows.keys().map(|name| name.len()).max().unwrap_or_default();
        let header: Vec<_> = casts.iter().map(|cast| format!("{cast:<8}")).collect();
        println!("  {:<name_width$}  {}", "", header.join("  "));
        for (scenario, cells) in rows {
            let cells: Vec<_> = casts
                .iter()
                .map(|cast| {
                    format!("{:<width$}", cells.get(cast).copied().unwrap_or("-"), width = cast.len().max(8))
                })
                .collect();
            println!("  {scenario:<name_width$}  {}", cells.join("  ").trim_end());
        }
    }
    if !skipped.is_empty() {
        println!("\nskipped, as listed:");
        for ((scenario, store), reason) in &skipped {
            println!("  {scenario} on {store}: {reason}");
        }
    }
    for stale in skips.stale(&played) {
        let (target, scenario, store) = (&stale.target, &stale.scenario, &stale.store);
        complaints.push(format!("{scenario}, {target} on {store}: listed as skipped, but it is not"));
    }
    if !complaints.is_empty() {
        good = false;
        println!("\nwrong:");
        for complaint in &complaints {
            println!("  {complaint}");
        }
    }
    println!("\n{} passed, {} skipped as listed, {} wrong", counts.0, counts.1, complaints.len());
    good
}
