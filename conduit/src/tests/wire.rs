//! The in-process fabric with a record of what ranks send. It says when a rank waits for another one, and keeps the memory
//! that a rank sends from for as long as a test wants.
// UNSAFETY: puts a fabric of its own under an interface, and promises what that does to memory.
#![expect(unsafe_code, reason = "`Trust::new` is unsafe")]

use super::returned;
use crate::{Conduit, threads};
use portals_shim::core::{Header, Limits, Ni, NiConfig, NiFail, OpId, ReadyPut, Transmit};
use portals_shim::fabric::{Opened, Placement};
use portals_shim::nal::inproc::{Hub, InProc};
use portals_shim::nal::{Look, Nal, Outcome};
use portals_shim::{Interface, ProcessId, Put, RemoteKey, Trust};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Looks in a row that find nothing, after which a rank is said to wait.
const VAIN: u32 = 100;

#[derive(Debug, Default)]
struct End {
    sent: Mutex<Vec<Header>>,
    /// Looks that have found nothing since the rank sent or found something.
    vain: AtomicU32,
    keeps: AtomicBool,
}

/// What is known of the ranks of a job.
#[derive(Debug)]
pub(super) struct Wire {
    ends: Vec<End>,
}

impl Wire {
    /// So many of the messages that a rank has sent are such; answers of the interface are not among them.
    pub(super) fn count(&self, rank: u32, such: impl Fn(&Header) -> bool) -> usize {
        let sent = self.ends[rank as usize].sent.lock().unwrap();
        sent.iter().filter(|h| such(h)).count()
    }

    /// Forgets what a rank has sent.
    pub(super) fn forget(&self, rank: u32) {
        self.ends[rank as usize].sent.lock().unwrap().clear();
    }

    /// Waits until a rank does nothing but look for messages in vain. Whatever it waits for comes from the caller, who
    /// looks for none meanwhile.
    pub(super) fn until_waits(&self, rank: u32) {
        let vain = &self.ends[rank as usize].vain;
        vain.store(0, Ordering::SeqCst);
        while vain.load(Ordering::SeqCst) < VAIN {
            std::thread::yield_now();
        }
    }

    /// Whether what a rank sends keeps its memory from now on; what was kept is free at the rank's next look after `false`.
    pub(super) fn keep(&self, rank: u32, keeps: bool) {
        self.ends[rank as usize]
            .keeps
            .store(keeps, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Recorded {
    inner: InProc,
    own: usize,
    wire: Arc<Wire>,
    kept: Vec<OpId>,
}

impl Recorded {
    fn end(&self) -> &End {
        &self.wire.ends[self.own]
    }

    fn record(&self, header: &Header) {
        self.end().sent.lock().unwrap().push(*header);
        self.end().vain.store(0, Ordering::SeqCst);
    }

    fn keeps(&self) -> bool {
        self.end().keeps.load(Ordering::SeqCst)
    }
}

impl Nal for Recorded {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        self.record(&tx.header);
        if self.keeps() {
            self.kept.extend(tx.op.take());
        }
        self.inner.send(ni, tx, key);
    }

    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        if self.keeps() {
            return Outcome::Declined;
        }
        let outcome = self.inner.put(ni, ready, put);
        if outcome == Outcome::Taken {
            self.record(&ready.header);
        }
        outcome
    }

    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        let mut any = self.inner.progress(ni, look);
        if !self.keeps() {
            for op in self.kept.drain(..) {
                ni.send_end(op, NiFail::OK);
                any = true;
            }
        }
        let vain = &self.end().vain;
        if any {
            vain.store(0, Ordering::SeqCst);
        } else {
            vain.fetch_add(1, Ordering::SeqCst);
        }
        any
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.inner.distance(to)
    }
}

/// Runs `rank` on ranks that are threads, with these variables in the environment of the conduit, and gives what each
/// returned.
pub(super) fn run<R: Send + std::fmt::Debug>(
    ranks: u32,
    variables: &[(&str, &str)],
    rank: impl Fn(&Conduit, &Wire) -> R + Sync,
) -> Vec<R> {
    let ends = (0..ranks).map(|_| End::default()).collect();
    let wire = Arc::new(Wire { ends });
    let ids: Vec<ProcessId> = (0..ranks).map(|r| Placement::ONE.of(r)).collect();
    let hub = Hub::new(ids.clone(), Placement::ONE);
    // SAFETY: `Recorded` makes no descriptor, and sends what it was given.
    let trust = unsafe { Trust::new() };
    let opened = (0..ranks).map(|own| {
        let config = NiConfig {
            id: ids[own as usize],
            uid: 1,
            jid: 1,
            interface: 0,
            limits: Limits::LIBRARY,
            get_send_events: false,
        };
        let nal = Recorded {
            inner: InProc::new(hub.clone(), own, trust),
            own: own as usize,
            wire: wire.clone(),
            kept: Vec::new(),
        };
        Opened {
            interface: Interface::over(Ni::new(config), nal, trust),
            peers: ids.clone(),
        }
    });
    returned(threads::run_over(opened.collect(), variables, |conduit| {
        let result = rank(&conduit, &wire);
        conduit.finish();
        result
    }))
}
