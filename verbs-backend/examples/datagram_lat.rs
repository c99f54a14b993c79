//! What a datagram there and one back cost, and of that the posts: the floor of what is above this crate.
//!
//! ```text
//! cargo run --release -p verbs-backend --example datagram_lat -- [DEVICE] [ROUNDS] [BYTES]
//! ```
//!
//! Two queue pairs of this process, the second one served by a thread that answers. Prints µs without what reading the
//! clock takes.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use verbs_backend::{
    Completion, Cq, DatagramAddress, DatagramOptions, DatagramQueue, Device, Pd, Route,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Prints durations, µs.
fn show(what: &str, reading: f64, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let (least, median) = (times[0] - reading, times[times.len() / 2] - reading);
    println!("{what:10} min {least:8.2} median {median:8.2}");
}

/// A queue pair with a completion queue of its own.
fn queue(device: &Device, pd: &Pd, size: usize) -> Outcome<(Cq, DatagramQueue)> {
    let cq = Cq::with_events(device, 1024)?;
    let options = DatagramOptions {
        port: 1,
        gid_index: None,
        route: Route::default(),
        qkey: 0x1234,
        receives: 256,
        sends: 128,
        size,
    };
    let queue = DatagramQueue::new(pd, &cq, &options)?;
    Ok((cq, queue))
}

/// Waits for a datagram; `false` when `ended` says that none will come.
fn wait(cq: &Cq, queue: &mut DatagramQueue, ended: &AtomicBool) -> Outcome<bool> {
    let mut slots = [Completion::EMPTY; 8];
    loop {
        let mut any = false;
        let count = cq.poll(&mut slots)?.len();
        for done in &slots[..count] {
            if let Some(arrival) = queue.handle(done)? {
                queue.give_back(arrival)?;
                any = true;
            }
        }
        if any || ended.load(Ordering::Relaxed) {
            return Ok(any);
        }
    }
}

fn serve(
    (cq, mut queue): (Cq, DatagramQueue),
    to: DatagramAddress,
    data: &[u8],
    ended: &AtomicBool,
) -> Outcome<()> {
    let to = queue.resolve(&to)?;
    while wait(&cq, &mut queue, ended)? {
        queue.stage_copy(&to, data)?;
        queue.flush(false)?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let rounds = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let bytes = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let (device, _) = Device::choose(name.as_deref())?;
    let pd = Pd::new(&device)?;
    let (cq, mut queue_here) = queue(&device, &pd, 768)?;
    let there = queue(&device, &pd, 768)?;
    let to = queue_here.resolve(&there.1.address())?;
    let back = queue_here.address();
    let data = vec![7; bytes];
    let ended = AtomicBool::new(false);
    let reading = (0..256)
        .map(|_| Instant::now().elapsed().as_secs_f64() * 1e6)
        .fold(f64::MAX, f64::min);
    std::thread::scope(|scope| -> Outcome<()> {
        let server = scope.spawn(|| serve(there, back, &data, &ended));
        for _ in 0..3 {
            // The post alone and the whole are timed in turn, since reading the clock takes time.
            let mut posts = Vec::with_capacity(rounds);
            let mut times = Vec::with_capacity(rounds);
            for round in 0..rounds {
                let timed = round % 2 == 0;
                let start = Instant::now();
                queue_here.stage_copy(&to, &data)?;
                queue_here.flush(false)?;
                if timed {
                    posts.push(start.elapsed().as_secs_f64() * 1e6);
                }
                wait(&cq, &mut queue_here, &ended)?;
                if !timed {
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            show("post", reading, posts);
            show("round trip", reading, times);
        }
        ended.store(true, Ordering::Relaxed);
        server.join().map_err(|_| "the other side panicked")??;
        Ok(())
    })?;
    println!("reading the clock {reading:.2}");
    Ok(())
}
