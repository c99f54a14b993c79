//! Blocking puts and gets of a few bytes that need nothing but the adapters: no event, and no look into a queue.
//!
//! ```text
//!   checks ─► free chunk of ReqSB, or own segment ─► PtlPut or PtlGet, awaited ─done──► serve what has come meanwhile
//!                                                                            └─begun─► an operation as ever
//! ```
//!
//! # Invariants
//!
//! * One that does not begin here has had no effect, and goes the general way (`putget.rs`), which also waits, and says
//!   what is wrong with it.
//! * **A rank that makes nothing but these still serves others.** Before the call returns it handles events that came
//!   meanwhile, and frames of ranks of this machine. Every [`ROW`] calls it polls, for signals and other work without events.

use crate::conduit::{Conduit, Scope};
use crate::core::{Core, GET_CHUNK_DATA, SbUse};
use crate::fault::{Fault, refused};
use crate::matchbits::RmaBits;
use crate::ops::Handle;
use crate::tmpmd::UserMem;
use portals_shim::{Get, MdHandle, Posted, Put};

/// Calls in a row that are done by themselves, of which the last one polls.
const ROW: u32 = 16;

/// Longest get straight into the own segment, bytes: a longer one takes longer than the looks of a call.
const LONG: usize = 4096;

/// How an operation went.
#[derive(Debug)]
enum Went {
    /// It is done; whether there are events.
    Done(bool),
    /// It is under way.
    Begun(Handle),
}

impl Core {
    /// Where a get lands: the descriptor, the offset in it, and the chunk if it is one.
    #[inline]
    fn landing(&self, memory: &UserMem) -> Option<(MdHandle, usize, Option<u32>)> {
        let len = memory.len();
        let attached = self.attached.as_ref()?;
        let own = attached.segments.get(self.me as usize)?;
        if let Some(offset) = own.offset_of(memory.addr(), len as u64) {
            return (len <= LONG).then_some((attached.rarsrc, offset as usize, None));
        }
        let chunk = self.reqsb.next().filter(|_| self.env.bounces(true, len))?;
        let at = chunk as usize + GET_CHUNK_DATA;
        Some((self.descriptors.reqsb, at, Some(chunk)))
    }

    fn get_awaited(
        &mut self,
        memory: &UserMem,
        node: u32,
        src: u64,
    ) -> Result<Option<Went>, Fault> {
        let len = memory.len();
        let (Some(remote), Some((md, place, chunk)), true) = (
            self.offset_elsewhere(node, src, len),
            self.landing(memory),
            len > 0 && self.tickets.any(),
        ) else {
            return Ok(None);
        };
        let Some(op) = self.ops.next() else {
            return Ok(None);
        };
        let bits = RmaBits {
            get: true,
            local_completion: false,
            op,
            implicit: false,
            chunk: chunk.unwrap_or(0),
        };
        let to = self.rar_target(node, bits.encode(), remote);
        let get = Get::new(md, to).region(place as u64, len as u64);
        let posted = self.ni.post_get(get.wait());
        if let Posted::Done { events } = posted.map_err(refused("PtlGetRegion"))? {
            if chunk.is_some() {
                memory.copy_from(self.reqsb.region(), place)?;
            }
            return Ok(Some(Went::Done(events)));
        }
        if chunk.is_some() {
            self.reqsb.take(SbUse::Get { to: *memory });
        }
        Ok(Some(self.begun(true)))
    }

    fn put_awaited(
        &mut self,
        node: u32,
        dest: u64,
        memory: &UserMem,
    ) -> Result<Option<Went>, Fault> {
        let len = memory.len();
        let (Some((remote, chunk)), Some(op)) = (self.short_put(node, dest, len), self.ops.next())
        else {
            return Ok(None);
        };
        memory.copy_to(self.reqsb.region(), chunk as usize)?;
        let bits = RmaBits {
            get: false,
            local_completion: false,
            op,
            implicit: false,
            chunk,
        };
        let to = self.rar_target(node, bits.encode(), remote);
        let put = Put::new(self.descriptors.reqsb, to).region(u64::from(chunk), len as u64);
        let posted = self.ni.post_put(put.wait());
        match posted.map_err(refused("PtlPutRegion"))? {
            Posted::Done { events } => return Ok(Some(Went::Done(events))),
            Posted::Taken => {}
            Posted::Begun | Posted::Declined => {
                self.reqsb.take(SbUse::Put);
            }
        }
        Ok(Some(self.begun(false)))
    }

    /// The operation of [`Ops::next`](crate::ops::Ops::next) is one to be waited for. Events are handled by polls alone, of
    /// which there was none since its message began.
    #[cold]
    fn begun(&mut self, get: bool) -> Went {
        self.tickets.take(1);
        let op = self.ops.explicit();
        if let Some(op) = op {
            self.ops.begin(op, get);
        }
        Went::Begun(Handle(op))
    }
}

impl Conduit {
    /// Makes a short get whose caller waits for it, if nothing has to be waited for before: done if the handle says so, else
    /// under way. `None`, and nothing has happened, for any other get.
    pub(crate) fn get_awaited(&self, memory: &UserMem, node: u32, src: u64) -> Option<Handle> {
        self.awaited("get", |core| core.get_awaited(memory, node, src))
    }

    /// Makes a put for a caller that waits for it; see [`Conduit::get_awaited`].
    pub(crate) fn put_awaited(&self, node: u32, dest: u64, memory: &UserMem) -> Option<Handle> {
        self.awaited("put", |core| core.put_awaited(node, dest, memory))
    }

    #[inline]
    fn awaited(
        &self,
        call: &str,
        operation: impl FnOnce(&mut Core) -> Result<Option<Went>, Fault>,
    ) -> Option<Handle> {
        if self.handler_depth.get() > 0 {
            return None;
        }
        let went = operation(&mut self.core.borrow_mut());
        match self.check(call, went)? {
            Went::Begun(handle) => Some(handle),
            Went::Done(events) => {
                let row = self.row.get() + 1;
                let frames = || {
                    self.neighbours
                        .get()
                        .is_some_and(|n| n.has_frame(Scope::Full))
                };
                let serves = events || row >= ROW || frames();
                self.row.set(if serves { 0 } else { row });
                if serves {
                    self.serve();
                }
                Some(Handle::DONE)
            }
        }
    }
}
