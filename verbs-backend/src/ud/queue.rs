// UNSAFETY: calls into libibverbs; work requests name memory and address handles by address.
//! Datagrams at rate: a queue pair that one owner posts to in chains, with one completion for several sends.
//!
//! Sends have places in a ring, in the order of their posts; the adapter is done with them in that order, so that the
//! completion of one says that all before it are done too. Only every [`SIGNAL`]-th asks for one, and the last of a chain
//! that is told to.

#![expect(unsafe_code, reason = "calls into libibverbs with addresses")]

use super::{DatagramAddress, DatagramError, DatagramOptions, Datagrams, Destination, GRH};
use crate::batch::{Segment, SendFlags, SendOp, request};
use crate::buffer::{Buffer, BufferPool};
use crate::completion::Completion;
use crate::cq::Cq;
use crate::pd::Pd;
use std::io;
use std::ops::Range;
use verbs_sys as sys;

/// Sends of which one asks for a completion.
const SIGNAL: u64 = 8;
/// Requests posted by one call.
const CHAIN: usize = 16;
/// Receives given back to the adapter by one call.
const REPOST: usize = 16;
/// Datagrams that can be looked at at a time.
const HAND: u32 = 4;
/// Ids of receives; those of sends are their numbers.
const RECEIVE: u64 = 1 << 62;

/// A datagram that has arrived, in a buffer that the adapter has given up.
#[derive(Debug)]
pub struct Arrival {
    buffer: Buffer,
    range: Range<usize>,
}

impl std::ops::Deref for Arrival {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or(&[])
    }
}

/// A queue pair for datagrams, its send ring and its receives.
pub struct DatagramQueue {
    /// Owns the buffers as well: `sends` of the ring, then those of the receives.
    base: Datagrams,
    sends: usize,
    /// Sends posted or staged since the start, and those that the adapter is done with.
    tail: u64,
    done: u64,
    /// By place in the ring: kept until the adapter is done.
    used: Vec<Option<Destination>>,
    chain: Vec<(sys::ibv_send_wr, sys::ibv_sge)>,
    /// Receives to be posted.
    spare: Vec<usize>,
    /// Buffers that take the place of those in which datagrams have arrived.
    hand: Vec<Buffer>,
    /// Recoveries; receives of an earlier time are not looked at.
    generation: u64,
}

impl std::fmt::Debug for DatagramQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramQueue")
            .field("base", &self.base)
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

// SAFETY: the chain holds addresses of the buffers that `base` owns, and of handles that `used` keeps alive.
unsafe impl Send for DatagramQueue {}

impl DatagramQueue {
    /// Makes a queue pair that sends and receives at once. `cq` must have room for all its sends and receives.
    ///
    /// # Errors
    ///
    /// [`DatagramError`].
    pub fn new(pd: &Pd, cq: &Cq, options: &DatagramOptions) -> Result<Self, DatagramError> {
        let mut base = Datagrams::build(pd, cq, options, 0, 128)
            .or_else(|_| Datagrams::build(pd, cq, options, 0, 0))?;
        let count = options.receives + options.sends;
        let pool = BufferPool::new(pd, count + HAND, GRH + options.size)?;
        let buffers = std::iter::from_fn(|| pool.take());
        base.lent = buffers.take(usize::try_from(count).unwrap_or(0)).collect();
        let hand = std::iter::from_fn(|| pool.take()).collect();
        let sends = usize::try_from(options.sends).unwrap_or(0);
        let spare = (sends..base.lent.len()).collect();
        let mut made = Self {
            base,
            sends,
            tail: 0,
            done: 0,
            used: vec![None; sends],
            chain: Vec::with_capacity(CHAIN),
            spare,
            hand,
            generation: 0,
        };
        made.post_receives(1)?;
        Ok(made)
    }

    /// Number of the queue pair, as completions have it.
    pub fn qpn(&self) -> u32 {
        self.base.qpn()
    }

    /// Where others send to.
    pub fn address(&self) -> DatagramAddress {
        self.base.address()
    }

    /// Makes an address usable.
    ///
    /// # Errors
    ///
    /// [`DatagramError::Unreachable`].
    pub fn resolve(&self, to: &DatagramAddress) -> Result<Destination, DatagramError> {
        self.base.resolve(to)
    }

