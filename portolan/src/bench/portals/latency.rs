//! Times of one blocking operation.

use portals_shim::{AckRequest, EventKind, MdOptions};

use super::endpoint::Endpoint;
use crate::bench::error::BenchError;
use crate::bench::samples::{Measured, Samples, WARM_UP};

/// Half of the time that a put there and a put back take; each side learns of an arrival by its event.
/// What a library above Portals computes is in it.
pub(in crate::bench) fn pingpong(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, Some(end.arrivals()))?;
    let source = end.source(len, None)?;
    end.barrier()?;
    let mut samples = Samples::new();
    // One round more than counts: the barrier's message comes on the heels of the last one.
    let counted = WARM_UP..WARM_UP + iters;
    for i in 0..=WARM_UP + iters {
        match end.rank() {
            0 => {
                let start = end.now();
                end.before_send()?;
                end.put(source, AckRequest::NoAck, 1)?;
                end.wait(end.arrivals(), EventKind::PutEnd)?;
                end.after_receive()?;
                if counted.contains(&i) {
                    samples.add(end.since(start) / 2);
                }
            }
            1 => {
                end.wait(end.arrivals(), EventKind::PutEnd)?;
                end.after_receive()?;
                end.before_send()?;
                end.put(source, AckRequest::NoAck, 0)?;
            }
            _ => break,
        }
    }
    end.barrier()?;
    if end.rank() < 2 {
        end.check_received(1 - end.rank(), len)?;
    }
    end.unbind(source)?;
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: 1,
        bytes,
        found: None,
    })
}

/// A put from the call to the event of its ack.
pub(in crate::bench) fn put(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, None)?;
    let source = end.source(len, Some(end.own()))?;
    end.barrier()?;
    let mut samples = Samples::new();
    if end.rank() == 0 {
        for i in 0..WARM_UP + iters {
            let start = end.now();
            end.put(source, AckRequest::Ack, 1)?;
            end.wait(end.own(), EventKind::Ack)?;
            if i >= WARM_UP {
                samples.add(end.since(start));
            }
        }
    }
    end.barrier()?;
    if end.rank() == 1 {
        end.check_received(0, len)?;
    }
    end.unbind(source)?;
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: 1,
        bytes,
        found: None,
    })
}

/// A get from the call to the event that its reply is in memory.
pub(in crate::bench) fn get(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let exposed = end.expose(MdOptions::OP_GET, len, 0, None)?;
    let destination = end.destination(len)?;
    end.barrier()?;
    let mut samples = Samples::new();
    if end.rank() == 0 {
        for i in 0..WARM_UP + iters {
            let start = end.now();
            end.get(destination, 1)?;
            end.wait(end.own(), EventKind::ReplyEnd)?;
            if i >= WARM_UP {
                samples.add(end.since(start));
            }
        }
        end.check_received(1, len)?;
    }
    end.barrier()?;
    end.unbind(destination)?;
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: 1,
        bytes,
        found: None,
    })
}
