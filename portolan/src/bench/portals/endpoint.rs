//! What every measurement is made of: descriptors over two buffers, events, and a barrier.
//!
//! The barrier uses the fabric itself: the fabric's clock goes on in it, and no other process takes part.

use std::collections::BTreeSet;

use portals_shim::fabric::Opened;
use portals_shim::{
    AckRequest, ClockKind, EqHandle, Error, EventKind, InsertPosition, Interface, MdHandle,
    MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, NiFail, Polled, ProcessId, Region,
    THRESHOLD_INFINITE, Taken, Target, Unlink, Wait,
};

use crate::bench::error::BenchError;
use crate::bench::samples;

/// Portal index of measured messages.
const DATA: u32 = 4;
/// Portal index of barriers.
const SYNC: u32 = 5;
/// Match bits of measured messages.
pub(in crate::bench) const MATCH: u64 = 0x706f_7274;
/// Slots of each event queue; more than any window of operations causes.
const EVENTS: u64 = 4096;

/// How often and how long a descriptor in use is waited for: 10 s in all.
const UNBIND_TRIES: u32 = 10_000;
const UNBIND_PAUSE: Wait = Wait::Nanos(1_000_000);

/// One rank's interface with its buffers.
#[derive(Debug)]
pub(in crate::bench) struct Endpoint {
    ni: Interface,
    rank: usize,
    peers: Vec<ProcessId>,
    sync_eq: EqHandle,
    sync_md: MdHandle,
    /// Barriers passed.
    epoch: u64,
    /// Barrier messages that came early.
    early: BTreeSet<u64>,
    /// Events of this rank's own operations.
    own_eq: EqHandle,
    /// Events of messages that arrive, where a measurement asks for them.
    arrival_eq: EqHandle,
    send: Region,
    receive: Region,
    software: Software,
    /// What reading the clock takes, nanoseconds.
    reading: u64,
    /// Where events are taken to: they are large, and a measurement looks at little of them.
    polled: Polled,
}

/// What the library above Portals computes for a message, nanoseconds of virtual time: the figures
/// of the published curves are MPI's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Software {
    /// Before it calls Portals.
    pub(crate) send: u64,
    /// After the event.
    pub(crate) receive: u64,
    /// To start a copy.
    pub(crate) copy_start: u64,
    /// To go on with it, bytes per microsecond; 0: a copy takes what it takes.
    pub(crate) copy_rate: u64,
}

/// What this rank lets its peer reach; taken back by [`Endpoint::withdraw`].
#[derive(Debug)]
pub(in crate::bench) struct Exposed(Vec<MeHandle>);

fn call<T>(call: &'static str, result: Result<T, Error>) -> Result<T, BenchError> {
    result.map_err(|source| BenchError::Call { call, source })
}

impl Endpoint {
    /// Makes the queues of an open interface; `rank` is this process's place in `opened.peers`.
    pub(in crate::bench) fn new(opened: &Opened, rank: usize) -> Result<Self, BenchError> {
        if opened.peers.len() < 2 {
            return Err(BenchError::TooFewRanks(opened.peers.len()));
        }
        let ni = opened.interface.clone();
        let reading = match ni.clock() {
            ClockKind::Wall => samples::reading(|| ni.now()),
            ClockKind::Virtual => 0,
        };
        let sync_eq = call("PtlEQAlloc", ni.eq_alloc(EVENTS))?;
        let own_eq = call("PtlEQAlloc", ni.eq_alloc(EVENTS))?;
        let arrival_eq = call("PtlEQAlloc", ni.eq_alloc(EVENTS))?;
        let me = call(
            "PtlMEAttach",
            ni.me_attach(
                SYNC,
                entry(ProcessId::ANY, 0, u64::MAX),
                InsertPosition::After,
            ),
        )?;
        let options = MdOptions::OP_PUT | MdOptions::EVENT_START_DISABLE;
        let arrives = descriptor(MdMemory::Empty, options, Some(sync_eq));
        call("PtlMDAttach", ni.md_attach(me, arrives, Unlink::Retain))?;
        let sync_md = call(
            "PtlMDBind",
            ni.md_bind(
                descriptor(MdMemory::Empty, MdOptions::empty(), None),
                Unlink::Retain,
            ),
        )?;
        let (send, receive) = (ni.new_region(1)?, ni.new_region(1)?);
        Ok(Self {
            ni,
            rank,
            peers: opened.peers.clone(),
            sync_eq,
            sync_md,
            epoch: 0,
            early: BTreeSet::new(),
            own_eq,
            arrival_eq,
            send,
            receive,
            software: Software::default(),
            reading,
            polled: Polled::default(),
        })
    }

