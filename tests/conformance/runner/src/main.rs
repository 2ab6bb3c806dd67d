//! Plays `scenarios/` through the shim of every language, and across languages, on every store.
//!
//! `polylatch-conformance FOLDER --target NAME=COMMAND… [--store NAME…] [--only TEXT…] [--jobs N]`
//!
//! A command is the path of a program, or a JSON list of words. Without `--store`: memory, sqlite,
//! redis, redlock (three servers) and consul; there are also sentinel, cluster and postgres. `--store NAME=URL`
//! plays on one that runs already. Before anything else the runner plays `must-fail/`: each of those has to fail, for the
//! reason that it names.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

mod judge;
mod matrix;
mod play;
mod pressure;
mod scenario;
mod shim;
mod shims;
mod skips;
mod stores;

use judge::ErrorTable;
use matrix::Run;
use play::Verdict;
use scenario::{Need, Scenario};
use shim::Target;
use shims::Shims;
use skips::Skips;
use stores::Store;

struct Asked {
    folder: PathBuf,
    targets: Vec<Target>,
    stores: Vec<String>,
    /// Parts of names; without any, all scenarios.
    only: Vec<String>,
    jobs: usize,
}

fn main() -> ExitCode {
    let asked = match read_arguments(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_arguments(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let folder = words.next().ok_or("the folder of the scenarios is missing")?.into();
    let mut asked = Asked { folder, targets: Vec::new(), stores: Vec::new(), only: Vec::new(), jobs: 10 };
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--target" => asked.targets.push(read_target(&value)?),
            "--store" => asked.stores.push(value),
            "--only" => asked.only.push(value),
            "--jobs" => asked.jobs = value.parse().map_err(|_| "--jobs needs a number")?,
            _ => return Err(format!("there is no option {word}")),
        }
    }
    if asked.targets.is_empty() {
        return Err("no --target: there is nobody to play".into());
    }
    if asked.stores.is_empty() {
        asked.stores = stores::BY_DEFAULT.map(str::to_owned).to_vec();
    }
    Ok(asked)
}

fn read_target(value: &str) -> Result<Target, String> {
    let (name, command) = value.split_once('=').ok_or(format!("{value}: NAME=COMMAND is needed"))?;
    let command = if command.starts_with('[') {
        serde_json::from_str(command).map_err(|error| format!("{value}: {error}"))?
    } else {
        vec![command.to_owned()]
    };
    Ok(Target { name: name.to_owned(), command })
}

fn run(asked: &Asked) -> Result<bool, String> {
    let shims = Shims::new()?;
    let path = asked.folder.join("errors.json");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table: ErrorTable = serde_json::from_str(&text).map_err(|error| error.to_string())?;

    let mut stores = Vec::new();
    for name in &asked.stores {
        stores.push(Store::start(name)?);
    }
    check_the_runner(asked, &stores, &shims, &table)?;

    let mut scenarios = scenario::read_all(&asked.folder.join("scenarios"))?;
    let mut skips = Skips::read(&asked.folder.join("skips.json"))?;
    let names: BTreeSet<_> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    if let Some(skip) = skips.unknown(&names).first() {
        return Err(format!("skips.json lists {:?}, which does not exist", skip.scenario));
    }
    for only in &asked.only {
        if !scenarios.iter().any(|scenario| scenario.name.contains(only.as_str())) {
            return Err(format!("--only {only}: no scenario has that in its name"));
        }
    }
    let is_asked = |name: &str| asked.only.iter().any(|only| name.contains(only.as_str()));
    scenarios.retain(|scenario| asked.only.is_empty() || is_asked(&scenario.name));
    let runs = matrix::runs(&scenarios, &stores, &asked.targets);
    let verdicts = matrix::play_all(&runs, asked.jobs, &shims, &table);
    Ok(matrix::tell(&runs, &verdicts, &mut skips, shims.end()))
}

/// Plays the scenarios that must fail, with the first target, on the first store of several processes, or else
/// on the first one that can play them. Says what none of the stores can play.
fn check_the_runner(
    asked: &Asked,
    stores: &[Store],
    shims: &Shims,
    table: &ErrorTable,
) -> Result<(), String> {
    let scenarios = scenario::read_all(&asked.folder.join("must-fail"))?;
    let target = &asked.targets[0];
    let mut runs = Vec::new();
    for scenario in &scenarios {
        let Some(store) = judging(scenario, stores) else {
            println!("{} is not checked: none of the stores lives in several processes", scenario.name);
            continue;
        };
        let cast = vec![target; scenario.actors.len()];
        runs.push(Run { scenario, store, cast, cast_name: target.name.clone() });
    }
    let verdicts = matrix::play_all(&runs, asked.jobs, shims, table);
    for (scenario, verdict) in runs.iter().map(|run| run.scenario).zip(verdicts) {
        let reason = scenario.fails_with.as_deref().ok_or(format!("{} says not why", scenario.name))?;
        match verdict {
            Verdict::Failed(why) | Verdict::Skipped(why) if why.contains(reason) => {}
            // Not every language and store has it.
            Verdict::Skipped(why) if scenario.needs.contains(&Need::Idempotency) => {
                println!("{} is not checked: {why}", scenario.name);
            }
            other => {
                return Err(format!(
                    "the runner is broken: {} had to fail with {reason:?}, but: {other:?}",
                    scenario.name
                ));
            }
        }
    }
    println!("the runner fails what it has to: {} scenarios", runs.len());
    Ok(())
}

/// The store on which a scenario tells whether the runner is in order.
fn judging<'a>(scenario: &Scenario, stores: &'a [Store]) -> Option<&'a Store> {
    let several = stores.iter().find(|store| !store.one_process);
    several.or_else(|| stores.first().filter(|_| scenario.fits_one_process()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_runner_is_checked_on_a_store_that_can_play_what_must_fail() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../must-fail");
        let scenarios = scenario::read_all(&folder).unwrap();
        let store = |name| Store::start(name).unwrap();
        let on = |stores: &[Store]| {
            let names = |fits: bool| -> BTreeSet<_> {
                let some = scenarios.iter().filter(|scenario| scenario.fits_one_process() == fits);
                some.map(|scenario| judging(scenario, stores).map(|store| store.name.clone())).collect()
            };
            (names(true), names(false))
        };
        let all_on = |name: Option<&str>| BTreeSet::from([name.map(str::to_owned)]);
        assert_eq!(on(&[store("memory")]), (all_on(Some("memory")), all_on(None)));
        let both = on(&[store("memory"), store("sqlite")]);
        assert_eq!(both, (all_on(Some("sqlite")), all_on(Some("sqlite"))));
    }
}
