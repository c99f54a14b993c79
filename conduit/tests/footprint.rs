//! Memory of one rank in a job of 10,000: what the system has given it, and what it has only been promised.
//!
//! A file with one test, since the process's own counters are read.

use conduit::{Conduit, Exchange, ExchangeError};
use portals_shim::fabric;

const RANKS: u32 = 10_000;
const MIB: usize = 1 << 20;

/// A rank whose others are not there.
#[derive(Debug)]
struct Alone;

impl Exchange for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        RANKS
    }

    fn fence(&self) -> Result<(), ExchangeError> {
        Ok(())
    }

    fn leave(&self) {}

    fn end(&self, code: i32) -> ! {
        std::process::exit(code)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        eprintln!("{message}");
        std::process::exit(code)
    }
}

/// Bytes mapped and bytes present, of this process.
fn memory() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages = text.split(' ').map(|n| n.parse::<usize>().unwrap() * 4096);
    (pages.next().unwrap(), pages.next().unwrap())
}

#[test]
fn a_rank_of_ten_thousand_is_small() {
    let mut opened = fabric::in_process(RANKS);
    let first = opened.swap_remove(0);
    let before = memory();
    let conduit = Conduit::with(Box::new(Alone), first).unwrap();
    let after = memory();
    let (mapped, present) = (after.0 - before.0, after.1.saturating_sub(before.1));
    println!(
        "a rank of {RANKS}: {:.2} MiB present, {:.2} MiB mapped",
        present as f64 / MIB as f64,
        mapped as f64 / MIB as f64
    );
    // The README's 15 MB and 1 MB more. Message buffers that no message has been in are not present.
    assert!(present <= 16_000_000, "{present} bytes");
    // Nobody is there to leave with.
    std::mem::forget(conduit);
}
