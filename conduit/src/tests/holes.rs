//! Units that are memory in part: every piece of them is pinned, and memory that comes to them later.
// UNSAFETY: maps and unmaps memory, and attaches without a segment; each test keeps what it names alive up to its last
// barrier.
#![expect(
    unsafe_code,
    reason = "mappings, and `attach_everything` with calls that name memory by its address"
)]

use super::everything::{attach, stats};
use super::{pattern, returned};
use crate::{BarrierName, Conduit, FirehoseStats, RmaError, threads};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;

const PAGE: usize = 4096;
const LEN: usize = 64 * PAGE;

/// Memory of [`LEN`] bytes, of which pages can be taken away and come back.
struct Holed(*mut c_void);

impl Holed {
    fn new() -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: where nothing is.
        Self(unsafe { mmap_anonymous(null_mut(), LEN, rights, MapFlags::PRIVATE) }.unwrap())
    }

    fn addr(&self) -> u64 {
        self.0.expose_provenance() as u64
    }

    fn set(&self, page: usize, pages: usize, rights: MprotectFlags) {
        let from = self.0.wrapping_byte_add(page * PAGE);
        // SAFETY: pages of this mapping, which nobody borrows.
        unsafe { mprotect(from, pages * PAGE, rights) }.unwrap();
    }

    fn hide(&self, page: usize, pages: usize) {
        self.set(page, pages, MprotectFlags::empty());
    }

    fn show(&self, page: usize, pages: usize) {
        self.set(page, pages, MprotectFlags::READ | MprotectFlags::WRITE);
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let from = self.0.cast::<u8>().wrapping_add(at);
        // SAFETY: memory of this mapping, read after a barrier.
        unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
    }
}

impl Drop for Holed {
    fn drop(&mut self) {
        // SAFETY: nothing is borrowed of it any more.
        unsafe { munmap(self.0, LEN) }.unwrap();
    }
}

/// Of two ranks; what each says at the end.
fn job(
    variables: &[(&str, &str)],
    body: impl Fn(&Conduit, &Holed, &[u64]) + Sync,
) -> Vec<FirehoseStats> {
    returned(threads::run_in(2, variables, |conduit| {
        let memory = Holed::new();
        // Whatever unit has it, peers find holes in it.
        for page in [3, 8, 9, 20, 35, 50] {
            memory.hide(page, 1);
        }
        let addrs = attach(conduit, memory.addr());
        body(conduit, &memory, &addrs);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let s = stats(conduit);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        s
    }))
}

/// First page and pages of what is memory.
const PIECES: [(usize, usize); 6] = [(0, 3), (4, 4), (10, 10), (21, 14), (36, 14), (51, 13)];

