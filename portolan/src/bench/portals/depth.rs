//! What a long match list costs.

use portals_shim::{AckRequest, EventKind, MdOptions};

use super::endpoint::Endpoint;
use crate::bench::error::BenchError;
use crate::bench::samples::{Measured, Samples, WARM_UP};

/// Bytes of the puts.
const BYTES: u64 = 8;

/// A put of 8 bytes until its ack, when `decoys` entries before the right one do not match. The target
/// has an event queue, so that the message is matched at the target on every fabric.
pub(in crate::bench) fn put_behind(
    end: &mut Endpoint,
    decoys: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(BYTES)?;
    let decoys_here = if end.rank() == 1 { decoys } else { 0 };
    let exposed = end.expose(MdOptions::OP_PUT, len, decoys_here, Some(end.arrivals()))?;
    let source = end.source(len, Some(end.own()))?;
    end.barrier()?;
    let mut samples = Samples::new();
    for i in 0..WARM_UP + iters {
        match end.rank() {
            0 => {
                let start = end.now();
                end.put(source, AckRequest::Ack, 1)?;
                end.wait(end.own(), EventKind::Ack)?;
                if i >= WARM_UP {
                    samples.add(end.since(start));
                }
            }
            1 => {
                end.wait(end.arrivals(), EventKind::PutEnd)?;
            }
            _ => break,
        }
    }
    end.barrier()?;
    end.unbind(source)?;
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: 1,
        bytes: BYTES,
        found: None,
    })
}
