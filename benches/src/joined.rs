//! Two interfaces joined by the in-process fabric, or by shared memory, as a program calls them: what the library costs
//! between the calls and the fabric, besides what [`crate::Pair`] measures.

use crate::BYTES;
use portals_core::{
    AckRequest, EqHandle, Error, EventKind, InsertPosition, MdHandle, MdOptions, MeSpec, ProcessId,
    THRESHOLD_INFINITE, Unlink,
};
use portals_shim::fabric;
use portals_shim::nal::shm;
use portals_shim::place::Placement;
use portals_shim::{Interface, MdMemory, MdSpec, Region, Target};

/// Portal of the entry.
const PORTAL: u32 = 4;
/// The bits that it takes.
const BITS: u64 = 7;

/// Two open interfaces of one process: `from` has a source of 8 bytes, `to` an entry that takes
/// its puts.
#[derive(Debug)]
pub struct Joined {
    from: Interface,
    to: Interface,
    source: MdHandle,
    sent: EqHandle,
    arrived: EqHandle,
    target: Target,
}

/// A descriptor of 8 bytes with a queue.
fn md(options: MdOptions, eq: EqHandle) -> Result<MdSpec, Error> {
    let region = Region::new(BYTES as usize).map_err(|_| Error::NoSpace)?;
    Ok(MdSpec {
        memory: MdMemory::Region {
            region,
            offset: 0,
            len: BYTES as usize,
        },
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: options | MdOptions::EVENT_START_DISABLE | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq: Some(eq),
    })
}

impl Joined {
    /// Both interfaces, their queues and descriptors.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when there is no memory for them.
    pub fn new() -> Result<Self, Error> {
        let place = Placement::new(2).ok_or(Error::Fail)?;
        let opened = fabric::in_process_placed(2, place);
        let mut opened = opened.into_iter().map(|o| o.interface);
        let both = opened.next().zip(opened.next());
        let (from, to) = both.ok_or(Error::Fail)?;
        Self::join(from, to)
    }

    /// Two interfaces joined by shared memory.
    ///
    /// # Errors
    /// Those of [`Joined::new`].
    pub fn over_memory() -> Result<Self, Error> {
        let opened = fabric::interfaces(shm::in_threads(2).map_err(|_| Error::NoSpace)?);
        let mut opened = opened.into_iter().map(|o| o.interface);
        let both = opened.next().zip(opened.next());
        let (from, to) = both.ok_or(Error::Fail)?;
        Self::join(from, to)
    }

    fn join(from: Interface, to: Interface) -> Result<Self, Error> {
        let (sent, arrived) = (from.eq_alloc(8)?, to.eq_alloc(8)?);
        let to_id = to.id();
        let spec = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: BITS,
            ignore_bits: 0,
            unlink: Unlink::Retain,
        };
        let me = to.me_attach(PORTAL, spec, InsertPosition::After)?;
        to.md_attach(me, md(MdOptions::OP_PUT, arrived)?, Unlink::Retain)?;
        let source = from.md_bind(md(MdOptions::empty(), sent)?, Unlink::Retain)?;
        Ok(Self {
            from,
            to,
            source,
            sent,
            arrived,
            target: Target {
                process: to_id,
                pt_index: PORTAL,
                ac_index: 0,
                match_bits: BITS,
                remote_offset: 0,
            },
        })
    }

    /// Takes one event, which must be `kind`.
    fn took(ni: &Interface, eq: EqHandle, kind: EventKind) -> bool {
        matches!(ni.eq_get(eq), Ok(Some(polled)) if polled.event.kind == kind)
    }

    /// A put without an ack and the target's PUT_END; whether both events came.
    pub fn put(&self) -> bool {
        let put = self
            .from
            .put(self.source, AckRequest::NoAck, self.target, 0);
        put.is_ok()
            && Self::took(&self.from, self.sent, EventKind::SendEnd)
            && Self::took(&self.to, self.arrived, EventKind::PutEnd)
    }

    /// A put, its delivery and its ack; whether the three events came.
    pub fn put_and_ack(&self) -> bool {
        let put = self.from.put(self.source, AckRequest::Ack, self.target, 0);
        put.is_ok()
            && Self::took(&self.to, self.arrived, EventKind::PutEnd)
            && Self::took(&self.from, self.sent, EventKind::SendEnd)
            && Self::took(&self.from, self.sent, EventKind::Ack)
    }

    /// A look into an empty queue; whether it was empty.
    pub fn look(&self) -> bool {
        self.from.eq_get(self.sent) == Ok(None)
    }
}
