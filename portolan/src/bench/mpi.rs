//! The conduit over messages, as a baseline: what GASNet's mpi-conduit was to portals-conduit in the published comparison
//! (Cray User Group 2009, slides 5, 9, 10 and 15). An active message is a tagged message with a head of its own; a put is
//! active messages that carry the payload, and their replies. A payload is copied twice: into the message, and out of it.
//!
//! Only what the three pictures need: Mediums with their replies, puts into rank 1's memory, between ranks 0 and 1.

use std::collections::VecDeque;

use portals_shim::Region;
use tagged::{Comm, Request, Slice, Status, TagError};

use super::am::{FILL, PUT_WINDOW};
use super::error::BenchError;
use super::name::Name;
use super::portals::Endpoint;
use super::samples::{Measured, Samples, WARM_UP};

/// Before the payload: what the message is, and where the payload goes, 64 bits each.
const HEAD: usize = 16;
/// The longest payload of one message, bytes; longer puts are several.
const CHUNK: usize = 65_000;
/// Receives that are posted.
const RECEIVES: usize = 16;
/// Messages under way from here.
const SENDS: usize = 16;
const TAG: i32 = 1;

/// What a message is.
mod kind {
    pub(super) const MEDIUM: u64 = 1;
    pub(super) const PUT: u64 = 2;
    pub(super) const REPLY: u64 = 3;
    pub(super) const STOP: u64 = 4;
}

/// Buffers of equal size in one region, and what uses them.
#[derive(Debug)]
struct Buffers {
    region: Region,
    used: VecDeque<(Request, usize)>,
}

impl Buffers {
    fn new(count: usize) -> Result<Self, BenchError> {
        Ok(Self {
            region: Region::new(count * (HEAD + CHUNK))?,
            used: VecDeque::with_capacity(count),
        })
    }

    fn slice(&self, at: usize, len: usize) -> Result<Slice, BenchError> {
        Ok(Slice::new(&self.region, at * (HEAD + CHUNK), len)?)
    }
}

/// One rank's end.
#[derive(Debug)]
struct MpiConduit<'a> {
    comm: &'a Comm,
    end: &'a Endpoint,
    peer: u32,
    segment: Region,
    out: Buffers,
    into: Buffers,
    replies: u64,
    /// Payload that the next Medium must have, bytes.
    expected: usize,
}

impl<'a> MpiConduit<'a> {
    fn new(comm: &'a Comm, end: &'a Endpoint, bytes: usize) -> Result<Self, BenchError> {
        let mut conduit = Self {
            comm,
            end,
            peer: 1u32.saturating_sub(comm.rank()),
            segment: Region::new(bytes.max(1))?,
            out: Buffers::new(SENDS)?,
            into: Buffers::new(RECEIVES)?,
            replies: 0,
            expected: bytes,
        };
        (0..RECEIVES).try_for_each(|at| conduit.post(at))?;
        Ok(conduit)
    }

    fn post(&mut self, at: usize) -> Result<(), BenchError> {
        let into = self.into.slice(at, HEAD + CHUNK)?;
        let request = self.comm.irecv(into, None, Some(TAG))?;
        self.into.used.push_back((request, at));
        Ok(())
    }

    /// Sends a message; the payload may change when this returns.
    fn send(&mut self, kind: u64, offset: u64, payload: &[u8]) -> Result<(), BenchError> {
        let at = self.room(kind)?;
        let start = at * (HEAD + CHUNK);
        let region = &self.out.region;
        region.write(start, &kind.to_le_bytes())?;
        region.write(start + 8, &offset.to_le_bytes())?;
        region.write(start + HEAD, payload)?;
        self.end.copying(payload.len() as u64)?;
        self.end.before_send()?;
        let data = self.out.slice(at, HEAD + payload.len())?;
        let request = self.comm.isend(data, self.peer, TAG)?;
        self.out.used.push_back((request, at));
        Ok(())
    }

    /// A buffer to send from. Whoever waits for one to send a request handles what arrives meanwhile: the peer may be
    /// waiting for its replies to be taken. A reply is sent from a handler, and what it waits for is the peer's to do.
    fn room(&mut self, kind: u64) -> Result<usize, BenchError> {
        if self.out.used.len() < SENDS {
            return Ok(self.out.used.len());
        }
        let oldest = self.out.used.pop_front();
        let (request, at) = oldest.ok_or(BenchError::NoConduit)?;
        if kind == kind::REPLY {
            self.comm.wait(request)?;
            return Ok(at);
        }
        loop {
            if let Some(end) = self.comm.test(&request)? {
                end.map_err(TagError::Request)?;
                return Ok(at);
            }
            let (first, at) = self.into.used.front().ok_or(BenchError::NoConduit)?;
            let (arrived, at) = (self.comm.test(first)?, *at);
            if let Some(end) = arrived {
                self.into.used.pop_front();
                self.take(at, end.map_err(TagError::Request)?)?;
            }
        }
    }

