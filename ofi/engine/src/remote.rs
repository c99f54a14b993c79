//! Remote memory: who registers it, who reads and writes it.

use crate::accesses::{Counts, Effect};
use crate::atomic::{self, Form, Request};
use crate::completion::{End, Failure, Op};
use crate::core::{Core, Life, Pending, Refused, Registered, Use, memory_of};
use crate::landing::{EAGER, MEMORY, PENDING, any};
use crate::memory::Buffer;
use crate::peers::{Load, Outgoing, Remote};
use portals_shim::{
    AckRequest, Error, InsertPosition, MdMemory, MdOptions, MdSpec, MeSpec, NiFail, ProcessId,
    Target, Unlink, Wait,
};
use std::sync::PoisonError;

/// What others may do with registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read it (`FI_REMOTE_READ`).
    pub read: bool,
    /// Write it (`FI_REMOTE_WRITE`).
    pub write: bool,
}

impl Access {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        read: false,
        write: false,
    };
}

impl Core {
    /// The entry behind all registered memory: what fits none of that gets no byte, and its initiator hears so.
    pub(crate) fn refuse_the_rest(&self) -> Result<(), Error> {
        let me = self.ni.me_attach(MEMORY, any(), InsertPosition::After)?;
        let md = MdSpec {
            memory: MdMemory::Empty,
            threshold: -1,
            max_size: 0,
            options: MdOptions::OP_PUT
                | MdOptions::OP_GET
                | MdOptions::TRUNCATE
                | MdOptions::EVENT_START_DISABLE
                | MdOptions::EVENT_END_DISABLE,
            user_ptr: 0,
            eq: None,
        };
        self.ni.md_attach(me, md, Unlink::Retain).map(drop)
    }

