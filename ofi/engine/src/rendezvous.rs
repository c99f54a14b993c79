//! Long messages: the sender announces them by an envelope, and the receiver takes the bytes from where they are.
//!
//! ```text
//!   sender                         receiver                            by
//!     exposes the bytes
//!     Envelope ──────────────────►   a receive for it is posted
//!              ◄────────────────── get of what is exposed               Portals
//!     the get has ended              the reply has come
//!
//!     Envelope ──────────────────►   reads where the bytes are          the kernel, where
//!              ◄────────────────── Fetched, read                        memory is shared
//!
//!     Envelope ──────────────────►   cannot read there (any more)
//!              ◄────────────────── Fetched, not read                    both
//!     Exposed  ──────────────────►   get
//! ```
//!
//! # Invariants
//!
//! * The bytes of a message stay with its operation until the receiver has taken them, however it does.
//! * Bytes are exposed before their envelope leaves, unless the peer has read the last message where it was. Such a peer that cannot
//!   read says so, and what is exposed then is got: a refusal of the kernel, at any time, costs a message and loses none.
//! * A message ends once, by the get or by what the peer says, whichever is first. A peer that says that it has read what it has not
//!   harms itself alone.

use crate::completion::{End, Failure, Level, Op};
use crate::core::{Core, Pending, Use, memory_of, target};
use crate::landing::{EXPOSED, PENDING};
use crate::matching::Receive;
use crate::memory::Buffer;
use crate::multi_receives::Ending;
use crate::peers::{Load, Outgoing};
use crate::wire::{Envelope, Kind};
use portals_shim::{
    Error, InsertPosition, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, ProcessId, Unlink,
};

/// How a peer may fetch a long message.
#[derive(Debug)]
pub(crate) enum Shown {
    /// By a get that this entry takes.
    Exposed(MeHandle),
    /// It reads this memory where it is, as it has before.
    Lent(MdMemory),
}

impl Core {
    /// Announces a long message. Its bytes are exposed, or lie where the peer is known to read them by itself.
    pub(crate) fn announce(
        &mut self,
        (at, slot): (usize, usize),
        kind: Kind,
        (tag, data): (u64, Option<u32>),
        load: Load,
        op: Op,
    ) -> Result<(), Error> {
        let (number, len) = (self.next(), load.len());
        let made = memory_of(&load).and_then(|(memory, copy)| {
            let addr = match (&load, &copy) {
                (_, Some(copy)) => copy.addr(),
                (Load::Lent(buffer), None) => buffer.place(0) as u64,
                _ => 0,
            };
            let shown = match addr != 0 && self.peers.get(at).reads {
                true => Shown::Lent(memory),
                false => Shown::Exposed(self.show(at, number, memory)?),
            };
            Ok((shown, copy, addr))
        });
        let (shown, copy, addr) = match made {
            Ok(made) => made,
            Err(error) => {
                self.slots.give_back(slot);
                return Err(error);
            }
        };
        let envelope = Envelope {
            len,
            key: number,
            addr,
            exposed: matches!(shown, Shown::Exposed(_)),
        };
        let pending = Pending::Exposed {
            peer: at,
            shown,
            op,
            len,
            tag,
            _copy: copy,
        };
        self.pending.insert(number, pending);
        let mut bytes = self.pool.take();
        bytes.extend_from_slice(&envelope.encode());
        let envelope = Load::Copied(bytes);
        let used = Use::Envelope(number);
        let sent = self.tell(
            (at, slot),
            (&envelope, Level::Injected),
            (kind, tag, data),
            used,
        );
        self.recycle(envelope);
        if sent.is_err() {
            self.take_exposed(number);
        }
        sent
    }