    /// Bytes that [`DatagramQueue::stage_copy`] takes without a look at the buffer's completion.
    pub fn max_inline(&self) -> usize {
        self.base.max_inline
    }

    /// Sends that the adapter is not known to be done with.
    pub fn outstanding(&self) -> usize {
        usize::try_from(self.tail - self.done).unwrap_or(usize::MAX)
    }

    fn place(&self) -> Option<usize> {
        let free = self.outstanding() < self.sends;
        free.then(|| usize::try_from(self.tail).unwrap_or(0) % self.sends.max(1))
    }

    /// Where the next datagram is to be written, all of its place; `None` while all are with the adapter.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let place = self.place()?;
        let size = self.base.options.size;
        self.base.lent.get_mut(place)?.get_mut(..size)
    }

    /// Adds what was written to [`DatagramQueue::room`] to the chain. Nothing is done without room.
    ///
    /// # Errors
    ///
    /// Those of [`DatagramQueue::flush`].
    pub fn stage(&mut self, to: &Destination, len: usize) -> Result<(), DatagramError> {
        let Some(place) = self.place() else {
            return Ok(());
        };
        let Some(segment) = self.base.lent.get(place).and_then(|b| b.segment(0..len)) else {
            return Err(DatagramError::Length {
                length: len,
                limit: self.base.options.size,
            });
        };
        let Segment(segment) = segment;
        let mut flags = SendFlags::empty();
        self.tail += 1;
        if self.tail.is_multiple_of(SIGNAL) {
            flags |= SendFlags::SIGNALLED;
        }
        if len <= self.base.max_inline {
            flags |= SendFlags::INLINE;
        }
        let mut request = request(self.tail, SendOp::Send, flags);
        request.num_sge = 1;
        request.wr.ud = sys::ibv_ud_wr {
            ah: to.0.raw.as_ptr(),
            remote_qpn: to.0.qpn,
            remote_qkey: to.0.qkey,
        };
        self.used[place] = Some(to.clone());
        self.chain.push((request, segment));
        if self.chain.len() >= CHAIN {
            self.flush(true)?;
        }
        Ok(())
    }

    /// Stages a datagram of a copy of `data`; see [`DatagramQueue::stage`].
    ///
    /// # Errors
    ///
    /// Those of [`DatagramQueue::flush`].
    pub fn stage_copy(&mut self, to: &Destination, data: &[u8]) -> Result<(), DatagramError> {
        let limit = self.base.options.size;
        let Some(room) = self.room() else {
            return Ok(());
        };
        let length = data.len();
        let Some(room) = room.get_mut(..length) else {
            return Err(DatagramError::Length { length, limit });
        };
        room.copy_from_slice(data);
        self.stage(to, length)
    }

    /// Posts the chain; with `signal` its last one has a completion.
    ///
    /// # Errors
    ///
    /// The adapter refused. What it did not take is dropped, as if lost.
    pub fn flush(&mut self, signal: bool) -> Result<(), DatagramError> {
        let count = self.chain.len();
        if count == 0 {
            return Ok(());
        }
        if signal && let Some((last, _)) = self.chain.last_mut() {
            last.send_flags |= SendFlags::SIGNALLED.bits();
        }
        let head = self.chain.as_mut_ptr();
        let mut next = std::ptr::null_mut();
        for at in (0..count).rev() {
            let entry = head.wrapping_add(at);
            // SAFETY: `at` is below the number of entries, and the vector is borrowed mutably.
            let (request, segment) = unsafe { &mut *entry };
            request.next = next;
            request.sg_list = segment;
            next = request;
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: a chain on memory that `base` owns until the queue pair is gone, and handles that `used` keeps.
        let status = unsafe { sys::inline::post_send(self.base.raw.as_ptr(), next, &mut bad) };
        self.chain.clear();
        match status {
            0 => Ok(()),
            error => Err(DatagramError::Send(io::Error::from_raw_os_error(
                error.abs(),
            ))),
        }
    }

    /// Posts receives if at least so many wait for it.
    fn post_receives(&mut self, least: usize) -> Result<(), DatagramError> {
        while self.spare.len() >= least.max(1) {
            let count = self.spare.len().min(REPOST);
            let from = self.spare.len() - count;
            let empty = sys::ibv_recv_wr {
                wr_id: 0,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 1,
            };
            let mut requests = [empty; REPOST];
            let mut segments = [sys::ibv_sge {
                addr: 0,
                length: 0,
                lkey: 0,
            }; REPOST];
            let first = requests.as_mut_ptr();
            let mut next = std::ptr::null_mut();
            for (at, slot) in self.spare[from..].iter().enumerate() {
                let buffer = &self.base.lent[*slot];
                let Some(segment) = buffer.segment(0..buffer.len()) else {
                    continue;
                };
                segments[at] = segment.0;
                let place = first.wrapping_add(at);
                // SAFETY: `at` is below the length of both arrays.
                unsafe {
                    place.write(sys::ibv_recv_wr {
                        wr_id: RECEIVE | (self.generation & 0xffff) << 32 | *slot as u64,
                        next,
                        sg_list: segments.as_mut_ptr().wrapping_add(at),
                        num_sge: 1,
                    });
                }
                next = place;
            }
            let mut bad = std::ptr::null_mut();
            // SAFETY: a chain on buffers that `base` owns until the queue pair is gone and that nobody reads before
            // their completion.
            let status = unsafe { sys::inline::post_recv(self.base.raw.as_ptr(), next, &mut bad) };
            if status != 0 {
                return Err(DatagramError::Receive(io::Error::from_raw_os_error(
                    status.abs(),
                )));
            }
            self.spare.truncate(from);
        }
        Ok(())
    }

    /// Takes a completion of this queue pair: a datagram that has arrived, or `None`.
    ///
    /// # Errors
    ///
    /// The request failed: the queue pair is in the error state until [`DatagramQueue::recover`].
    pub fn handle(&mut self, completion: &Completion) -> Result<Option<Arrival>, DatagramError> {
        let id = completion.id();
        if id & RECEIVE == 0 {
            if id > self.done && id <= self.tail {
                self.done = id;
            }
            return match completion.result() {
                Ok(()) => Ok(None),
                Err(error) => Err(DatagramError::Send(io::Error::other(error))),
            };
        }
        let slot = usize::try_from(id & 0xffff_ffff).unwrap_or(usize::MAX);
        let now = (id & !RECEIVE) >> 32 == self.generation & 0xffff;
        if !now || slot < self.sends || slot >= self.base.lent.len() {
            return Ok(None);
        }
        self.spare.push(slot);
        if let Err(error) = completion.result() {
            return Err(DatagramError::Send(io::Error::other(error)));
        }
        // Without one in hand the datagram is lost, as any may be.
        let Some(mut buffer) = self.hand.pop() else {
            return Ok(None);
        };
        std::mem::swap(&mut buffer, &mut self.base.lent[slot]);
        let end = usize::try_from(completion.length()).unwrap_or(0);
        let end = end.min(buffer.len());
        let range = GRH.min(end)..end;
        Ok(Some(Arrival { buffer, range }))
    }

    /// The buffer of a datagram may be used again.
    ///
    /// # Errors
    ///
    /// The adapter refuses receives.
    pub fn give_back(&mut self, arrival: Arrival) -> Result<(), DatagramError> {
        self.hand.push(arrival.buffer);
        self.post_receives(REPOST)
    }

    /// Posts all receives that wait for it.
    ///
    /// # Errors
    ///
    /// The adapter refuses receives.
    pub fn replenish(&mut self) -> Result<(), DatagramError> {
        self.post_receives(1)
    }

    /// From any state to working order, under the same number; what was under way is lost.
    ///
    /// # Errors
    ///
    /// The device refuses, as it does while it is gone.
    pub fn recover(&mut self) -> Result<(), DatagramError> {
        self.base.recover()?;
        // In RESET the adapter held no request. Completions from before it find numbers that are done.
        self.chain.clear();
        self.done = self.tail;
        self.generation += 1;
        self.spare = (self.sends..self.base.lent.len()).collect();
        self.post_receives(1)
    }
}
