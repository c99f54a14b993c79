// UNSAFETY: work requests name memory by address.
//! Work requests for the send queue: one at a time, or as a chain that one call posts.

#![expect(unsafe_code, reason = "raw ranges of memory in work requests")]

use std::ops::Range;

use verbs_sys as sys;

use crate::buffer::{Buffer, Remote};
use crate::inflight::is_ticket;

/// A piece of registered memory of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Segment(pub(crate) sys::ibv_sge);

impl Segment {
    /// `length` bytes from `address`, in the region with the key `lkey`; `None` from 4 GiB on.
    #[inline]
    pub fn new(address: usize, length: usize, lkey: u32) -> Option<Self> {
        Some(Self(sys::ibv_sge {
            addr: u64::try_from(address).ok()?,
            length: u32::try_from(length).ok()?,
            lkey,
        }))
    }

    /// Bytes of the segment.
    pub fn length(&self) -> u32 {
        self.0.length
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// A message for the peer's next receive.
    Send,
    /// The same, with a value that the receive's completion carries.
    SendImmediate(u32),
    /// Writes to the peer's memory; the peer's program sees nothing of it.
    Write(Remote),
    /// The same, and consumes a receive whose completion carries the value.
    WriteImmediate(Remote, u32),
    /// Reads from the peer's memory.
    Read(Remote),
}

bitflags::bitflags! {
    /// How a request is done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Makes a completion on success; failures always make one. A request without it leaves the queue only when a
        /// later one with it has completed, so a queue must not be filled with such requests alone.
        const SIGNALLED = sys::IBV_SEND_SIGNALED;
        /// Wakes a peer that waits for solicited completions.
        const SOLICITED = sys::IBV_SEND_SOLICITED;
        /// Starts after all earlier RDMA reads are done.
        const FENCE = sys::IBV_SEND_FENCE;
        /// Copies the data at the post. Set by the calls that take a slice.
        const INLINE = sys::IBV_SEND_INLINE;
    }
}

/// A request could not be added to a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The id has the bit that marks requests which own their buffer.
    #[error("request id {0:#x} has bit 63 set, which is reserved")]
    ReservedId(u64),
    /// A range is outside its buffer, or a message is 4 GiB or longer.
    #[error("bytes {start}..{end} are outside the buffer")]
    Range {
        /// Start of the range.
        start: usize,
        /// End of the range.
        end: usize,
    },
}

/// A buffer whose request was not accepted, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected<E: std::error::Error + 'static> {
    /// Why.
    #[source]
    pub error: E,
    /// The buffer, the caller's again.
    pub buffer: Buffer,
}

/// How a request of a batch finds its segments when the chain is linked.
#[derive(Debug)]
struct Parts {
    segments: Range<usize>,
    /// Where the data lies in the batch's own bytes; the address of the single segment follows from it.
    copied: Option<usize>,
    /// The buffer that the request owns, and the caller's tag.
    owned: Option<(Buffer, u64)>,
}

/// A chain of requests, to be posted in one call by [`Qp::post`](crate::qp::Qp::post). Its memory is kept from
/// one use to the next.
#[derive(Default)]
pub struct SendBatch {
    requests: Vec<sys::ibv_send_wr>,
    parts: Vec<Parts>,
    segments: Vec<sys::ibv_sge>,
    bytes: Vec<u8>,
}

