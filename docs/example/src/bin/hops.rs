//! Exercise 2: how long a put takes from node 0 to each of the others.

use conduit::{BarrierName, Conduit};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), 4096)?;
    if conduit.mynode() == 0 {
        // In the first round the others come to the barrier, and disturb.
        for round in 0..2 {
            for node in 1..conduit.nodes() {
                let start = conduit.now();
                conduit.put(node, conduit.segment(node).addr, &[1; 8])?;
                let took = conduit.now() - start;
                if round == 1 {
                    println!("to node {node} {took:6} ns");
                }
            }
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    conduit.finish();
    Ok(())
}