    /// Has a library above Portals compute for each message of the measurements that stand for it; returns
    /// what it computed before.
    pub(in crate::bench) fn set_software(&mut self, software: Software) -> Software {
        std::mem::replace(&mut self.software, software)
    }

    /// What that library does before a message.
    pub(in crate::bench) fn before_send(&self) -> Result<(), BenchError> {
        call("computing", self.ni.compute(self.software.send))
    }

    /// Whether what that library computes takes time.
    pub(in crate::bench) fn computes(&self) -> bool {
        self.software.receive > 0 && self.ni.clock() == ClockKind::Virtual
    }

    /// What that library does after the event of a message.
    pub(in crate::bench) fn after_receive(&self) -> Result<(), BenchError> {
        call("computing", self.ni.compute(self.software.receive))
    }

    /// What a copy of so many bytes by the library above Portals takes where time is virtual.
    pub(in crate::bench) fn copying(&self, bytes: u64) -> Result<(), BenchError> {
        let Software {
            copy_start,
            copy_rate,
            ..
        } = self.software;
        match bytes.saturating_mul(1000).checked_div(copy_rate) {
            Some(moving) if bytes > 0 => call("computing", self.ni.compute(copy_start + moving)),
            _ => Ok(()),
        }
    }

    /// Runs `wait`, in which this rank waits for the others by other means than the fabric. Until all
    /// have been here, a message may come before its target has an entry for it.
    pub(in crate::bench) fn outside<R>(&self, wait: impl FnOnce() -> R) -> Result<R, BenchError> {
        call("waiting outside", self.ni.outside(wait))
    }

    pub(in crate::bench) fn rank(&self) -> usize {
        self.rank
    }

    /// All ranks, this one among them.
    pub(in crate::bench) fn peers(&self) -> usize {
        self.peers.len()
    }

    pub(in crate::bench) fn clock(&self) -> ClockKind {
        self.ni.clock()
    }

    /// Nanoseconds of the fabric's clock.
    pub(in crate::bench) fn now(&self) -> u64 {
        self.ni.now()
    }

    /// Nanoseconds since `start`, without what reading the clock takes.
    pub(in crate::bench) fn since(&self, start: u64) -> u64 {
        (self.now() - start).saturating_sub(self.reading)
    }

    /// The events of arrivals.
    pub(in crate::bench) fn arrivals(&self) -> EqHandle {
        self.arrival_eq
    }

    /// The events of this rank's operations.
    pub(in crate::bench) fn own(&self) -> EqHandle {
        self.own_eq
    }

    /// Makes both buffers hold `bytes`, the sent one filled with this rank's pattern.
    pub(in crate::bench) fn buffers(&mut self, bytes: u64) -> Result<usize, BenchError> {
        let len = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
        if self.send.len() < len {
            self.send = self.ni.new_region(len)?;
            self.receive = self.ni.new_region(len)?;
        }
        let pattern: Vec<u8> = (0..len).map(|at| pattern(self.rank, at)).collect();
        self.send.write(0, &pattern)?;
        self.receive.fill(0, len, 0)?;
        Ok(len)
    }