    /// Waits for a message and handles it; whether it says that there are no more.
    fn handle(&mut self) -> Result<bool, BenchError> {
        let oldest = self.into.used.pop_front();
        let (request, at) = oldest.ok_or(BenchError::NoConduit)?;
        let status = self.comm.wait(request)?;
        self.take(at, status)
    }

    /// Handles the message in a buffer.
    fn take(&mut self, at: usize, status: Status) -> Result<bool, BenchError> {
        self.end.after_receive()?;
        let start = at * (HEAD + CHUNK);
        let word = |at| {
            let mut bytes = [0; 8];
            self.into.region.read(at, &mut bytes)?;
            Ok::<_, BenchError>(u64::from_le_bytes(bytes))
        };
        let (kind, offset) = (word(start)?, word(start + 8)?);
        let len = status.len.checked_sub(HEAD).ok_or(BenchError::Payload)?;
        match kind {
            kind::MEDIUM if len != self.expected => return Err(BenchError::Payload),
            kind::PUT => {
                let offset = usize::try_from(offset).map_err(|_| BenchError::TooLarge(offset))?;
                let from = &self.into.region;
                self.segment.copy_from(offset, from, start + HEAD, len)?;
                self.end.copying(len as u64)?;
            }
            kind::REPLY => self.replies += 1,
            _ => {}
        }
        self.post(at)?;
        if matches!(kind, kind::MEDIUM | kind::PUT) {
            self.send(kind::REPLY, 0, &[])?;
        }
        Ok(kind == kind::STOP)
    }

    fn put(&mut self, payload: &[u8]) -> Result<(), BenchError> {
        for (at, chunk) in payload.chunks(CHUNK).enumerate() {
            self.send(kind::PUT, (at * CHUNK) as u64, chunk)?;
        }
        Ok(())
    }

    fn operation(&mut self, name: Name, payload: &[u8]) -> Result<(), BenchError> {
        match name {
            Name::AmMedium => {
                let sent = self.replies;
                self.send(kind::MEDIUM, 0, payload)?;
                self.until(sent + 1)
            }
            _ => {
                let puts = if name == Name::SegmentPut {
                    1
                } else {
                    PUT_WINDOW
                };
                let messages = payload.len().div_ceil(CHUNK) as u64;
                let all = self.replies + puts * messages;
                (0..puts).try_for_each(|_| self.put(payload))?;
                self.until(all)
            }
        }
    }

    fn until(&mut self, replies: u64) -> Result<(), BenchError> {
        while self.replies < replies {
            self.handle()?;
        }
        Ok(())
    }

    /// Takes back what nobody will send to.
    fn finish(mut self) -> Result<(), BenchError> {
        for (request, _) in self.out.used.drain(..) {
            self.comm.wait(request)?;
        }
        for (request, _) in self.into.used.drain(..) {
            self.comm.cancel(&request)?;
            // Its end says that it was cancelled.
            let _ = self.comm.wait(request);
        }
        Ok(())
    }
}

/// Measures `name` with payloads of `bytes`; all ranks must call it alike. Rank 0 gets the durations.
pub(super) fn measure(
    comm: &Comm,
    end: &mut Endpoint,
    name: Name,
    bytes: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    let len = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
    if name == Name::AmMedium && len > CHUNK {
        return Err(BenchError::TooLarge(bytes));
    }
    let mut samples = Samples::new();
    let operations = match name {
        Name::SegmentPutBandwidth => PUT_WINDOW,
        _ => 1,
    };
    if comm.rank() < 2 {
        let mut conduit = MpiConduit::new(comm, end, len)?;
        comm_ready(comm)?;
        if comm.rank() == 0 {
            let payload = vec![FILL; len];
            for i in 0..WARM_UP + iters {
                let start = end.now();
                conduit.operation(name, &payload)?;
                if i >= WARM_UP {
                    samples.add(end.since(start));
                }
            }
            conduit.send(kind::STOP, 0, &[])?;
        } else {
            while !conduit.handle()? {}
            let mut bytes = vec![0; len];
            conduit.segment.read(0, &mut bytes)?;
            if name != Name::AmMedium && bytes.iter().any(|b| *b != FILL) {
                return Err(BenchError::Payload);
            }
        }
        conduit.finish()?;
    }
    end.barrier()?;
    Ok(Measured {
        samples,
        operations,
        bytes,
        found: None,
    })
}

/// Ranks 0 and 1 have posted their receives.
fn comm_ready(comm: &Comm) -> Result<(), BenchError> {
    let peer = 1u32.saturating_sub(comm.rank());
    let nothing = Region::new(1)?;
    let none = || Slice::new(&nothing, 0, 0);
    let receive = comm.irecv(none()?, Some(peer), Some(TAG + 1))?;
    comm.send(none()?, peer, TAG + 1)?;
    comm.wait(receive)?;
    Ok(())
}
