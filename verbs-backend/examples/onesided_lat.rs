//! What one write and one read cost from the post to their completion: the floor of what is above this crate.
//!
//! ```text
//! cargo run --release -p verbs-backend --example onesided_lat -- [DEVICE] [ROUNDS]
//! ```
//!
//! Two queue pairs of this process, connected to each other; the write of 8 bytes is inline. Prints µs without
//! what reading the clock takes.

use std::error::Error;
use std::time::Instant;

use verbs_backend::{
    BufferPool, Completion, Cq, Device, Pd, Qp, QpOptions, SendFlags, SendOp, Window,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Prints durations, µs.
fn show(what: &str, reading: f64, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let (least, median) = (times[0] - reading, times[times.len() / 2] - reading);
    println!("{what:6} min {least:8.2} median {median:8.2}");
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let rounds = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let device = Device::open(name.as_deref())?;
    let pd = Pd::new(&device)?;
    let cq = Cq::new(&device, 64)?;
    let far_cq = Cq::new(&device, 64)?;
    let qp = Qp::new(&pd, &QpOptions::new(&cq))?;
    let far = Qp::new(&pd, &QpOptions::new(&far_cq))?;
    let pool = BufferPool::new(&pd, 2, 4096)?;
    let window = Window::new(&pd, 4096)?;
    let remote = window.remote(0).ok_or("an empty window")?;
    qp.init()?;
    far.init()?;
    qp.connect(&far.endpoint())?;
    far.connect(&qp.endpoint())?;
    let reading = (0..256)
        .map(|_| Instant::now().elapsed().as_secs_f64() * 1e6)
        .fold(f64::MAX, f64::min);
    let mut slots = [Completion::EMPTY; 8];
    for _ in 0..3 {
        // The post alone and the whole are timed in turn, since reading the clock takes time.
        let mut posts = Vec::with_capacity(rounds);
        let mut times = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let timed = round % 2 == 0;
            let start = Instant::now();
            qp.post_inline(0, SendOp::Write(remote), &[7; 8], SendFlags::SIGNALLED)?;
            if timed {
                posts.push(start.elapsed().as_secs_f64() * 1e6);
            }
            loop {
                let done = cq.poll(&mut slots)?;
                if let [one, ..] = done {
                    one.result()?;
                    break;
                }
            }
            if !timed {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        show("post", reading, posts);
        show("write", reading, times);
        let mut times = Vec::with_capacity(rounds);
        let mut posts = Vec::with_capacity(rounds);
        let mut buffer = pool.take().ok_or("no buffer")?;
        for round in 0..rounds {
            let timed = round % 2 == 0;
            let start = Instant::now();
            qp.post_owned(0, SendOp::Read(remote), buffer, 0..8, SendFlags::empty())?;
            if timed {
                posts.push(start.elapsed().as_secs_f64() * 1e6);
            }
            buffer = loop {
                let done = cq.poll(&mut slots)?;
                if let [one, ..] = done {
                    one.result()?;
                    break qp.take(one).ok_or("no buffer")?.0;
                }
            };
            if !timed {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        show("post", reading, posts);
        show("read", reading, times);
    }
    println!("reading the clock {reading:.2}");
    Ok(())
}
