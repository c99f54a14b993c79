//! Operations of the libfabric provider's engine, as a program calls it through libfabric, between two endpoints over shared memory that
//! one thread drives.

use ofi_engine::addresses::Addresses;
use ofi_engine::atomic::{Datatype, Operation};
use ofi_engine::completion::{Op, Queue, Reports, ReportsId, flags};
use ofi_engine::memory::Buffer;
use ofi_engine::{
    Access, AtomicCall, Endpoint, Message, OpenError, ProcessId, Refused, Remote, Wanted,
};
use portals_shim::endpoint::AddressError;
use portals_shim::fabric::{FabricConfig, FabricKind};
use std::sync::Arc;
use std::time::Duration;

/// Messages of a window.
pub const WINDOW: u64 = 64;
const TAG: u64 = 5;
/// The key of the memory of each endpoint.
const KEY: u64 = 7;

/// Why there is no pair.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// Of an endpoint.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Of the other's address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Of an operation.
    #[error(transparent)]
    Refused(#[from] Refused),
}

#[derive(Debug)]
struct Side {
    endpoint: Endpoint,
    queue: Arc<Queue>,
    reports: ReportsId,
    addresses: Arc<Addresses>,
    peer: Option<ProcessId>,
}

impl Side {
    fn open(config: &FabricConfig) -> Result<Self, OpenError> {
        let endpoint = Endpoint::open(config)?;
        let (queue, addresses): (Arc<Queue>, Arc<Addresses>) = Default::default();
        let reports = endpoint.report_to(Reports {
            queue: Some(Arc::clone(&queue)),
            counter: None,
            addresses: Some(Arc::clone(&addresses)),
        });
        Ok(Self {
            endpoint,
            queue,
            reports,
            addresses,
            peer: None,
        })
    }

    fn op(&self, flags: u64) -> Op {
        Op {
            flags,
            told: true,
            reports: Some(self.reports),
            ..Op::default()
        }
    }

    /// Makes progress, and says how many completions there were; `None` after a failure.
    fn take(&self) -> Option<usize> {
        self.endpoint.progress(Duration::ZERO);
        self.queue.take(16, |_, _| {}).ok()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}

/// Two endpoints.
#[derive(Debug)]
pub struct Endpoints {
    sides: [Side; 2],
    /// What each sends, and where it receives.
    out: [Buffer; 2],
    into: [Buffer; 2],
}

impl Endpoints {
    /// Both know each other, and each has memory that the other may read and write. An operation is of `len` bytes.
    ///
    /// # Errors
    /// Shared memory cannot be used here.
    pub fn new(len: usize) -> Result<Self, PairError> {
        let config = FabricConfig {
            fabric: FabricKind::Shm.into(),
            ..FabricConfig::default()
        };
        let mut sides = [Side::open(&config)?, Side::open(&config)?];
        let addresses = sides.each_ref().map(|side| side.endpoint.address());
        let both = Access {
            read: true,
            write: true,
        };
        let leaked = || Buffer::of_leaked(Box::leak(vec![1; len].into()));
        for (side, bytes) in sides.iter_mut().zip([addresses[1], addresses[0]]) {
            let (_, address) = side.addresses.insert(&bytes)?;
            side.peer = Some(side.endpoint.connect(&address)?);
            side.endpoint.register(KEY, &leaked(), both)?;
        }
        Ok(Self {
            sides,
            out: [leaked(), leaked()],
            into: [leaked(), leaked()],
        })
    }

    fn receive(&self, at: usize) {
        let side = &self.sides[at];
        let wanted = Wanted {
            from: side.peer,
            tag: TAG,
            ignore: 0,
        };
        let op = side.op(flags::RECV | flags::TAGGED);
        let into = self.into[at].clone();
        side.endpoint.receive(true, wanted, into, None, op);
    }

    fn send(&self, from: usize, inject: bool) -> bool {
        let message = Message {
            tag: Some(TAG),
            data: None,
            inject,
        };
        self.retried(from, flags::SEND | flags::TAGGED, |side, peer, op| {
            let out = self.out[from].clone();
            side.endpoint.send(peer, message, out, op)
        })
    }

    /// Begins an operation, when there is room for it.
    fn retried(
        &self,
        at: usize,
        flags: u64,
        begin: impl Fn(&Side, ProcessId, Op) -> Result<(), Refused>,
    ) -> bool {
        let side = &self.sides[at];
        let Some(peer) = side.peer else { return false };
        loop {
            match begin(side, peer, side.op(flags)) {
                Ok(()) => return true,
                Err(Refused::Again) => {
                    for side in &self.sides {
                        side.endpoint.progress(Duration::ZERO);
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Takes so many completions of each side; whether none was a failure.
    fn end(&self, mut due: [usize; 2]) -> bool {
        while due != [0, 0] {
            for (side, due) in self.sides.iter().zip(&mut due) {
                match side.take() {
                    Some(taken) if taken <= *due => *due -= taken,
                    _ => return false,
                }
            }
        }
        true
    }

    /// A message there and one back, whose receives are posted; whether both came.
    #[must_use]
    pub fn round_trip(&self) -> bool {
        self.message(0, false) && self.message(1, false)
    }

    /// The same of messages whose memory is free at once.
    #[must_use]
    pub fn injected_round_trip(&self) -> bool {
        self.message(0, true) && self.message(1, true)
    }

    fn message(&self, from: usize, inject: bool) -> bool {
        self.receive(1 - from);
        self.send(from, inject) && self.end([1, 1])
    }

    /// A message there and one back that nobody has asked for when it comes.
    #[must_use]
    pub fn unexpected_round_trip(&self) -> bool {
        [0, 1].into_iter().all(|from| {
            let to = 1 - from;
            let sent = self.send(from, false);
            self.sides[to].endpoint.progress(Duration::ZERO);
            self.receive(to);
            sent && self.end([1, 1])
        })
    }

    /// A window of messages to the second side, whose receives were all posted before.
    #[must_use]
    pub fn window(&self) -> bool {
        (0..WINDOW).for_each(|_| self.receive(1));
        let sent = (0..WINDOW).all(|_| self.send(0, false));
        sent && self.end([WINDOW as usize; 2])
    }

    /// A write to the other's memory, and a read of it.
    #[must_use]
    pub fn write_and_read(&self) -> bool {
        let remote = Remote {
            offset: 0,
            key: KEY,
        };
        let written = self.retried(0, flags::RMA | flags::WRITE, |side, peer, op| {
            let out = self.out[0].clone();
            side.endpoint.write(peer, remote, out, (None, false), op)
        });
        written
            && self.end([1, 0])
            && self.retried(0, flags::RMA | flags::READ, |side, peer, op| {
                let into = self.into[0].clone();
                side.endpoint.read(peer, remote, into, op)
            })
            && self.end([1, 0])
    }

    /// Adds to numbers of the other, and fetches what they were. Of endpoints with operations of 8 bytes.
    #[must_use]
    pub fn fetch_add(&self) -> bool {
        let call = AtomicCall {
            datatype: Datatype::U64,
            operation: Operation::Sum,
            compare: None,
            result: Some(self.into[0].clone()),
        };
        let remote = Remote {
            offset: 0,
            key: KEY,
        };
        let begun = self.retried(0, flags::RMA, |side, peer, op| {
            let call = call.clone();
            side.endpoint.atomic(peer, remote, &self.out[0], call, op)
        });
        begun && self.end([1, 0])
    }
}
