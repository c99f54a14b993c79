//! Every measurement between the threads of one process.

use std::thread;

use portals_shim::fabric::in_process;

use super::*;

/// Runs `body` on each of `ranks` interfaces and returns rank 0's result.
fn on_ranks<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(&mut Rank) -> Result<T, BenchError> + Copy + Send + 'static,
) -> T {
    let threads: Vec<_> = (0..)
        .zip(in_process(ranks))
        .map(|(at, opened)| {
            thread::spawn(move || {
                let mut rank = Rank::new(&opened, at)?;
                let result = body(&mut rank)?;
                rank.close()?;
                Ok::<_, BenchError>(result)
            })
        })
        .collect();
    let results: Vec<_> = threads
        .into_iter()
        .map(|t| t.join().unwrap().unwrap())
        .collect();
    results.into_iter().next().unwrap()
}

#[test]
fn every_measurement_measures_on_two_and_three_ranks() {
    for ranks in [2, 3] {
        let counts = on_ranks(ranks, |rank| {
            let mut counts = Vec::new();
            for name in Name::ALL {
                for point in [0, 1, 8, 5000] {
                    let measured = rank.measure(name, point, Some(3))?;
                    counts.push((name, point, measured.samples.len(), measured.bytes));
                }
            }
            Ok(counts)
        });
        assert_eq!(counts.len(), Name::ALL.len() * 4);
        for (name, point, samples, bytes) in counts {
            assert_eq!(samples, 3, "{name} at {point}");
            assert_eq!(
                bytes,
                if name == Name::MatchDepth { 8 } else { point },
                "{name}"
            );
        }
    }
}

#[test]
fn one_rank_is_too_few() {
    let opened = in_process(1).remove(0);
    assert!(matches!(
        Rank::new(&opened, 0),
        Err(BenchError::TooFewRanks(1))
    ));
}

#[test]
fn virtual_time_needs_few_repetitions() {
    let wall = default_iters(ClockKind::Wall, Name::PutLatency, 8);
    assert!(default_iters(ClockKind::Virtual, Name::PutLatency, 8) < wall);
    assert_eq!(
        default_iters(ClockKind::Wall, Name::MatchDepth, 1 << 20),
        wall
    );
}
