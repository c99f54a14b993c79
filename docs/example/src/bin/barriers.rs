//! Exercise 4: a barrier through node 0, beside that of the library.

use conduit::{BarrierName, Conduit, HandlerEntry};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

const ROUNDS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    let (here, go) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let count = |cell: &Rc<Cell<u32>>| {
        let cell = cell.clone();
        HandlerEntry::new(0, move |_, _, _| cell.set(cell.get() + 1))
    };
    let handlers = conduit.attach(vec![count(&here), count(&go)], 4096)?;
    let (me, nodes) = (conduit.mynode(), conduit.nodes());

    // Everybody tells node 0 that it is here, and goes on when node 0 says so.
    let central = |round: u32| -> Result<(), Box<dyn Error>> {
        conduit.am_request_short(0, handlers[0], &[])?;
        if me == 0 {
            conduit.block_until(|| here.get() == nodes * round);
            for node in 0..nodes {
                conduit.am_request_short(node, handlers[1], &[])?;
            }
        }
        conduit.block_until(|| go.get() == round);
        Ok(())
    };

    conduit.barrier(BarrierName::Anonymous)?;
    let start = conduit.now();
    for _ in 0..ROUNDS {
        conduit.barrier(BarrierName::Anonymous)?;
    }
    let between = conduit.now();
    for round in 1..=ROUNDS {
        central(round)?;
    }
    if me == 0 {
        let each = |took: u64| took / u64::from(ROUNDS);
        println!(
            "{nodes:2} nodes: library {:6} ns, through node 0 {:6} ns",
            each(between - start),
            each(conduit.now() - between),
        );
    }
    conduit.finish();
    Ok(())
}
