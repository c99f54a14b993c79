//! Exercise 3: puts that are under way together.

use conduit::{BarrierName, Conduit};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), 4096)?;
    if conduit.mynode() == 0 {
        let to = conduit.segment(1).addr;
        // Meanwhile the other node comes to the barrier, and disturbs.
        for _ in 0..8 {
            conduit.put(1, to, &[1; 4096])?;
        }
        for window in [1, 2, 4, 8, 16, 32, 64] {
            let start = conduit.now();
            let mut handles = Vec::new();
            for i in 0..window {
                handles.push(conduit.put_nb(1, to + 8 * i, &[1; 8])?);
            }
            for handle in handles {
                conduit.wait(handle);
            }
            let took = conduit.now() - start;
            println!("{window:2} puts {took:6} ns, {:6} ns each", took / window);
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    conduit.finish();
    Ok(())
}