    /// Exposes a long message to a peer under a key.
    fn show(&mut self, at: usize, key: u64, memory: MdMemory) -> Result<MeHandle, Error> {
        let entry = MeSpec {
            match_id: self.peers.get(at).id,
            match_bits: key,
            ignore_bits: 0,
            unlink: Unlink::Unlink,
        };
        let md = MdSpec {
            memory,
            threshold: 1,
            max_size: 0,
            options: MdOptions::OP_GET
                | MdOptions::TRUNCATE
                | MdOptions::EVENT_START_DISABLE
                | MdOptions::EVENT_AUTO_UNLINK_DISABLE,
            user_ptr: PENDING | key,
            eq: Some(self.eq),
        };
        let me = self.ni.me_attach(EXPOSED, entry, InsertPosition::After)?;
        let attached = self.ni.md_attach(me, md, Unlink::Unlink);
        if attached.is_err() {
            let _ = self.ni.me_unlink(me);
        }
        attached.map(|_| me)
    }

    /// Takes back a long message: its operation, bytes and tag.
    fn take_exposed(&mut self, number: u64) -> Option<(Op, u64, u64)> {
        let exposed = |pending: &Pending| matches!(pending, Pending::Exposed { .. });
        if !self.pending.get(&number).is_some_and(exposed) {
            return None;
        }
        match self.pending.remove(&number)? {
            Pending::Exposed {
                shown,
                op,
                len,
                tag,
                ..
            } => {
                if let Shown::Exposed(me) = shown {
                    // It may be unlinked already.
                    let _ = self.ni.me_unlink(me);
                }
                Some((op, len, tag))
            }
            _ => None,
        }
    }

    /// A peer has read a long message where it is, or cannot.
    pub(crate) fn fetched(&mut self, at: usize, number: u64, read: bool) {
        let Some(Pending::Exposed { peer, shown, .. }) = self.pending.get_mut(&number) else {
            return;
        };
        if *peer != at {
            return;
        }
        self.peers.get(at).reads = read;
        match shown {
            // Its get is under way all the same, and ends the message.
            Shown::Exposed(me) if read && self.ni.me_unlink(*me).is_err() => {}
            _ if read => {
                if let Some((op, len, tag)) = self.take_exposed(number) {
                    self.woken = true;
                    self.reporter.sent(&op, None, len, tag);
                }
            }
            Shown::Exposed(_) => {}
            Shown::Lent(memory) => {
                let memory = std::mem::replace(memory, MdMemory::Empty);
                match self.show(at, number, memory) {
                    Ok(me) => {
                        if let Some(Pending::Exposed { shown, .. }) = self.pending.get_mut(&number)
                        {
                            *shown = Shown::Exposed(me);
                        }
                        let id = self.peers.get(at).id;
                        if let Err(error) = self.submit(id, Outgoing::Exposed(number)) {
                            tracing::error!(%error, "a long message is not announced again");
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, "a long message cannot be exposed");
                        self.unexpose(number, Failure::Fabric);
                    }
                }
            }
        }
    }

    /// The peer will not fetch a message any more, for this reason.
    pub(crate) fn unexpose(&mut self, number: u64, why: Failure) {
        if let Some((op, len, tag)) = self.take_exposed(number) {
            let end = End {
                len,
                tag,
                ..End::default()
            };
            self.reporter.failed(&op, why, &end, 0);
        }
    }

    /// Takes a long message from where it is: reads it there, or gets it by Portals.
    pub(crate) fn take_there(
        &mut self,
        from: ProcessId,
        envelope: Envelope,
        into: Buffer,
        (op, end, missing): (Op, End, u64),
    ) {
        let Some(at) = self.peers.find(from) else {
            return self.fetch(from, envelope.key, &into, (op, end, missing));
        };
        let read = self.read_there(at, envelope.addr, &into);
        if !read && envelope.exposed {
            return self.fetch(from, envelope.key, &into, (op, end, missing));
        }
        if let Err(error) = self.submit(from, Outgoing::Fetched(envelope.key, read)) {
            tracing::error!(%error, "a long message is not answered");
        }
        if read {
            return self.has_fetched((op, end, missing), None);
        }
        let number = self.next();
        let awaited = Pending::Awaited {
            peer: at,
            key: envelope.key,
            into,
            op,
            end,
            missing,
        };
        self.pending.insert(number, awaited);
    }

