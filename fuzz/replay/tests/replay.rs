//! Every committed corpus, and random bytes that are the same in each run.

use portolan_replay::{TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const RANDOM: u64 = 10_000;

/// Runs the target, and names the input if it panics.
fn run((target, body): Target, name: &str, data: &[u8]) -> u32 {
    catch_unwind(AssertUnwindSafe(|| body(data)))
        .unwrap_or_else(|_| panic!("{target}: {name}: {data:02x?}"))
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let name = |path: &Path| path.display().to_string();
    files
        .iter()
        .map(|path| (name(path), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn the_corpora_break_nothing() {
    for target in TARGETS {
        let files = corpus(target.0);
        assert!(files.len() >= 4, "{} has {} seeds", target.0, files.len());
        for (name, data) in files {
            run(target, &name, &data);
        }
    }
}

/// Half of them are random, half are seeds with some bytes changed.
#[test]
fn random_bytes_break_nothing() {
    for (number, target) in TARGETS.into_iter().enumerate() {
        let seeds = corpus(target.0);
        let mut rng = fastrand::Rng::with_seed(number as u64);
        let mut reached = 0;
        for i in 0..RANDOM {
            let mut data = if i % 2 == 0 {
                let len = rng.usize(0..1200);
                let mut data = vec![0; len];
                rng.fill(&mut data);
                data
            } else {
                seeds[rng.usize(0..seeds.len())].1.clone()
            };
            for _ in 0..rng.usize(0..8) {
                if !data.is_empty() {
                    let at = rng.usize(0..data.len());
                    data[at] = rng.u8(..);
                }
            }
            reached += run(target, &format!("random {i}"), &data);
        }
        println!("{}: {reached} messages got past the checks", target.0);
        assert!(reached > 1000, "{}: {reached}", target.0);
    }
}
