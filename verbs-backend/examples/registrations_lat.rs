//! What a write costs where each names another registration: what the adapter adds to a put into memory that is pinned in
//! pieces.
//!
//! ```text
//! cargo run --release -p verbs-backend --example registrations_lat -- [DEVICE] [ROWS]
//! ```
//!
//! Inline writes of 8 bytes to random pages of 16 MiB between two queue pairs of this process, which is registered once, and in
//! pieces of 128 KiB; 64 writes of the one kind, then 64 of the other, in turn and to the same pages. Prints µs for a write.

use std::error::Error;
use std::time::Instant;

use verbs_backend::{Completion, Cq, Device, Pd, Qp, QpOptions, Remote, SendFlags, SendOp, Window};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PAGE: u64 = 4096;
const SET: u64 = 16 << 20;
const ROW: usize = 64;

/// Random numbers, the same on every machine.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    *state >> 33
}

/// Registrations of `piece` bytes each that hold [`SET`] together.
fn registered(pd: &Pd, piece: u64) -> Outcome<Vec<Window>> {
    let made = (0..SET / piece).map(|_| Window::new(pd, piece as usize));
    Ok(made.collect::<Result<_, _>>()?)
}

fn page(windows: &[Window], page: u64) -> Option<Remote> {
    let pages = SET / PAGE / windows.len() as u64;
    let window = windows.get((page / pages) as usize)?;
    window.remote((page % pages * PAGE) as usize)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let rows = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let device = Device::open(name.as_deref())?;
    let pd = Pd::new(&device)?;
    let cq = Cq::new(&device, 64)?;
    let far_cq = Cq::new(&device, 64)?;
    let qp = Qp::new(&pd, &QpOptions::new(&cq))?;
    let far = Qp::new(&pd, &QpOptions::new(&far_cq))?;
    qp.init()?;
    far.init()?;
    qp.connect(&far.endpoint())?;
    far.connect(&qp.endpoint())?;
    let ways = [
        ("one registration", registered(&pd, SET)?),
        ("128 registrations", registered(&pd, SET / 128)?),
    ];
    let mut times = [Vec::new(), Vec::new()];
    let mut slots = [Completion::EMPTY; 8];
    let mut state = 1;
    for row in 0..rows {
        let pages: Vec<u64> = (0..ROW).map(|_| next(&mut state) % (SET / PAGE)).collect();
        for ((_, windows), times) in ways.iter().zip(&mut times) {
            let start = Instant::now();
            for at in &pages {
                let to = page(windows, *at).ok_or("no such page")?;
                qp.post_inline(0, SendOp::Write(to), &[7; 8], SendFlags::SIGNALLED)?;
                loop {
                    if let [one, ..] = cq.poll(&mut slots)? {
                        one.result()?;
                        break;
                    }
                }
            }
            // Of the first rows not all pages were there.
            if row >= rows / 4 {
                times.push(start.elapsed().as_secs_f64() * 1e6 / ROW as f64);
            }
        }
    }
    for ((what, _), times) in ways.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[times.len() / 2]);
        println!("{what:17} min {least:6.2} median {median:6.2}");
    }
    Ok(())
}