    /// Reads what a peer has at an address, if the kernel lets this process.
    fn read_there(&mut self, at: usize, addr: u64, into: &Buffer) -> bool {
        let link = self.peers.link(at).filter(|link| link.fetches());
        let (Some(link), true) = (link, self.frames.reads && addr != 0) else {
            return false;
        };
        let MdMemory::Raw(memory) = into.memory() else {
            return true;
        };
        let read = link.fetch(addr, memory);
        if let Err(error) = &read {
            tracing::debug!(%error, "a long message is got by Portals");
        }
        read.is_ok()
    }

    /// A peer has exposed the message of a key, which could not be read where it is.
    pub(crate) fn exposed(&mut self, at: usize, wanted: u64) {
        let is_wanted = |pending: &Pending| matches!(pending, Pending::Awaited { peer, key, .. } if (*peer, *key) == (at, wanted));
        let found = self.pending.iter().find(|(_, pending)| is_wanted(pending));
        let Some(number) = found.map(|(number, _)| *number) else {
            return;
        };
        if let Some(Pending::Awaited {
            into,
            op,
            end,
            missing,
            ..
        }) = self.pending.remove(&number)
        {
            let from = self.peers.get(at).id;
            self.fetch(from, wanted, &into, (op, end, missing));
        }
    }

    /// A message that was to be exposed will not be: its peer is gone.
    pub(crate) fn not_exposed(&mut self, number: u64) {
        let awaited = |pending: &Pending| matches!(pending, Pending::Awaited { .. });
        if !self.pending.get(&number).is_some_and(awaited) {
            return;
        }
        if let Some(Pending::Awaited {
            op, end, missing, ..
        }) = self.pending.remove(&number)
        {
            self.has_fetched((op, end, missing), Some(Failure::Unreachable));
        }
    }

    /// Gets what a peer has exposed.
    fn fetch(
        &mut self,
        from: ProcessId,
        key: u64,
        into: &Buffer,
        (op, end, missing): (Op, End, u64),
    ) {
        let number = self.next();
        let md = MdSpec {
            memory: into.memory(),
            threshold: 1,
            max_size: 0,
            options: MdOptions::EVENT_START_DISABLE | MdOptions::EVENT_AUTO_UNLINK_DISABLE,
            user_ptr: PENDING | number,
            eq: Some(self.eq),
        };
        let got = self.ni.md_bind(md, Unlink::Unlink).and_then(|md| {
            let got = self.ni.get(md, target(from, EXPOSED, key, 0));
            got.inspect_err(|_| {
                let _ = self.ni.md_unlink(md);
            })
        });
        match got {
            Ok(()) => {
                let pending = Pending::Fetch { op, end, missing };
                self.pending.insert(number, pending);
            }
            Err(error) => {
                tracing::error!(%error, "a long message cannot be fetched");
                self.has_fetched((op, end, missing), Some(Failure::Fabric));
            }
        }
    }

    /// A receive takes no message any more, and ends as failed: behind what is under way into its buffer.
    pub(crate) fn end_receive(&mut self, receive: Receive, why: Failure) {
        let number = receive.multi.map_or(0, |multi| multi.number);
        if let Some(Ending::Failed(receive, why)) = self
            .multi_receives
            .ends(number, Ending::Failed(receive, why))
        {
            self.reporter.failed(&receive.op, why, &receive.end(), 0);
        }
    }

    /// A long message has come, as far as there was room, or could not be fetched.
    pub(crate) fn has_fetched(
        &mut self,
        (mut op, mut end, missing): (Op, End, u64),
        failure: Option<Failure>,
    ) {
        let last = self.multi_receives.landed(&mut op, &mut end);
        match (failure, missing) {
            (Some(why), _) => self.reporter.failed(&op, why, &end, missing),
            (None, 0) => self.reporter.done(&op, &end),
            (None, _) => self.reporter.failed(&op, Failure::Truncated, &end, missing),
        }
        if let Some((receive, why)) = last {
            self.reporter.failed(&receive.op, why, &receive.end(), 0);
        }
    }
}
