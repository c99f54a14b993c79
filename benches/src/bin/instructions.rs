//! Counts the instructions of one delivery and compares them with `benches/instructions.toml`.
//!
//! ```text
//! cargo run --release -p portolan-benches --bin instructions          # check
//! cargo run --release -p portolan-benches --bin instructions print    # only the figures; both: of all workloads, or of those named
//! instructions run WORKLOAD N                                         # what valgrind watches
//! ```

use portolan_benches::count::{self, CountError, Record, WORKLOADS};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// How often what is over its limit is counted again.
const RECOUNTS: u32 = 3;

fn own_path() -> Result<std::path::PathBuf, CountError> {
    std::env::current_exe().map_err(|e| CountError::Io("own path".to_owned(), e))
}

/// Prints each figure; whether none exceeds its limit.
fn check(compare: bool, only: &[&str]) -> Result<bool, CountError> {
    if cfg!(debug_assertions) {
        println!("skipped: not a release build");
        return Ok(true);
    }
    if !count::has_valgrind() {
        println!("skipped: no valgrind");
        return Ok(true);
    }
    count::keep_to_one_processor()?;
    let record = Record::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml"))?;
    let mut good = true;
    let mut figures = BTreeMap::new();
    let program = own_path()?;
    for workload in WORKLOADS {
        if !only.is_empty() && !only.contains(&workload) {
            continue;
        }
        if let Some(why) = count::is_missing(workload) {
            println!("{workload:21} skipped: {why}");
            continue;
        }
        let mut seen = count::per_delivery(&program, workload)?;
        // Other work on the processor makes ranks take turns in other ways: what is over the limit is counted again, and the
        // least of all runs counts.
        let limit = record.limit(workload).filter(|_| compare);
        for _ in 0..RECOUNTS {
            if limit.is_some_and(|most| seen > most) {
                seen = count::per_delivery(&program, workload)?;
            }
        }
        figures.insert(workload, seen);
        match limit {
            Some(limit) => {
                let within = seen <= limit;
                good &= within;
                let verdict = if within { "ok" } else { "TOO MANY" };
                println!("{workload:21} {seen:6} instructions, at most {limit:6}: {verdict}");
            }
            None => println!("{workload} = {seen}"),
        }
    }
    if let (Some(moving), Some(fixed)) = (figures.get("am-short"), figures.get(count::STATIC)) {
        let limit = fixed * (100 + count::DYNAMIC_PERCENT) / 100;
        let within = *moving <= limit;
        good &= within || !compare;
        println!(
            "credits that may move: {moving} instructions a round trip, at most {limit} ({} % above {fixed})",
            count::DYNAMIC_PERCENT
        );
    }
    for (what, counted, beside, more) in [
        ("a put to", count::HELD, "conduit-put", count::HIT),
        ("a get from", count::GET_HELD, "conduit-get", count::GET_HIT),
    ] {
        let (Some(held), Some(whole)) = (figures.get(counted), figures.get(beside)) else {
            continue;
        };
        let (mut held, mut limit) = (*held, whole + more);
        for _ in 0..RECOUNTS {
            if compare && held > limit {
                held = count::per_delivery(&program, counted)?;
                limit = count::per_delivery(&program, beside)? + more;
            }
        }
        let within = held <= limit;
        good &= within || !compare;
        println!(
            "{what} memory that is held: {held} instructions, at most {limit} ({more} above {})",
            limit - more
        );
    }
    Ok(good)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        [] => check(true, &[]),
        ["check", ref only @ ..] => check(true, only),
        ["print", ref only @ ..] => check(false, only),
        ["run", workload, times] => match times.parse() {
            Ok(times) => count::run(workload, times).map(|()| {
                println!("{times} deliveries");
                true
            }),
            Err(_) => Ok(false),
        },
        _ => {
            eprintln!("usage: instructions [check | print] [WORKLOAD …] | run WORKLOAD N");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}
