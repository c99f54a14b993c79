//! Operations of many pieces, memset, and the implicit operations of several threads.

use super::limits::sent_to_the_deaf;
use super::{pattern, returned};
use crate::matchbits::{Kind, kind};
use crate::{
    AttachError, BarrierName, Conduit, Counted, Handle, HandlerEntry, Piece, RmaError, threads,
};
use portals_shim::core::Header;
use std::cell::Cell;
use std::rc::Rc;

const SIZE: usize = 1 << 20;

fn with(body: impl Fn(&Conduit) + Sync) {
    let ends = threads::run(2, |conduit| {
        conduit.attach(vec![], SIZE).unwrap();
        body(conduit);
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

#[test]
fn pieces_arrive_where_they_belong_and_nowhere_else() {
    with(|conduit| {
        let peer = 1 - conduit.mynode();
        let seg = conduit.segment(peer);
        let own = conduit.local_segment().unwrap();
        let base = own.addr();
        own.write(SIZE / 2, &pattern(9, 30_000)).unwrap();
        let implicit = conduit
            .memset(peer, seg.addr, 0xee, 100_000, Counted::Implicit)
            .unwrap();
        assert_eq!(implicit, Handle::DONE);
        conduit.wait_nbi_all();
        let lens = [0usize, 1, 100, 2048, 5000, 7];
        let mut pieces = vec![];
        let (mut from, mut to) = (SIZE / 2, 10);
        for len in lens {
            let local = std::ptr::with_exposed_provenance_mut((base as usize) + from);
            pieces.push(Piece {
                remote: seg.addr + to,
                local,
                len,
            });
            from += len;
            to += 2 * len as u64 + 3;
        }
        // SAFETY: the memory is the own segment's, which nothing changes before the wait.
        #[expect(unsafe_code, reason = "raw pieces of the own segment")]
        let put = unsafe {
            conduit.transfer_pieces(peer, false, Counted::Explicit, pieces.iter().copied())
        };
        conduit.wait(put.unwrap());
        let mut back = vec![0; 100_000];
        conduit.get(&mut back, peer, seg.addr).unwrap();
        let mut want = vec![0xee; 100_000];
        let data = pattern(9, 30_000);
        let (mut from, mut to) = (0, 10);
        for len in lens {
            want[to..to + len].copy_from_slice(&data[from..from + len]);
            from += len;
            to += 2 * len + 3;
        }
        assert!(back == want);
        let bad = Piece {
            remote: seg.addr + seg.size,
            local: std::ptr::null_mut(),
            len: 1,
        };
        // SAFETY: refused before the memory is looked at.
        #[expect(unsafe_code, reason = "raw pieces")]
        let refused =
            unsafe { conduit.transfer_pieces(peer, true, Counted::Explicit, [bad].into_iter()) };
        let (node, addr, len) = (peer, seg.addr + seg.size, 1);
        assert_eq!(refused, Err(RmaError::Remote { node, addr, len }));
    });
}

/// Programs move data within their own segment by puts and gets that name their own node, to where it is already, too.
#[test]
#[expect(unsafe_code, reason = "addresses within the own segment")]
fn ranges_within_the_own_segment_may_overlap() {
    const AT: usize = 4096;
    with(|conduit| {
        let me = conduit.mynode();
        let own = conduit.local_segment().unwrap();
        let data = pattern(3, 5000);
        let place = |at: usize| std::ptr::with_exposed_provenance_mut(own.addr() as usize + at);
        let there = |at: usize| conduit.segment(me).addr + at as u64;
        for (by, len) in [(0, 5000), (1, 5000), (3, 8), (4095, 5000)] {
            let arrived = |what: &str| {
                let mut out = vec![0; len];
                own.read(AT + by, &mut out).unwrap();
                assert!(out == data[..len], "{what}, {len} bytes by {by}");
                own.write(AT, &data).unwrap();
            };
            own.write(AT, &data).unwrap();
            // SAFETY: the memory is the own segment's, which nobody else uses.
            let put = unsafe { conduit.put_nb_raw(me, there(AT + by), place(AT), len, true) };
            conduit.wait(put.unwrap());
            arrived("put");
            // SAFETY: as above.
            let get = unsafe { conduit.get_nb_raw(place(AT + by), me, there(AT), len) };
            conduit.wait(get.unwrap());
            arrived("get");
            let near = conduit.near();
            // SAFETY: as above.
            let put = unsafe { near.put_raw(me, there(AT + by), place(AT), len) };
            assert!(put);
            arrived("put by a copy");
            // SAFETY: as above.
            let get = unsafe { near.get_raw(place(AT + by), me, there(AT), len) };
            assert!(get);
            arrived("get by a copy");
        }
    });
}

#[test]
fn memset_fills_exactly_its_range() {
    with(|conduit| {
        let peer = 1 - conduit.mynode();
        let there = conduit.segment(peer).addr;
        for (at, len, value) in [
            (3u64, 0usize, 1u8),
            (5, 1, 2),
            (4096, 10_001, 3),
            (100, 2048, 4),
        ] {
            let handle = conduit
                .memset(peer, there + at, value, len, Counted::Explicit)
                .unwrap();
            conduit.wait(handle);
            let mut back = vec![9; len + 2];
            conduit.get(&mut back, peer, there + at - 1).unwrap();
            assert!(back[1..=len].iter().all(|b| *b == value));
            assert!(back[0] != value && back[len + 1] != value);
        }
        let end = there + SIZE as u64;
        let beyond = conduit.memset(peer, end, 0, 1, Counted::Explicit);
        let (node, addr, len) = (peer, end, 1);
        assert_eq!(beyond, Err(RmaError::Remote { node, addr, len }));
    });
}

#[test]
fn threads_wait_for_their_own_implicit_operations() {
    with(|conduit| {
        let peer = 1 - conduit.mynode();
        let there = conduit.segment(peer).addr;
        let mut other = conduit.new_implicit().unwrap();
        conduit.begin_nbi_region().unwrap();
        conduit.put_nbi(peer, there, &[1; 8]).unwrap();
        conduit.swap_implicit(&mut other);
        conduit.put_nbi(peer, there + 8, &[2; 8]).unwrap();
        conduit.wait_nbi_all();
        conduit.begin_nbi_region().unwrap();
        let second = conduit.end_nbi_region().unwrap();
        conduit.swap_implicit(&mut other);
        let first = conduit.end_nbi_region().unwrap();
        conduit.wait(first);
        conduit.wait(second);
        let mut back = [0; 16];
        conduit.get(&mut back, peer, there).unwrap();
        assert_eq!(back, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    });
}

#[test]
fn layers_have_handlers_of_their_own() {
    let ends = threads::run(2, |conduit| {
        let seen = Rc::new(Cell::new(0));
        let counter = seen.clone();
        let layer = HandlerEntry::new(100, move |_, _, args| counter.set(args[0]));
        conduit.register_extended(vec![layer]).unwrap();
        let client = HandlerEntry::new(128, |_, _, _| {});
        let refused = conduit.register_extended(vec![client]);
        assert!(
            matches!(refused, Err(AttachError::HandlerIndex { index: 128 })),
            "{refused:?}"
        );
        conduit.attach(vec![], 4096).unwrap();
        conduit
            .am_request_short(1 - conduit.mynode(), 100, &[7])
            .unwrap();
        conduit.block_until(|| seen.get() == 7);
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

/// A short get has a chunk until it is complete; without a free one it has a temporary descriptor, of which one is kept for a
/// reply.
#[test]
fn short_gets_under_way_are_as_many_as_there_are_chunks_and_descriptors() {
    let variables = |chunks| {
        [
            ("GASNET_PORTAL_MSG_LIMIT", "3000"),
            ("GASNET_PORTAL_NUM_TMPMD", "5"),
            ("GASNET_PORTAL_SB_CHUNKS", chunks),
        ]
    };
    for (chunks, gets) in [("3", 3 + 4), ("6", 6 + 4)] {
        let is_get = |h: &Header| kind(h.match_bits) == Some(Kind::Get);
        let sent = sent_to_the_deaf(&variables(chunks), is_get, |conduit, _| {
            let from = conduit.segment(1).addr;
            let mut into = vec![0u8; 20 * 8];
            for i in 0..20 {
                let to = into.as_mut_ptr().wrapping_add(8 * i);
                // SAFETY: memory of this function, which nothing uses before the wait.
                #[expect(unsafe_code, reason = "memory that gets fill after they return")]
                let begun = unsafe { conduit.get_nbi_raw(to, 1, from, 8) };
                begun.unwrap();
            }
            conduit.wait_nbi_all();
        });
        assert_eq!(sent, gets, "{chunks} chunks");
    }
}
