//! Messages between processes of one node: the kernel matches and copies, the chip has no part.
//!
//! A message is handed over (`local_handoff`, once for each message), matched like any other, and
//! its bytes are copied by the processor, from one process's memory to the other's (`local_map` to
//! reach both, `memcpy_rate`); up to 16 bytes by way of the kernel. Acks and replies take the same way back.

use super::process::Process;
use super::ssnal::Ssnal;
use nic_model::HostParams;
use portals_core::{Header, Incoming, NiFail, OpId, Segment, Transmit};

/// Data that the kernel takes at once, bytes.
const INLINE: u64 = 16;

/// The bytes of a message between processes of one node.
#[derive(Debug)]
pub(super) enum Data {
    /// In the sender's memory still. The operation ends when they have been copied.
    At(Vec<Segment>, End),
    /// In the kernel.
    Held(Vec<u8>),
}

/// What the copy ends at the sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Nothing,
    Send(OpId),
    Reply(OpId),
}

/// A message between processes of one node.
#[derive(Debug)]
pub(super) struct Local {
    /// Index of the sender.
    pub(super) from: usize,
    pub(super) header: Header,
    pub(super) data: Data,
}

/// Takes a message of process `from`; `None` where its data cannot be read: that has ended it. What would ride in a header
/// packet is copied at once, as on the network, so that its memory may be used again.
pub(super) fn accept(
    processes: &mut [Process],
    driver: &mut Ssnal,
    costs: &HostParams,
    from: usize,
    tx: &Transmit,
) -> Option<Local> {
    driver.spend(costs.header_build);
    let mut data = Data::At(tx.payload.to_vec(), tx.op.map_or(End::Nothing, End::Send));
    let length: u64 = tx.payload.iter().map(|s| s.len).sum();
    if length <= INLINE {
        let Some(held) = driver.gather(from, &tx.payload) else {
            end(processes, driver, costs, from, &data, NiFail::SEGV);
            driver.will_not_be_answered(processes, from, &tx.header, NiFail::SEGV);
            return None;
        };
        end(processes, driver, costs, from, &data, NiFail::OK);
        data = Data::Held(held);
    }
    Some(Local {
        from,
        header: tx.header,
        data,
    })
}

/// Delivers one message; returns what it causes.
pub(super) fn deliver(
    processes: &mut [Process],
    driver: &mut Ssnal,
    costs: &HostParams,
    message: Local,
) -> Option<Local> {
    let Local { from, header, data } = message;
    let id = |p: &Process| p.ni.config().id;
    let to = processes.iter().position(|p| id(p) == header.target);
    driver.spend(costs.match_fixed);
    let incoming = to.map(|to| (to, processes[to].ni.handle_header(&header)));
    let Some((to, incoming)) = incoming else {
        // The process is not there. On the network too a sender does not learn of that.
        end(processes, driver, costs, from, &data, NiFail::OK);
        return None;
    };
    let bytes = |driver: &mut Ssnal| match &data {
        Data::Held(bytes) => Some(bytes.clone()),
        Data::At(segments, _) => driver.memory.gather(from, segments),
    };
    // Of the process whose memory it is.
    let accessed = |good: bool| if good { NiFail::OK } else { NiFail::SEGV };
    match incoming {
        Incoming::Acked => {
            driver.spend(costs.event_post);
            None
        }
        Incoming::Dropped(_) => {
            end(processes, driver, costs, from, &data, NiFail::OK);
            // The kernel knows who has ended here.
            if driver.has_left(to) {
                driver.will_not_be_answered(processes, from, &header, NiFail::FAIL);
            }
            None
        }
        Incoming::Deposit(d) => {
            driver.searched(d.searched);
            let keep = d.length as usize;
            if keep > 0 {
                driver.spend(costs.local_map);
            }
            let whole = bytes(driver).filter(|b| b.len() >= keep);
            let sent = accessed(whole.is_some());
            let stored = match whole {
                Some(b) => accessed(driver.scatter(to, &d.segments, &b[..keep])),
                None => NiFail::FAIL,
            };
            end(processes, driver, costs, from, &data, sent);
            driver.spend(costs.event_post);
            let ack = processes[to].ni.deposit_end(d.op, stored);
            if stored != NiFail::OK {
                driver.not_stored(processes, from, &header, sent);
            }
            let ack = ack?;
            Some(Local {
                from: to,
                header: ack,
                data: Data::Held(Vec::new()),
            })
        }
        Incoming::Reply(reply) => {
            driver.searched(reply.searched);
            Some(Local {
                from: to,
                header: reply.header,
                data: Data::At(reply.segments.to_vec(), End::Reply(reply.op)),
            })
        }
        Incoming::Swap(swap) => {
            driver.searched(swap.searched);
            driver.spend(costs.local_map);
            let keep = swap.length as usize;
            let new = bytes(driver).filter(|b| b.len() >= keep);
            let sent = accessed(new.is_some());
            end(processes, driver, costs, from, &data, sent);
            let old = new.as_ref().and_then(|new| {
                let old = driver.gather(to, &swap.segments)?;
                let stored = driver.scatter(to, &swap.segments, &new[..keep]);
                stored.then_some(old)
            });
            let fail = match new {
                Some(_) => accessed(old.is_some()),
                None => NiFail::FAIL,
            };
            driver.spend(costs.event_post);
            processes[to].ni.swap_end(swap.op, fail);
            let Some(old) = old else {
                driver.not_stored(processes, from, &header, sent);
                return None;
            };
            Some(Local {
                from: to,
                header: swap.header,
                data: Data::Held(old),
            })
        }
    }
}

/// Ends what the sender of `data` waits for.
fn end(
    processes: &mut [Process],
    driver: &mut Ssnal,
    costs: &HostParams,
    from: usize,
    data: &Data,
    fail: NiFail,
) {
    let Data::At(_, end) = data else { return };
    match *end {
        End::Nothing => return,
        End::Send(op) => processes[from].ni.send_end(op, fail),
        End::Reply(op) => processes[from].ni.reply_end(op, fail),
    }
    driver.spend(costs.event_post);
}
