//! Windows of operations that are under way together.

use portals_shim::{AckRequest, EventKind, MdOptions};

use super::endpoint::Endpoint;
use crate::bench::error::BenchError;
use crate::bench::samples::{Measured, Samples, WARM_UP};

/// Operations of one window: about 1 MiB of payload, at least 4 and at most 64 operations.
fn window(bytes: u64) -> u64 {
    const PAYLOAD: u64 = 1 << 20;
    PAYLOAD.checked_div(bytes).unwrap_or(64).clamp(4, 64)
}

/// Puts, each window until the acks of all of them.
pub(in crate::bench) fn put(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let operations = window(bytes);
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, None)?;
    let source = end.source(len, Some(end.own()))?;
    end.barrier()?;
    let mut samples = Samples::new();
    if end.rank() == 0 {
        for i in 0..WARM_UP + iters {
            let start = end.now();
            for _ in 0..operations {
                end.put(source, AckRequest::Ack, 1)?;
            }
            for _ in 0..operations {
                end.wait(end.own(), EventKind::Ack)?;
            }
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
        operations,
        bytes,
        found: None,
    })
}

/// Puts of ranks 0 and 1 to each other, each window until the acks of the own puts and the arrivals of the
/// other's. The payload of both directions counts. An empty put of rank 0 lets rank 1 begin, so that
/// all payload moves while rank 0 counts.
pub(in crate::bench) fn both(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let operations = window(bytes);
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, Some(end.arrivals()))?;
    let source = end.source(len, Some(end.own()))?;
    let go = end.source(0, None)?;
    end.barrier()?;
    let mut samples = Samples::new();
    if end.rank() < 2 {
        let other = 1 - end.rank();
        for i in 0..WARM_UP + iters {
            let start = end.now();
            match end.rank() {
                0 => end.put(go, AckRequest::NoAck, 1)?,
                _ => end.wait(end.arrivals(), EventKind::PutEnd).map(drop)?,
            }
            for _ in 0..operations {
                end.put(source, AckRequest::Ack, other)?;
            }
            for _ in 0..operations {
                end.wait(end.arrivals(), EventKind::PutEnd)?;
            }
            for _ in 0..operations {
                end.wait(end.own(), EventKind::Ack)?;
            }
            if i >= WARM_UP && end.rank() == 0 {
                samples.add(end.since(start));
            }
        }
    }
    end.barrier()?;
    if end.rank() < 2 {
        end.check_received(1 - end.rank(), len)?;
    }
    end.unbind(go)?;
    end.unbind(source)?;
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: 2 * operations,
        bytes,
        found: None,
    })
}

/// Gets, each window until the replies of all of them.
pub(in crate::bench) fn get(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let operations = window(bytes);
    let exposed = end.expose(MdOptions::OP_GET, len, 0, None)?;
    let destination = end.destination(len)?;
    end.barrier()?;
    let mut samples = Samples::new();
    if end.rank() == 0 {
        for i in 0..WARM_UP + iters {
            let start = end.now();
            for _ in 0..operations {
                end.get(destination, 1)?;
            }
            for _ in 0..operations {
                end.wait(end.own(), EventKind::ReplyEnd)?;
            }
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
        operations,
        bytes,
        found: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_about_a_megabyte() {
        assert_eq!(
            [0, 8, 65_536, 1 << 20, 1 << 30].map(window),
            [64, 64, 16, 4, 4]
        );
    }
}
