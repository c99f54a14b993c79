//! Messages without acks in numbers: as fast as a program takes them, and so many under way together.

use portals_shim::{AckRequest, EventKind, MdHandle, MdOptions};

use super::endpoint::Endpoint;
use crate::bench::error::BenchError;
use crate::bench::samples::{Measured, Samples, WARM_UP};

/// Messages of one round of `message-rate`; as many as in the measurement it stands beside.
const MESSAGES: u64 = 200;
/// Bytes of each put of `puts-in-flight`: more than a transmit engine sends while its host prepares the
/// next put, so that puts collect at the NIC.
pub(in crate::bench) const IN_FLIGHT: u64 = 8192;
/// Puts of one round of `puts-in-flight`, besides two windows of them.
const STEADY: u64 = 256;
/// Most puts that one message of a target gives back.
const CREDIT: u64 = 4;

/// Rank 1 sends, rank 0 takes the messages one by one; counted from the first message to the last that
/// rank 0 has taken. What a library above Portals computes is in it.
///
/// Interrupts may keep the program of rank 0 from a first message until all others wait in its queue, and
/// reading a full queue is no rate of messages. The count therefore begins when a message that comes alone
/// is taken: so long after rank 0 has asked for it.
pub(in crate::bench) fn messages(
    end: &mut Endpoint,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = end.buffers(bytes)?;
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, Some(end.arrivals()))?;
    let source = end.source(len, None)?;
    end.barrier()?;
    let (mut first, mut last) = (u64::MAX, Vec::new());
    for i in 0..WARM_UP + iters {
        match end.rank() {
            0 => {
                first = first.min(take(end, source, 1)?);
                let taken = take(end, source, MESSAGES)?;
                last.extend((i >= WARM_UP).then_some(taken));
            }
            1 => {
                send(end, source, 1)?;
                send(end, source, MESSAGES)?;
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
    let mut samples = Samples::new();
    for taken in last {
        samples.add(taken.saturating_sub(first));
    }
    Ok(Measured {
        samples,
        operations: MESSAGES - 1,
        bytes,
        found: None,
    })
}

/// Asks rank 1 for `count` messages and takes them; nanoseconds until the last is taken.
fn take(end: &mut Endpoint, source: MdHandle, count: u64) -> Result<u64, BenchError> {
    let start = end.now();
    end.put(source, AckRequest::NoAck, 1)?;
    for _ in 0..count {
        end.wait(end.arrivals(), EventKind::PutEnd)?;
        end.after_receive()?;
    }
    Ok(end.since(start))
}

/// Sends rank 0 the `count` messages that it asks for.
fn send(end: &mut Endpoint, source: MdHandle, count: u64) -> Result<(), BenchError> {
    end.wait(end.arrivals(), EventKind::PutEnd)?;
    for _ in 0..count {
        end.before_send()?;
        end.put(source, AckRequest::NoAck, 0)?;
    }
    Ok(())
}

/// Rank 0 puts 8 KiB to each other rank in turn, `depth` of them under way together: a target says how
/// many of them its program has seen, and as many more follow.
pub(in crate::bench) fn in_flight(
    end: &mut Endpoint,
    depth: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let depth = depth.max(1);
    let puts = STEADY + 2 * depth;
    let len = end.buffers(IN_FLIGHT)?;
    let exposed = end.expose(MdOptions::OP_PUT, len, 0, Some(end.arrivals()))?;
    let source = end.source(len, None)?;
    let credit = end.source(0, None)?;
    end.barrier()?;
    let mut samples = Samples::new();
    for i in 0..WARM_UP + iters {
        if end.rank() == 0 {
            let start = end.now();
            flood(end, source, depth, puts)?;
            if i >= WARM_UP {
                samples.add(end.since(start));
            }
        } else {
            give_back(end, credit, depth, puts)?;
        }
    }
    end.barrier()?;
    if end.rank() > 0 {
        end.check_received(0, len)?;
    }
    for md in [source, credit] {
        end.unbind(md)?;
    }
    end.withdraw(exposed)?;
    Ok(Measured {
        samples,
        operations: puts,
        bytes: IN_FLIGHT,
        found: None,
    })
}

fn flood(end: &mut Endpoint, source: MdHandle, depth: u64, puts: u64) -> Result<(), BenchError> {
    let targets = end.peers() as u64 - 1;
    let (mut sent, mut seen) = (0, 0);
    while seen < puts {
        if sent < puts && sent - seen < depth {
            let to = 1 + sent % targets;
            end.put(source, AckRequest::NoAck, to as usize)?;
            sent += 1;
        } else {
            seen += end.wait(end.arrivals(), EventKind::PutEnd)?;
        }
    }
    Ok(())
}

fn give_back(
    end: &mut Endpoint,
    credit: MdHandle,
    depth: u64,
    puts: u64,
) -> Result<(), BenchError> {
    let targets = end.peers() as u64 - 1;
    let own = (puts + targets - end.rank() as u64) / targets;
    // Every target has at least so many of a full window, so that none of them keeps its share back.
    let most = (depth / targets).clamp(1, CREDIT);
    let mut owed = 0;
    for put in 0..own {
        end.wait(end.arrivals(), EventKind::PutEnd)?;
        owed += 1;
        if owed == most || put + 1 == own {
            end.put_with(credit, AckRequest::NoAck, 0, owed)?;
            owed = 0;
        }
    }
    Ok(())
}
