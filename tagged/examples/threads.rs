//! What two threads on two communicators reach, beside one: `cargo run --release -p tagged --example threads`.
//!
//! Each thread sends messages of 8 bytes to its own rank, in windows of 64 with the receives posted first, so that a
//! thread needs one processor and no other. Shared memory, contexts on one interface and on an interface each. Median,
//! lowest and highest of the repetitions, which take turns.

use portals_shim::Region;
use portals_shim::nal::shm;
use std::convert::Infallible;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;
use tagged::{Comm, Options, Slice, World};

const WINDOW: usize = 64;
const WINDOWS: usize = 2000;
const REPETITIONS: usize = 15;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn world(endpoints: usize) -> Result<World, Failure> {
    let options = Options {
        contexts: 3,
        thread_grouping: true,
        threads: true,
        ..Options::default()
    };
    let opened = (0..endpoints).map(|_| shm::in_threads(1).map(portals_shim::fabric::interfaces));
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let opened = opened.into_iter().flatten().collect();
    let fence = || Ok::<(), Infallible>(());
    Ok(World::open_scalable(opened, 0, &options, fence)?)
}

fn windows(comm: &Comm) -> Result<(), Failure> {
    let (out, into) = (Region::new(8)?, Region::new(8)?);
    let mut requests = Vec::with_capacity(2 * WINDOW);
    for _ in 0..WINDOWS {
        for _ in 0..WINDOW {
            requests.push(comm.irecv(Slice::new(&into, 0, 8)?, Some(0), Some(1))?);
        }
        for _ in 0..WINDOW {
            requests.push(comm.isend(Slice::new(&out, 0, 8)?, 0, 1)?);
        }
        for request in requests.drain(..) {
            comm.wait(request)?;
        }
    }
    Ok(())
}

/// Messages of all threads, each second.
fn rate(comms: &[Comm]) -> Result<f64, Failure> {
    let start = Barrier::new(comms.len() + 1);
    let (began, results) = thread::scope(|scope| {
        let run = |comm| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                windows(comm)
            })
        };
        let threads: Vec<_> = comms.iter().map(run).collect();
        start.wait();
        let began = Instant::now();
        let ends = threads.into_iter().map(|thread| thread.join());
        (began, ends.collect::<Vec<_>>())
    });
    let took = began.elapsed();
    for result in results {
        result.map_err(|_| "a thread panicked")??;
    }
    Ok((comms.len() * WINDOWS * WINDOW) as f64 / took.as_secs_f64())
}

fn main() -> Result<(), Failure> {
    for endpoints in [1, 3] {
        let world = world(endpoints)?;
        let all = world.comm();
        let comms = [all.dup()?, all.dup()?];
        let mut ratios = Vec::new();
        let mut rates = Vec::new();
        rate(&comms)?;
        for _ in 0..REPETITIONS {
            let (one, two) = (rate(&comms[..1])?, rate(&comms)?);
            rates.push(one);
            ratios.push(two / one);
        }
        rates.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        println!(
            "{endpoints} interfaces: one thread {:.0} messages/s; two threads {:.2} times that ({:.2} to {:.2})",
            rates[REPETITIONS / 2],
            ratios[REPETITIONS / 2],
            ratios[0],
            ratios[REPETITIONS - 1]
        );
    }
    Ok(())
}