/// Puts and gets of all of each piece, by messages; what is in no piece is an error, and so is what reaches into a hole.
#[test]
fn every_piece_of_a_unit_is_pinned() {
    for size in ["1M", "64K", "4K"] {
        let variables = [
            ("GASNET_FIREHOSE_M", "8M"),
            ("GASNET_FIREHOSE_MAXVICTIM_M", "8M"),
            ("GASNET_FIREHOSE_MAXREGION_SIZE", size),
        ];
        let said = job(&variables, |conduit, memory, addrs| {
            let peer = 1 - conduit.mynode();
            let there = addrs[peer as usize];
            for (page, pages) in PIECES {
                let (at, len) = (page * PAGE, pages * PAGE);
                let data = pattern(page + peer as usize, len);
                let to = there + at as u64;
                conduit.put(peer, to, &data[..len - 8]).unwrap();
                conduit
                    .put(peer, to + len as u64 - 8, &data[len - 8..])
                    .unwrap();
                let mut back = vec![0; len];
                conduit.get(&mut back, peer, to).unwrap();
                assert!(back == data, "piece at page {page}");
                conduit.get(&mut back[..100], peer, to + 1).unwrap();
                assert!(back[..100] == data[1..101], "piece at page {page}");
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
            for (page, pages) in PIECES {
                let expected = pattern(page + conduit.mynode() as usize, pages * PAGE);
                assert!(memory.read(page * PAGE, pages * PAGE) == expected);
            }
            let stats = stats(conduit);
            assert_eq!(stats.copies, 0, "{stats:?}");
            let hole = there + 8 * PAGE as u64;
            for (addr, len) in [(hole, 8), (hole, 5000), (hole - 4, 8), (hole - 4000, 5000)] {
                let of_the_hole = |refused| match refused {
                    Err(RmaError::Unmapped {
                        node,
                        addr: at,
                        len: n,
                    }) => node == peer && at >= addr && at + n as u64 > hole && n <= len,
                    _ => false,
                };
                let put = conduit.put(peer, addr, &vec![1; len]);
                assert!(of_the_hole(put), "{put:?}");
                let got = conduit.get(&mut vec![0; len], peer, addr);
                assert!(of_the_hole(got), "{got:?}");
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
        });
        for s in said {
            assert!(s.pinned <= s.limits.0 + s.limits.2, "{s:?}");
        }
    }
}

/// Pages come into units that peers hold and use; they are reached by messages, and a piece across is too.
#[test]
fn memory_that_comes_to_a_unit_is_pinned() {
    for size in ["1M", "64K"] {
        let variables = [("GASNET_FIREHOSE_MAXREGION_SIZE", size)];
        let said = job(&variables, |conduit, memory, addrs| {
            let (me, peer) = (conduit.mynode() as usize, 1 - conduit.mynode());
            let there = addrs[peer as usize];
            for (page, _) in PIECES {
                conduit
                    .put(peer, there + (page * PAGE) as u64, &[7; 64])
                    .unwrap();
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
            for (round, page) in [8, 3, 9, 20, 50, 35].into_iter().enumerate() {
                memory.show(page, 1);
                conduit.barrier(BarrierName::Anonymous).unwrap();
                // What comes, and what was there on both sides.
                for (from, to) in [(0, PAGE), (PAGE - 100, 100)] {
                    let at = (page - 1) * PAGE + PAGE - if from == 0 { 0 } else { 100 };
                    let len = if from == 0 { to } else { to + 100 };
                    let data = pattern(round + me, len);
                    conduit.put(peer, there + at as u64, &data).unwrap();
                    let mut back = vec![0; len];
                    conduit.get(&mut back, peer, there + at as u64).unwrap();
                    assert!(back == data, "page {page}");
                }
                conduit.barrier(BarrierName::Anonymous).unwrap();
            }
            let data = pattern(99 + me, LEN);
            conduit.put(peer, there, &data).unwrap();
            conduit.barrier(BarrierName::Anonymous).unwrap();
            assert!(memory.read(0, LEN) == pattern(99 + 1 - me, LEN));
        });
        for s in said {
            assert_eq!(s.copies, 0, "{s:?}");
        }
    }
}

/// A put that is not waited for returns while the owner makes no call, whichever piece it is for.
#[test]
fn a_put_to_any_piece_waits_for_nobody() {
    let variables = [
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "1M"),
        ("GASNET_FIREHOSE_TIMEOUT", "5"),
    ];
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let ends = std::sync::Mutex::new((Some(tell), Some(told)));
    job(&variables, |conduit, memory, addrs| {
        let there = addrs[1];
        let put = |fill: u8| {
            let handles = PIECES.map(|(page, pages)| {
                let to = there + (page * PAGE) as u64;
                conduit.put_nb(1, to, &vec![fill; pages * PAGE]).unwrap()
            });
            handles.into_iter().for_each(|h| conduit.wait(h));
        };
        if conduit.mynode() == 0 {
            put(1);
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        if conduit.mynode() == 0 {
            // Goes with this rank, however it ends.
            let _tell = ends.lock().unwrap().0.take();
            for (page, pages) in PIECES {
                let to = there + (page * PAGE) as u64;
                conduit.put_nbi(1, to, &vec![2; pages * PAGE]).unwrap();
            }
        } else {
            let told = ends.lock().unwrap().1.take().unwrap();
            assert!(told.recv().is_err(), "nothing is sent");
        }
        conduit.wait_nbi_all();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        if conduit.mynode() == 1 {
            for (page, pages) in PIECES {
                let seen = memory.read(page * PAGE, pages * PAGE);
                assert!(seen.iter().all(|b| *b == 2), "page {page}");
            }
        }
    });
}
