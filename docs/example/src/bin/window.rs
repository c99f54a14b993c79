//! Exercise 3: puts that are under way together.

use conduit::{BarrierName, Conduit};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), 4096)?;
    if conduit.mynode() == 0 {
        let to = conduit.segment(1).addr;
        for window in [1, 2, 4, 8, 16, 32, 64] {
            // The least of ten: at first the other node comes to the barrier, and disturbs.
            let mut least = u64::MAX;
            for _ in 0..10 {
                let start = conduit.now();
                let mut handles = Vec::new();
                for i in 0..window {
                    handles.push(conduit.put_nb(1, to + 8 * i, &[1; 8])?);
                }
                for handle in handles {
                    conduit.wait(handle);
                }
                least = least.min(conduit.now() - start);
            }
            let took = least as f64 / 1000.0;
            println!(
                "{window:2} puts {took:5.1} µs, {:4.1} µs each",
                took / window as f64
            );
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    conduit.finish();
    Ok(())
}
