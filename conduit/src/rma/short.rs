//! Short puts and gets that need nothing that would have to be waited for: buffered copies, and awaited operations that need
//! no event.
//!
//! ```text
//!   put:           ticket, slot ─► next free chunk of ReqSB ─► PtlPut, no SEND event ─taken──► the chunk stays free
//!                                                                             └─ not yet ─► lent until SEND_END
//!   blocking, both:  free chunk of ReqSB, or own segment ─► PtlPut or PtlGet, awaited ─done──► serve what has come meanwhile
//!                                                                             └─begun─► an operation as any
//! ```
//!
//! # Invariants
//!
//! * One that does not begin here has had no effect: it goes as [`General::Messages`](super::protocol::General::Messages).
//! * The memory of a put that does begin is free when the call returns.
//! * **A rank that makes nothing but awaited operations still serves others.** Before the call returns it handles events that
//!   came meanwhile, and frames of ranks of this machine. Every [`ROW`] calls it polls, for signals and other work without
//!   events.

use super::Started;
use super::op::{Completion, Rma};
use super::protocol::Landing;
use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::fault::{Fault, refused};
use crate::matchbits::RmaBits;
use crate::memory::Source;
use crate::ops::Handle;
use crate::resources::SbUse;
use portals_shim::{AckRequest, Get, Posted, Put};

/// Calls in a row that are done by themselves, of which the last one polls.
const ROW: u32 = 16;

impl Core {
    /// Makes a put from `chunk`, which is free; `None`: there is no slot for it.
    #[inline(always)]
    pub(super) fn put_bounced(
        &mut self,
        op: &Rma,
        at: u64,
        chunk: u32,
    ) -> Result<Option<Started>, Fault> {
        if op.completion == Completion::Blocking {
            return self.put_awaited(op, at, chunk);
        }
        let Some(key) = self.slot_of(op.completion) else {
            return Ok(None);
        };
        self.resources.take_tickets(1);
        self.copy_source(
            &op.local,
            self.resources.requests().region(),
            chunk as usize,
        )?;
        let bits = RmaBits {
            get: false,
            local_completion: false,
            op: key.index,
            implicit: self.ops.is_implicit(key),
            chunk,
        };
        let to = self.rar_target(op.node, bits.encode(), at);
        let len = op.local.len() as u64;
        let put = Put::new(self.descriptors.reqsb, to).region(u64::from(chunk), len);
        // Counted before the message exists: its completion cannot come first.
        self.ops.begin(key, false);
        let posted = self.ni.post_put(put.ack(AckRequest::Ack).silent());
        if !posted.map_err(refused("PtlPutRegion"))?.is_taken() {
            self.resources.requests_mut().take(SbUse::Put);
        }
        Ok(Some(Started::Begun(op.completion.handle(key))))
    }

    fn put_awaited(&mut self, op: &Rma, at: u64, chunk: u32) -> Result<Option<Started>, Fault> {
        // Not taken yet: one that is done at once needs none.
        let Some(slot) = self.ops.next() else {
            return Ok(None);
        };
        self.copy_source(
            &op.local,
            self.resources.requests().region(),
            chunk as usize,
        )?;
        let bits = RmaBits {
            get: false,
            local_completion: false,
            op: slot,
            implicit: false,
            chunk,
        };
        let to = self.rar_target(op.node, bits.encode(), at);
        let len = op.local.len() as u64;
        let put = Put::new(self.descriptors.reqsb, to).region(u64::from(chunk), len);
        let posted = self.ni.post_put(put.wait());
        match posted.map_err(refused("PtlPutRegion"))? {
            Posted::Done { events } => return Ok(Some(Started::Done { events })),
            Posted::Taken => {}
            Posted::Begun | Posted::Declined => {
                self.resources.requests_mut().take(SbUse::Put);
            }
        }
        Ok(Some(self.begun_awaited(op.get)))
    }

    /// Makes a get to a place that takes no descriptor; `None`: there is no slot for it.
    pub(super) fn get_awaited(
        &mut self,
        op: &Rma,
        at: u64,
        landing: Landing,
    ) -> Result<Option<Started>, Fault> {
        // Not taken yet: one that is done at once needs none.
        let Some(slot) = self.ops.next() else {
            return Ok(None);
        };
        let bits = RmaBits {
            get: true,
            local_completion: false,
            op: slot,
            implicit: false,
            chunk: landing.chunk.unwrap_or(0),
        };
        let to = self.rar_target(op.node, bits.encode(), at);
        let (place, len) = (landing.offset as u64, op.local.len() as u64);
        let posted = self
            .ni
            .post_get(Get::new(landing.md, to).region(place, len).wait());
        let chunk_for = match (landing.chunk, op.local) {
            (Some(_), Source::User(memory)) => Some(memory),
            _ => None,
        };
        if let Posted::Done { events } = posted.map_err(refused("PtlGetRegion"))? {
            if let Some(memory) = chunk_for {
                memory.copy_from(self.resources.requests().region(), landing.offset)?;
            }
            return Ok(Some(Started::Done { events }));
        }
        if let Some(to) = chunk_for {
            self.resources.requests_mut().take(SbUse::Get { to });
        }
        Ok(Some(self.begun_awaited(op.get)))
    }

    /// The operation of [`Ops::next`](crate::ops::Ops::next) is one to be waited for. Events are handled by polls alone, of
    /// which there was none since its message began.
    #[cold]
    fn begun_awaited(&mut self, get: bool) -> Started {
        self.resources.take_tickets(1);
        let key = self.ops.explicit();
        if let Some(key) = key {
            self.ops.begin(key, get);
        }
        Started::Begun(Handle(key))
    }
}

impl Conduit {
    /// After an awaited operation that needed no event: serves others, if there is something of them, and in every [`ROW`]th
    /// call.
    #[inline(always)]
    pub(super) fn after_awaited(&self, events: bool) {
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
    }
}