    /// Checks that the first `len` received bytes are those that `from` sends.
    pub(in crate::bench) fn check_received(
        &self,
        from: usize,
        len: usize,
    ) -> Result<(), BenchError> {
        let mut bytes = vec![0; len];
        self.receive.read(0, &mut bytes)?;
        match bytes
            .iter()
            .enumerate()
            .find(|(at, got)| **got != pattern(from, *at))
        {
            None => Ok(()),
            Some((at, &got)) => Err(BenchError::Changed {
                at,
                len,
                got,
                sent: pattern(from, at),
            }),
        }
    }

    /// Opens the received buffer to the peer's puts and the sent one to its gets, behind `decoys`
    /// entries that match nothing. Without a queue the descriptors are of the kind that a fabric with
    /// remote access serves without this rank's processor.
    pub(in crate::bench) fn expose(
        &self,
        access: MdOptions,
        len: usize,
        decoys: u64,
        eq: Option<EqHandle>,
    ) -> Result<Exposed, BenchError> {
        let mut entries = Vec::new();
        for decoy in 0..decoys {
            // One descriptor each, because an entry without one is not walked by every library.
            entries.push(self.attach(!MATCH ^ decoy, MdMemory::Empty, MdOptions::OP_PUT, None)?);
        }
        let region = if access.contains(MdOptions::OP_GET) {
            &self.send
        } else {
            &self.receive
        };
        let memory = MdMemory::Region {
            region: region.clone(),
            offset: 0,
            len,
        };
        let options = access | MdOptions::MANAGE_REMOTE | MdOptions::EVENT_START_DISABLE;
        entries.push(self.attach(MATCH, memory, options, eq)?);
        Ok(Exposed(entries))
    }

    fn attach(
        &self,
        bits: u64,
        memory: MdMemory,
        options: MdOptions,
        eq: Option<EqHandle>,
    ) -> Result<MeHandle, BenchError> {
        let spec = entry(ProcessId::ANY, bits, 0);
        let me = call(
            "PtlMEAttach",
            self.ni.me_attach(DATA, spec, InsertPosition::After),
        )?;
        call(
            "PtlMDAttach",
            self.ni
                .md_attach(me, descriptor(memory, options, eq), Unlink::Retain),
        )?;
        Ok(me)
    }

    /// Takes back what was exposed, with its descriptors.
    pub(in crate::bench) fn withdraw(&self, exposed: Exposed) -> Result<(), BenchError> {
        exposed
            .0
            .into_iter()
            .try_for_each(|me| call("PtlMEUnlink", self.ni.me_unlink(me)))
    }

    /// A descriptor over the first `len` bytes of the sent buffer, for puts.
    pub(in crate::bench) fn source(
        &self,
        len: usize,
        eq: Option<EqHandle>,
    ) -> Result<MdHandle, BenchError> {
        // END events are off: a put is over when its ack has come.
        let options = MdOptions::EVENT_START_DISABLE | MdOptions::EVENT_END_DISABLE;
        self.bind(&self.send, len, options, eq)
    }

    /// A descriptor over the first `len` bytes of the received buffer, for gets.
    pub(in crate::bench) fn destination(&self, len: usize) -> Result<MdHandle, BenchError> {
        self.bind(
            &self.receive,
            len,
            MdOptions::EVENT_START_DISABLE,
            Some(self.own_eq),
        )
    }

    fn bind(
        &self,
        region: &Region,
        len: usize,
        options: MdOptions,
        eq: Option<EqHandle>,
    ) -> Result<MdHandle, BenchError> {
        let memory = MdMemory::Region {
            region: region.clone(),
            offset: 0,
            len,
        };
        call(
            "PtlMDBind",
            self.ni
                .md_bind(descriptor(memory, options, eq), Unlink::Retain),
        )
    }

    /// Takes a bound descriptor back, once its last operation has left this rank: a put without an ack
    /// may arrive before its sender knows that it was sent.
    pub(in crate::bench) fn unbind(&self, md: MdHandle) -> Result<(), BenchError> {
        for _ in 0..UNBIND_TRIES {
            match self.ni.md_unlink(md) {
                Err(Error::MdInUse) => self.ni.eq_poll(&[self.own_eq], UNBIND_PAUSE)?,
                other => return call("PtlMDUnlink", other),
            };
        }
        call("PtlMDUnlink", Err(Error::MdInUse))
    }

