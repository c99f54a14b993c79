//! Ranks that cannot be reached any more: whatever the others are in, the job ends and says which rank it was.
// UNSAFETY: puts a fabric of its own under an interface, and promises what that does to memory.
#![expect(unsafe_code, reason = "`Trust::new` is unsafe")]

use crate::conduit::Conduit;
use crate::threads::{self, RankEnd};
use crate::{BarrierName, HandlerEntry};
use portals_shim::core::{Limits, Ni, NiConfig, NiFail, ReadyPut, Transmit};
use portals_shim::fabric::{Opened, Placement};
use portals_shim::nal::inproc::{Hub, InProc};
use portals_shim::nal::{Look, Nal, Outcome};
use portals_shim::{Interface, ProcessId, Put, RemoteKey, Trust};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the fabric says of messages to a rank that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// They fail, one by one.
    Failed,
    /// They were sent; later, that the rank is given up.
    GivenUp,
    /// Memory of who sends them could not be read.
    OwnMemory,
}

/// The in-process fabric, on which one rank can vanish.
#[derive(Debug)]
struct Frail {
    inner: InProc,
    gone: ProcessId,
    cut: Arc<AtomicBool>,
    says: Says,
    lost: bool,
    told: bool,
}

impl Frail {
    fn is_cut(&self, target: ProcessId) -> bool {
        target == self.gone && self.cut.load(Ordering::SeqCst)
    }
}

impl Nal for Frail {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        if !self.is_cut(tx.header.target) {
            return self.inner.send(ni, tx, key);
        }
        let fail = match self.says {
            Says::Failed => NiFail::FAIL,
            Says::GivenUp => NiFail::OK,
            Says::OwnMemory => NiFail::SEGV,
        };
        if let Some(op) = tx.op {
            ni.send_end(op, fail);
        }
        if fail != NiFail::OK {
            ni.ack_lost(&tx.header, fail);
        }
        self.lost = self.says != Says::OwnMemory;
    }

    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        match self.is_cut(ready.header.target) {
            true => Outcome::Declined,
            false => self.inner.put(ni, ready, put),
        }
    }

    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        let any = self.inner.progress(ni, look);
        // Of a get nothing else tells.
        if !self.lost || self.told {
            return any;
        }
        self.told = true;
        ni.lost(self.gone);
        true
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.inner.distance(to)
    }
}

const RANKS: u32 = 3;
const GONE: u32 = 2;
const IDLE: u8 = 200;

/// Runs `call` on every rank but the one that vanishes, which waits.
fn ends(says: Says, call: impl Fn(Conduit, u64) + Sync) -> Vec<RankEnd<()>> {
    let place = Placement::ONE;
    let ids: Vec<ProcessId> = (0..RANKS).map(|r| place.of(r)).collect();
    let hub = Hub::new(ids.clone(), place);
    let cut = Arc::new(AtomicBool::new(false));
    // SAFETY: `Frail` makes no descriptor, and sends what it was given.
    let trust = unsafe { Trust::new() };
    let opened = (0..RANKS).map(|own| {
        let config = NiConfig {
            id: ids[own as usize],
            uid: 1,
            jid: 1,
            interface: 0,
            limits: Limits::LIBRARY,
            get_send_events: false,
        };
        let nal = Frail {
            inner: InProc::new(hub.clone(), own, trust),
            gone: ids[GONE as usize],
            cut: cut.clone(),
            says,
            lost: false,
            told: false,
        };
        Opened {
            interface: Interface::over(Ni::new(config), nal, trust),
            peers: ids.clone(),
        }
    });
    let variables = [("GASNET_EXITTIMEOUT", "20")];
    threads::run_over(opened.collect(), &variables, |conduit| {
        let idle = HandlerEntry::new(IDLE, |_, _, _| {});
        conduit.attach(vec![idle], 4096).unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let there = conduit.segment(GONE).addr;
        if conduit.mynode() == GONE {
            cut.store(true, Ordering::SeqCst);
            conduit.block_until(|| false);
        }
        while !cut.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        call(conduit, there);
    })
}

/// All end with the same line, which names a rank that called, the call, and the rank that is gone.
fn named(what: &str, says: Says, ends: &[RankEnd<()>]) {
    for end in ends {
        let RankEnd::Aborted(line) = end else {
            panic!("{what}, {says:?}: {end:?}")
        };
        let caller = (0..GONE).any(|r| line.starts_with(&format!("rank {r} of 3: {what}: ")));
        let fault = line.contains("node 2 cannot be reached (") && line.ends_with("PTL_NI_FAIL)");
        assert!(caller && fault, "{what}, {says:?}: {line}");
    }
}

#[test]
fn every_call_that_waits_for_it_ends_the_job() {
    for says in [Says::Failed, Says::GivenUp] {
        let barrier = ends(says, |c, _| c.barrier(BarrierName::Anonymous).unwrap());
        named("barrier wait", says, &barrier);
        let put = ends(says, |c, there| c.put(GONE, there, &[1; 8]).unwrap());
        named("waiting for puts and gets", says, &put);
        let long = ends(says, |c, there| c.put(GONE, there, &[1; 4096]).unwrap());
        // Whichever of its events comes first.
        let sending = says == Says::Failed;
        let what = ["waiting for puts and gets", "sending from lent memory"];
        named(what[usize::from(sending)], says, &long);
        let get = ends(says, |c, there| c.get(&mut [0; 64], GONE, there).unwrap());
        named("waiting for puts and gets", says, &get);
        let short = ends(says, |c, _| {
            c.am_request_short(GONE, IDLE, &[]).unwrap();
            c.block_until(|| false);
        });
        named("polling", says, &short);
        let exit = ends(says, |c, _| c.exit(3));
        named("exit", says, &exit);
        let finish = ends(says, |c, _| c.finish());
        named("meeting the other ranks", says, &finish);
    }
}

/// Credits and chunks of lost messages do not come back; a rank that runs out of them does not wait for ever.
#[test]
fn a_flood_of_requests_to_it_ends_the_job() {
    for says in [Says::Failed, Says::GivenUp] {
        let flood = ends(says, |c, _| {
            loop {
                c.am_request_medium(GONE, IDLE, &[7; 500], &[1]).unwrap();
            }
        });
        for end in &flood {
            let RankEnd::Aborted(line) = end else {
                panic!("{says:?}: {end:?}")
            };
            assert!(line.contains("node 2 cannot be reached ("), "{line}");
        }
    }
}

/// A rank whose own memory could not be read says so, and blames nobody else.
#[test]
fn memory_of_the_own_node_is_not_the_fault_of_a_peer() {
    let says = Says::OwnMemory;
    let put = ends(says, |c, there| c.put(GONE, there, &[1; 8]).unwrap());
    let with = ", in an operation with node 2 (Ack, PTL_NI_SEGV)";
    let barrier = ends(says, |c, _| c.barrier(BarrierName::Anonymous).unwrap());
    let alone = "(SendEnd, PTL_NI_SEGV)";
    for (ends, end) in [(put, with), (barrier, alone)] {
        for ended in &ends {
            let RankEnd::Aborted(line) = ended else {
                panic!("{ended:?}")
            };
            let own = line.contains("this node's own memory could not be read or written");
            assert!(own && line.ends_with(end), "{line}");
            assert!(!line.contains("cannot be reached"), "{line}");
        }
    }
}