    /// Lets peers reach memory under a key.
    pub(crate) fn register(
        &mut self,
        key: u64,
        buffer: &Buffer,
        access: Access,
    ) -> Result<(), Refused> {
        if self.life != Life::Open {
            return Ok(());
        }
        if self.memory.contains_key(&key) {
            return Err(Refused::Invalid);
        }
        let entry = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: key,
            ignore_bits: 0,
            unlink: Unlink::Unlink,
        };
        let counts = Counts::default();
        let spec = self.memory_spec(buffer, access, &counts)?;
        let me = self.ni.me_attach(MEMORY, entry, InsertPosition::Before)?;
        let attached = self.ni.md_attach(me, spec, Unlink::Unlink);
        let md = attached.inspect_err(|_| {
            let _ = self.ni.me_unlink(me);
        })?;
        let registered = Registered {
            me,
            md,
            counts,
            buffer: buffer.clone(),
            access,
        };
        self.memory.insert(key, registered);
        Ok(())
    }

    /// Peers no longer reach the memory of a key when this succeeds. [`Refused::InUse`]: accesses are under way, and no other begins.
    pub(crate) fn deregister(&mut self, key: u64) -> Result<(), Refused> {
        match self.life {
            Life::Open => {}
            Life::Closing => return Err(Refused::InUse),
            Life::Closed => return Ok(()),
        }
        let Some(registered) = self.memory.get_mut(&key) else {
            return Ok(());
        };
        let unlinked = self.ni.me_unlink(registered.me);
        if unlinked == Err(Error::MeInUse) && registered.access != Access::NONE {
            registered.access = Access::NONE;
            self.renew(key)?;
        }
        unlinked?;
        // Accesses that have ended are counted by their key.
        self.progress(Wait::No);
        self.memory.remove(&key);
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        at: usize,
        to: Remote,
        load: Load,
        data: Option<u64>,
        op: Op,
    ) -> Result<(), Error> {
        let len = load.len();
        let there = Target {
            process: self.peers.get(at).id,
            pt_index: MEMORY,
            ac_index: 0,
            match_bits: to.key,
            remote_offset: to.offset,
        };
        let told = data.map(|data| (at, data));
        if len <= EAGER as u64 && !self.slots.is_empty() {
            let slot = self.slots.take().ok_or(Error::NoSpace)?;
            let used = Use::Write { op, len, told };
            let sent = self.put((at, slot), (&load, true), there, 0, used);
            self.recycle(load);
            sent?;
            self.remote += 1;
            return Ok(());
        }
        let (memory, copy) = memory_of(&load)?;
        let number = self.next();
        let spec = self.remote_spec(memory, number, MdOptions::EVENT_END_DISABLE);
        let md = self.ni.md_bind(spec, Unlink::Retain)?;
        if let Err(error) = self.ni.put(md, AckRequest::Ack, there, 0) {
            let _ = self.ni.md_unlink(md);
            return Err(error);
        }
        let pending = Pending::Remote {
            md,
            op,
            len,
            told,
            _copy: copy,
        };
        self.pending.insert(number, pending);
        self.remote += 1;
        Ok(())
    }

    fn remote_spec(&self, memory: MdMemory, number: u64, options: MdOptions) -> MdSpec {
        MdSpec {
            memory,
            threshold: -1,
            max_size: 0,
            options: options | MdOptions::EVENT_START_DISABLE,
            user_ptr: PENDING | number,
            eq: Some(self.eq),
        }
    }

    pub(crate) fn read(
        &mut self,
        at: usize,
        from: Remote,
        into: Buffer,
        op: Op,
    ) -> Result<(), Error> {
        let there = Target {
            process: self.peers.get(at).id,
            pt_index: MEMORY,
            ac_index: 0,
            match_bits: from.key,
            remote_offset: from.offset,
        };
        let number = self.next();
        let len = into.len();
        let spec = self.remote_spec(into.memory(), number, MdOptions::empty());
        let md = self.ni.md_bind(spec, Unlink::Retain)?;
        if let Err(error) = self.ni.get(md, there) {
            let _ = self.ni.md_unlink(md);
            return Err(error);
        }
        let pending = Pending::Remote {
            md,
            op,
            len,
            told: None,
            _copy: None,
        };
        self.pending.insert(number, pending);
        self.remote += 1;
        Ok(())
    }

    /// A peer asks for an atomic operation on registered memory: makes it, and says what was there before.
    pub(crate) fn make_atomic(&mut self, at: usize, number: u64, bytes: &[u8]) {
        let (mut before, mut after) = (self.pool.take(), self.pool.take());
        let made = self.atomic(bytes, &mut before, &mut after);
        self.pool.give_back(after);
        let made = match made {
            Some(()) => Some(before),
            None => {
                self.pool.give_back(before);
                None
            }
        };
        let id = self.peers.get(at).id;
        if let Err(error) = self.submit(id, Outgoing::AtomicDone(number, made)) {
            tracing::error!(%error, "an atomic operation is not answered");
        }
    }

    /// Makes it, and leaves in `before` what its initiator is told was there.
    fn atomic(&self, bytes: &[u8], before: &mut Vec<u8>, after: &mut Vec<u8>) -> Option<()> {
        let (request, operand, compare) = Request::decode(bytes)?;
        let registered = self.memory.get(&request.key)?;
        let (reads, writes) = (
            request.form != Form::Plain,
            request.op != atomic::Operation::Read,
        );
        if (reads && !registered.access.read) || (writes && !registered.access.write) {
            return None;
        }
        let place = registered.buffer.sub(request.offset, request.len.into());
        if place.len() != u64::from(request.len) {
            return None;
        }
        let compare = if compare.is_empty() { operand } else { compare };
        let turn = atomic::TURN.get().lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        place.append_to(before);
        after.extend_from_slice(before);
        atomic::apply(request.datatype, request.op, after, operand, compare)?;
        if writes {
            place.store_bytes(after);
        }
        if !reads {
            before.clear();
        }
        let effect = Effect {
            fetches: reads,
            modifies: writes,
        };
        self.count_access(request.key, effect);
        Some(())
    }

    /// A peer has made an atomic operation, or says that it could not. Nobody else's answer counts.
    pub(crate) fn atomic_done(&mut self, at: usize, number: u64, made: bool, bytes: &[u8]) {
        let was_asked =
            |pending: &Pending| matches!(pending, Pending::Atomic { peer, .. } if *peer == at);
        if !self.pending.get(&number).is_some_and(was_asked) {
            return;
        }
        let Some(Pending::Atomic {
            op, len, result, ..
        }) = self.pending.remove(&number)
        else {
            return;
        };
        self.woken = true;
        let end = End {
            len,
            ..End::default()
        };
        if !made {
            return self.reporter.failed(&op, Failure::Key, &end, 0);
        }
        if let Some(result) = result {
            let fits = bytes.len().min(result.len() as usize);
            result.store_bytes(&bytes[..fits]);
        }
        self.reporter.done(&op, &end);
    }

    /// Of an atomic operation there will be no end, for this reason.
    pub(crate) fn unanswered(&mut self, number: u64, why: Failure) {
        let is_atomic = |pending: &Pending| matches!(pending, Pending::Atomic { .. });
        if !self.pending.get(&number).is_some_and(is_atomic) {
            return;
        }
        if let Some(Pending::Atomic { op, len, .. }) = self.pending.remove(&number) {
            let end = End {
                len,
                ..End::default()
            };
            self.reporter.failed(&op, why, &end, 0);
        }
    }

    /// A read or write has ended, of so many bytes.
    pub(crate) fn written(
        &mut self,
        op: Op,
        len: u64,
        told: Option<(usize, u64)>,
        fail: NiFail,
        moved: u64,
    ) {
        self.remote = self.remote.saturating_sub(1);
        let end = End {
            len,
            ..End::default()
        };
        if let Some(why) = Failure::of(fail) {
            return self.reporter.failed(&op, why, &end, 0);
        }
        if moved != len {
            return self
                .reporter
                .failed(&op, Failure::Key, &end, len - moved.min(len));
        }
        if let Some((at, data)) = told {
            let id = self.peers.get(at).id;
            if let Err(error) = self.submit(id, Outgoing::Written { data, op, len }) {
                tracing::error!(%error, "a peer is not told of a write");
                self.reporter.failed(&op, Failure::Fabric, &end, 0);
            }
            return;
        }
        self.reporter.done(&op, &end);
    }
}