    /// Puts the whole of `md` to rank `to`.
    pub(in crate::bench) fn put(
        &self,
        md: MdHandle,
        ack: AckRequest,
        to: usize,
    ) -> Result<(), BenchError> {
        self.put_with(md, ack, to, 0)
    }

    /// The same, with 64 bits of one's own.
    pub(in crate::bench) fn put_with(
        &self,
        md: MdHandle,
        ack: AckRequest,
        to: usize,
        header_data: u64,
    ) -> Result<(), BenchError> {
        let target = self.target(to, DATA, MATCH);
        call("PtlPut", self.ni.put(md, ack, target, header_data))
    }

    /// Gets the whole of `md` from rank `from`.
    pub(in crate::bench) fn get(&self, md: MdHandle, from: usize) -> Result<(), BenchError> {
        call("PtlGet", self.ni.get(md, self.target(from, DATA, MATCH)))
    }

    fn target(&self, rank: usize, pt_index: u32, match_bits: u64) -> Target {
        Target {
            process: self.peers[rank],
            pt_index,
            ac_index: 0,
            match_bits,
            remote_offset: 0,
        }
    }

    /// Waits for the next event of `eq`, which must be `expected` and a success; its 64 bits of header data.
    pub(in crate::bench) fn wait(
        &mut self,
        eq: EqHandle,
        expected: EventKind,
    ) -> Result<u64, BenchError> {
        let taken = self.ni.eq_take(&[eq], Wait::Forever, &mut self.polled);
        if call("PtlEQWait", taken.map_err(|e| e.error))? == Taken::Nothing {
            return call("PtlEQWait", Err(Error::Fail));
        }
        if self.polled.dropped {
            return Err(BenchError::Dropped);
        }
        let event = &self.polled.event;
        if event.ni_fail != NiFail::OK {
            return Err(BenchError::Failed {
                kind: event.kind,
                code: event.ni_fail.0,
            });
        }
        if event.kind != expected {
            return Err(BenchError::Event {
                got: event.kind,
                expected,
            });
        }
        Ok(event.hdr_data)
    }

    /// Waits until all ranks are here: in round k each tells the rank 2^k above it.
    pub(in crate::bench) fn barrier(&mut self) -> Result<(), BenchError> {
        self.epoch += 1;
        let size = self.peers.len();
        let rounds = (0_u64..)
            .map(|k| (k, 1_usize << k))
            .take_while(|(_, distance)| *distance < size);
        for (round, distance) in rounds {
            let token = self.epoch << 8 | round;
            let to = self.target((self.rank + distance) % size, SYNC, 0);
            call(
                "PtlPut",
                self.ni.put(self.sync_md, AckRequest::NoAck, to, token),
            )?;
            while !self.early.remove(&token) {
                let came = self.wait(self.sync_eq, EventKind::PutEnd)?;
                self.early.insert(came);
            }
        }
        Ok(())
    }

    /// Closes the interface.
    pub(in crate::bench) fn close(self) -> Result<(), BenchError> {
        call("PtlNIFini", self.ni.close())
    }
}

/// Byte `at` of what rank `rank` sends; never 0, which is what a buffer holds before.
fn pattern(rank: usize, at: usize) -> u8 {
    let mixed = at
        .wrapping_mul(31)
        .wrapping_add(at >> 8)
        .wrapping_add(rank * 7);
    mixed.to_le_bytes()[0] | 1
}

fn entry(from: ProcessId, match_bits: u64, ignore_bits: u64) -> MeSpec {
    MeSpec {
        match_id: from,
        match_bits,
        ignore_bits,
        unlink: Unlink::Retain,
    }
}

fn descriptor(memory: MdMemory, options: MdOptions, eq: Option<EqHandle>) -> MdSpec {
    MdSpec {
        memory,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options,
        user_ptr: 0,
        eq,
    }
}
