//! Exercise 1: how long a put takes until it is done, by its number of bytes.

use conduit::{BarrierName, Conduit};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), 65536)?;
    if conduit.mynode() == 0 {
        let data = [0; 65536];
        // Meanwhile the other node comes to the barrier, and disturbs.
        conduit.put(1, conduit.segment(1).addr, &data)?;
        for size in [1, 8, 16, 17, 64, 1024, 4096, 65536] {
            let start = conduit.now();
            conduit.put(1, conduit.segment(1).addr, &data[..size])?;
            println!("{size:6} bytes {:6} ns", conduit.now() - start);
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    conduit.finish();
    Ok(())
}