// SAFETY: the pointers in the requests are set by `link`, from memory that the batch owns, and used only by the post
// that follows it; moving the batch to another thread moves all of that.
unsafe impl Send for SendBatch {}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl SendBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests in the batch.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Is the batch without requests?
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes all requests out; buffers they own return to their pools.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.parts.clear();
        self.segments.clear();
        self.bytes.clear();
    }

    /// Takes out the buffers that its requests own, with their tags, in order; what is left is fit only to be cleared.
    pub fn take_owned(&mut self) -> impl Iterator<Item = (Buffer, u64)> {
        self.parts.iter_mut().filter_map(|part| part.owned.take())
    }

    /// Adds a send or write of `data`, which is copied here and again by the post, so that it needs no
    /// registered memory. The queue pair's capabilities say how long it may be.
    ///
    /// # Errors
    ///
    /// The id is reserved, or the data is 4 GiB or longer.
    pub fn push_inline(
        &mut self,
        id: u64,
        op: SendOp,
        data: &[u8],
        flags: SendFlags,
    ) -> Result<(), PushError> {
        let segment = Segment::new(0, data.len(), 0).ok_or(PushError::Range {
            start: 0,
            end: data.len(),
        })?;
        check_id(id)?;
        let copied = Some(self.bytes.len());
        self.bytes.extend_from_slice(data);
        self.push(id, op, &[segment], flags | SendFlags::INLINE, copied, None);
        Ok(())
    }

    /// Adds a request on the bytes `range` of `buffer`, which the request owns until its completion (always asked
    /// for) has been given to [`Qp::take`](crate::qp::Qp::take); `tag` comes back with it.
    ///
    /// # Errors
    ///
    /// The range is outside the buffer, which comes back.
    pub fn push_owned(
        &mut self,
        tag: u64,
        op: SendOp,
        buffer: Buffer,
        range: Range<usize>,
        flags: SendFlags,
    ) -> Result<(), Rejected<PushError>> {
        let Some(segment) = buffer.segment(range.clone()) else {
            let error = PushError::Range {
                start: range.start,
                end: range.end,
            };
            return Err(Rejected { error, buffer });
        };
        let flags = (flags | SendFlags::SIGNALLED) & !SendFlags::INLINE;
        self.push(0, op, &[segment], flags, None, Some((buffer, tag)));
        Ok(())
    }

    /// Adds a request on any registered memory.
    ///
    /// # Errors
    ///
    /// The id is reserved.
    ///
    /// # Safety
    ///
    /// From the post until the completion of this request, or of a later one of the same queue, has been polled
    /// (until the post returns, with [`SendFlags::INLINE`]), or until the queue pair is gone: the memory that the
    /// segments name stays allocated, nothing writes it, and if `op` is a read nothing reads it.
    pub unsafe fn push_raw(
        &mut self,
        id: u64,
        op: SendOp,
        segments: &[Segment],
        flags: SendFlags,
    ) -> Result<(), PushError> {
        check_id(id)?;
        self.push(id, op, segments, flags, None, None);
        Ok(())
    }

    fn push(
        &mut self,
        id: u64,
        op: SendOp,
        segments: &[Segment],
        flags: SendFlags,
        copied: Option<usize>,
        owned: Option<(Buffer, u64)>,
    ) {
        let first = self.segments.len();
        self.segments
            .extend(segments.iter().map(|segment| segment.0));
        self.requests.push(request(id, op, flags));
        self.parts.push(Parts {
            segments: first..self.segments.len(),
            copied,
            owned,
        });
    }

    /// Gives each request that owns its buffer an id by `keep`, which takes the buffer. Where `keep` refuses,
    /// the buffer stays, and that request and those after it are not to be posted: the result is how many are.
    pub(crate) fn hand_over(
        &mut self,
        mut keep: impl FnMut(Buffer, u64) -> Result<u64, Buffer>,
    ) -> usize {
        for (index, (part, request)) in self.parts.iter_mut().zip(&mut self.requests).enumerate() {
            if let Some((buffer, tag)) = part.owned.take() {
                match keep(buffer, tag) {
                    Ok(ticket) => request.wr_id = ticket,
                    Err(buffer) => {
                        part.owned = Some((buffer, tag));
                        return index;
                    }
                }
            }
        }
        self.requests.len()
    }

    /// Takes back, by `take`, the buffers that [`hand_over`](Self::hand_over) gave for the requests from `first`.
    pub(crate) fn take_back(
        &mut self,
        first: usize,
        mut take: impl FnMut(u64) -> Option<(Buffer, u64)>,
    ) {
        for (part, request) in self.parts.iter_mut().zip(&self.requests).skip(first) {
            if is_ticket(request.wr_id) && part.owned.is_none() {
                part.owned = take(request.wr_id);
            }
        }
    }

    /// Forgets the first `count` requests, which have been posted.
    pub(crate) fn posted(&mut self, count: usize) {
        if count >= self.requests.len() {
            self.clear();
        } else {
            self.requests.drain(..count);
            self.parts.drain(..count);
        }
    }

    /// Sets the pointers of the chain of the first `count` requests, of which there must be one at least, and
    /// gives its head. The pointers are good until the batch changes.
    pub(crate) fn link(&mut self, count: usize) -> *mut sys::ibv_send_wr {
        for part in &self.parts {
            if let Some(offset) = part.copied {
                let data = self.bytes.as_ptr().wrapping_add(offset);
                for segment in &mut self.segments[part.segments.clone()] {
                    segment.addr = address(data);
                }
            }
        }
        let segments = self.segments.as_mut_ptr();
        let head = self.requests.as_mut_ptr();
        let mut next = std::ptr::null_mut();
        for (index, part) in self.parts.iter().enumerate().take(count).rev() {
            let place = head.wrapping_add(index);
            // SAFETY: the index is below the number of requests, since each part belongs to one, and the
            // vector is borrowed mutably.
            let request = unsafe { &mut *place };
            request.next = next;
            request.sg_list = segments.wrapping_add(part.segments.start);
            request.num_sge = i32::try_from(part.segments.len()).unwrap_or(i32::MAX);
            next = place;
        }
        head
    }
}

/// The number that the adapter knows `data` by.
pub(crate) fn address(data: *const u8) -> u64 {
    // Addresses have at most 64 bits on every platform of libibverbs.
    u64::try_from(data.expose_provenance()).unwrap_or(0)
}

#[inline]
pub(crate) fn check_id(id: u64) -> Result<(), PushError> {
    if is_ticket(id) {
        Err(PushError::ReservedId(id))
    } else {
        Ok(())
    }
}

/// A request without segments.
#[inline]
pub(crate) fn request(id: u64, op: SendOp, flags: SendFlags) -> sys::ibv_send_wr {
    let here = Remote {
        address: 0,
        rkey: 0,
    };
    let (opcode, remote, immediate) = match op {
        SendOp::Send => (sys::IBV_WR_SEND, here, 0),
        SendOp::SendImmediate(value) => (sys::IBV_WR_SEND_WITH_IMM, here, value),
        SendOp::Write(remote) => (sys::IBV_WR_RDMA_WRITE, remote, 0),
        SendOp::WriteImmediate(remote, value) => (sys::IBV_WR_RDMA_WRITE_WITH_IMM, remote, value),
        SendOp::Read(remote) => (sys::IBV_WR_RDMA_READ, remote, 0),
    };
    sys::ibv_send_wr {
        wr_id: id,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode,
        send_flags: flags.bits(),
        imm_data: immediate.to_be(),
        wr: target(remote),
        xrc_remote_srqn: 0,
        bind_or_tso: [0; 6],
    }
}

/// The union's unused part is zero, so that no byte of a request is undefined.
#[inline]
fn target(remote: Remote) -> sys::ibv_send_wr_target {
    let mut target = sys::ibv_send_wr_target {
        atomic: sys::ibv_atomic_wr {
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            rkey: 0,
        },
    };
    target.rdma = sys::ibv_rdma_wr {
        remote_addr: remote.address,
        rkey: remote.rkey,
    };
    target
}

#[cfg(test)]
mod tests;
