//! Exercise 5: a mebibyte over a network that damages packets.

use conduit::{BarrierName, Conduit};
use std::error::Error;

const BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), BYTES)?;
    let data = vec![b'p'; BYTES];
    if conduit.mynode() == 0 {
        let start = conduit.now();
        conduit.put(1, conduit.segment(1).addr, &data)?;
        println!("{} ns", conduit.now() - start);
    }
    conduit.barrier(BarrierName::Anonymous)?;
    if conduit.mynode() == 1 {
        let mut came = vec![0; BYTES];
        conduit
            .local_segment()
            .ok_or("no segment")?
            .read(0, &mut came)?;
        assert!(came == data, "bytes are wrong");
        println!("all bytes are right");
    }
    conduit.finish();
    Ok(())
}
