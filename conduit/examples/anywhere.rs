//! Random updates and puts between plain vectors of two or more ranks, in a job without segments.
//!
//! ```text
//! anywhere update LOG2 N       a table of 2^LOG2 words on each rank; N updates of the next rank's, by get, exclusive or
//!                              and put, twice; words that are not as before are errors
//! anywhere put MIB N SETS…     N puts of 8 bytes to random pages of each working set (MiB) of an area of MIB
//! anywhere segment MIB N SETS… the same puts into a segment that is pinned as a whole
//! ```
//!
//! Run it by `portolan run -n 2 --fabric … -- anywhere …`. Rank 0 prints a line for each result: nanoseconds of the
//! fabric's clock for each put, the part of them that found their unit held, and what is pinned.
// UNSAFETY: attaches without a segment; what is named lives to the end of the process.
#![expect(
    unsafe_code,
    reason = "`attach_everything` and the calls that name memory by its address are unsafe"
)]

use conduit::{BarrierName, Conduit, HandlerEntry};
use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;

type Failed = Box<dyn std::error::Error>;

/// Random numbers, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Where the memory of every rank is; that of the own is at `addr`.
fn attach(conduit: &Conduit, addr: u64) -> Result<Vec<u64>, Failed> {
    let all = Rc::new(RefCell::new(vec![0u64; conduit.nodes() as usize]));
    let seen = all.clone();
    let tell = HandlerEntry::new(0, move |token, _, args| {
        if let [low, high] = args {
            let addr = u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32;
            seen.borrow_mut()[token.source() as usize] = addr;
        }
    });
    // SAFETY: the memory named is leaked, so it stays, and it is read and written here between barriers.
    let tell = unsafe { conduit.attach_everything(vec![tell]) }?[0];
    for node in 0..conduit.nodes() {
        let halves = [addr as u32, (addr >> 32) as u32].map(u32::cast_signed);
        conduit.am_request_short(node, tell, &halves)?;
    }
    conduit.block_until(|| all.borrow().iter().all(|a| *a != 0));
    let all = all.borrow().clone();
    Ok(all)
}

fn update(conduit: &Conduit, log2: u32, updates: u64) -> Result<u64, Failed> {
    let words = 1u64 << log2;
    let table: &'static mut [u64] = (0..words).collect::<Vec<_>>().leak();
    let base = table.as_mut_ptr();
    let addrs = attach(conduit, base.expose_provenance() as u64)?;
    let next = (conduit.mynode() + 1) % conduit.nodes();
    let start = conduit.now();
    for _ in 0..2 {
        conduit.barrier(BarrierName::Anonymous)?;
        let mut numbers = Numbers(u64::from(next));
        for _ in 0..updates {
            let at = addrs[next as usize] + 8 * numbers.below(words);
            let mut word = [0; 8];
            conduit.get(&mut word, next, at)?;
            let value = u64::from_le_bytes(word) ^ numbers.below(u64::MAX);
            conduit.put(next, at, &value.to_le_bytes())?;
        }
        conduit.barrier(BarrierName::Anonymous)?;
    }
    let nanos = conduit.now() - start;
    let mut errors = 0;
    for i in 0..words {
        // SAFETY: within the table; nobody writes it after the barrier.
        let word = unsafe { base.wrapping_add(i as usize).read_volatile() };
        errors += u64::from(word != i);
    }
    let s = conduit.firehose_stats().unwrap_or_default();
    println!(
        "rank {} updates {updates} errors {errors} ns/update {} hits {} misses {} evictions {} pinned {} of {} copies {}",
        conduit.mynode(),
        nanos / (2 * updates).max(1),
        s.remote.hits,
        s.remote.misses,
        s.remote.evictions,
        s.pinned,
        s.limits.0 + s.limits.2,
        s.copies,
    );
    Ok(errors)
}

fn puts(conduit: &Conduit, addr: u64, count: u64, sets: &[u64]) -> Result<(), Failed> {
    const PAGE: u64 = 4096;
    for set in sets {
        conduit.barrier(BarrierName::Anonymous)?;
        if conduit.mynode() == 0 {
            let mut numbers = Numbers(*set);
            let pages = (set << 20) / PAGE;
            // Once over all, and then what counts.
            for page in 0..pages.min(4 * count) {
                conduit.put(1, addr + page * PAGE, &page.to_le_bytes())?;
            }
            let before = conduit.firehose_stats().unwrap_or_default().remote;
            let start = conduit.now();
            for i in 0..count {
                let at = addr + numbers.below(pages) * PAGE;
                conduit.put(1, at, &i.to_le_bytes())?;
            }
            let nanos = conduit.now() - start;
            let s = conduit.firehose_stats().unwrap_or_default();
            let (hits, misses) = (s.remote.hits - before.hits, s.remote.misses - before.misses);
            println!(
                "set {set} MiB: {} ns/put, hits {hits}, misses {misses}, held at most {} MiB",
                nanos / count,
                s.limits.1 >> 20
            );
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    Ok(())
}

fn run(conduit: &Conduit, args: &[String]) -> Result<bool, Failed> {
    let number = |at: usize| -> Result<u64, Failed> {
        Ok(args.get(at).ok_or("too few arguments")?.parse()?)
    };
    match args.first().map(String::as_str) {
        Some("update") => Ok(update(conduit, number(1)? as u32, number(2)?)? == 0),
        Some(kind @ ("put" | "segment")) => {
            let bytes = (number(1)? as usize) << 20;
            let sets: Result<Vec<u64>, _> = args[3..].iter().map(|s| s.parse()).collect();
            let addr = if kind == "segment" {
                conduit.attach(vec![], bytes)?;
                conduit.segment(1).addr
            } else {
                let memory: &'static mut [u8] = vec![0u8; bytes].leak();
                attach(conduit, memory.as_mut_ptr().expose_provenance() as u64)?[1]
            };
            puts(conduit, addr, number(2)?, &sets?)?;
            Ok(true)
        }
        _ => Err("anywhere update LOG2 N | put MIB N SETS… | segment MIB N SETS…".into()),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let conduit = match Conduit::init() {
        Ok(conduit) => conduit,
        Err(error) => {
            conduit::say(format_args!("anywhere: {error}"));
            return ExitCode::from(3);
        }
    };
    match run(&conduit, &args) {
        Ok(true) => {
            conduit.finish();
            ExitCode::SUCCESS
        }
        Ok(false) => conduit.exit(4),
        Err(error) => {
            conduit::say(format_args!("anywhere: {error}"));
            conduit.exit(1)
        }
    }
}
