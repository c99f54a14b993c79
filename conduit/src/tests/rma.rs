//! Puts and gets of all sizes, from and to all kinds of memory, with all kinds of handles.

use super::{pattern, returned};
use crate::{BarrierName, Conduit, Handle, RmaError, threads};

const SIZE: usize = 4 << 20;
const SIZES: [usize; 14] = [
    0,
    1,
    7,
    8,
    255,
    2040,
    2041,
    2047,
    2048,
    2049,
    4096,
    65_537,
    1 << 19,
    1 << 20,
];

fn with(ranks: u32, variables: &[(&str, &str)], body: impl Fn(&Conduit) + Sync) {
    let ends = threads::run_in(ranks, variables, |conduit| {
        conduit.attach(vec![], SIZE).unwrap();
        body(conduit);
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

/// Each rank owns a window of every other's segment.
fn window(conduit: &Conduit, node: u32) -> u64 {
    conduit.segment(node).addr + u64::from(conduit.mynode()) * (SIZE as u64 / 4)
}

fn sizes_in_and_out(variables: &[(&str, &str)]) {
    with(3, variables, |conduit| {
        let me = conduit.mynode();
        let memory = conduit.local_segment().unwrap();
        // The last quarter of the own segment is nobody's window.
        let own = SIZE / 4 * 3;
        for node in 0..3 {
            let there = window(conduit, node);
            for (i, len) in SIZES.into_iter().enumerate() {
                let seed = i + 100 * me as usize;
                let mut back = vec![0xee; len];

                conduit.put(node, there, &pattern(seed, len)).unwrap();
                conduit.get(&mut back, node, there).unwrap();
                assert!(back == pattern(seed, len), "{len} bytes from and to slices");

                memory.write(own, &pattern(seed + 1, len)).unwrap();
                conduit.put_from_segment(node, there, own, len).unwrap();
                memory.fill(own, len, 0).unwrap();
                conduit.get_to_segment(own, node, there, len).unwrap();
                memory.read(own, &mut back).unwrap();
                assert!(
                    back == pattern(seed + 1, len),
                    "{len} bytes from and to the segment"
                );
            }
        }
    });
}

#[test]
fn all_sizes_in_and_out_of_the_segment() {
    sizes_in_and_out(&[]);
}

#[test]
fn all_sizes_with_few_resources() {
    sizes_in_and_out(&[
        ("GASNET_PORTAL_MSG_LIMIT", "12"),
        ("GASNET_PORTAL_NUM_TMPMD", "2"),
        ("GASNET_PORTAL_SB_CHUNKS", "1"),
        ("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT", "64"),
    ]);
}

#[test]
fn bytes_around_a_put_stay() {
    with(2, &[], |conduit| {
        let peer = 1 - conduit.mynode();
        let there = window(conduit, peer);
        conduit.put(peer, there, &[0x55; 64]).unwrap();
        conduit.put(peer, there + 9, &[1, 2, 3]).unwrap();
        let mut back = [0; 64];
        conduit.get(&mut back, peer, there).unwrap();
        let mut want = [0x55; 64];
        want[9..12].copy_from_slice(&[1, 2, 3]);
        assert_eq!(back, want);
    });
}

#[test]
fn a_thousand_handles_out_of_order() {
    with(2, &[], |conduit| {
        let peer = 1 - conduit.mynode();
        let there = window(conduit, peer);
        let data = pattern(3, 8000);
        let handles: Vec<Handle> = (0..1000)
            .map(|i| {
                conduit
                    .put_nb(peer, there + 8 * i, &data[8 * i as usize..][..8])
                    .unwrap()
            })
            .collect();
        let mut left: Vec<Handle> = handles.into_iter().rev().collect();
        while let Some(handle) = left.pop() {
            if let Err(handle) = conduit.try_sync(handle) {
                conduit.wait(handle);
            }
        }
        let mut back = vec![0; 8000];
        conduit.get(&mut back, peer, there).unwrap();
        assert!(back == data);
        conduit.wait(Handle::DONE);
        assert!(conduit.try_sync(Handle::DONE).is_ok());
    });
}

#[test]
fn implicit_operations_and_access_regions() {
    with(2, &[], |conduit| {
        let peer = 1 - conduit.mynode();
        let there = window(conduit, peer);
        let memory = conduit.local_segment().unwrap();
        let own = SIZE / 4 * 3;
        let data = pattern(5, 100_000);
        for (i, part) in data.chunks(1000).enumerate() {
            conduit
                .put_nbi(peer, there + 1000 * i as u64, part)
                .unwrap();
        }
        conduit.wait_nbi_puts();
        for i in 0..100 {
            conduit
                .get_to_segment_nbi(own + 1000 * i, peer, there + 1000 * i as u64, 1000)
                .unwrap();
        }
        conduit.wait_nbi_gets();
        let mut back = vec![0; data.len()];
        memory.read(own, &mut back).unwrap();
        assert!(back == data);

        conduit.begin_nbi_region().unwrap();
        assert_eq!(conduit.begin_nbi_region(), Err(RmaError::AccessRegion));
        memory.write(own, &pattern(6, 50_000)).unwrap();
        for i in 0..50 {
            conduit
                .put_from_segment_nbi(peer, there + 1000 * i as u64, own + 1000 * i, 1000)
                .unwrap();
        }
        let region = conduit.end_nbi_region().unwrap();
        assert_eq!(conduit.end_nbi_region(), Err(RmaError::AccessRegion));
        assert!(
            conduit.try_nbi(true, true),
            "operations of a region are not implicit"
        );
        conduit.wait(region);
        conduit.get(&mut back[..50_000], peer, there).unwrap();
        assert!(back[..50_000] == pattern(6, 50_000));
        conduit.wait_nbi_all();
    });
}

/// More unacknowledged puts than the queue has room for events: tickets hold the sender back.
#[test]
fn ten_thousand_puts_do_not_lose_events() {
    with(
        2,
        &[
            ("GASNET_PORTAL_SB_CHUNKS", "4"),
            ("GASNET_PORTAL_RPL_CHUNKS", "1"),
        ],
        |conduit| {
            let peer = 1 - conduit.mynode();
            let there = window(conduit, peer);
            let own = SIZE / 4 * 3;
            for i in 0..10_000u64 {
                conduit
                    .put_from_segment_nbi(peer, there + i % 1000 * 8, own, 8)
                    .unwrap();
            }
            conduit.wait_nbi_all();
        },
    );
}

/// Chunks and tickets run out while short puts are under way: those go the general way, and all arrive.
#[test]
fn short_puts_that_cannot_begin_at_once_arrive() {
    for chunks in ["1", "64"] {
        let few = [
            ("GASNET_PORTAL_MSG_LIMIT", "12"),
            ("GASNET_PORTAL_SB_CHUNKS", chunks),
        ];
        with(2, &few, |conduit| {
            let peer = 1 - conduit.mynode();
            let there = window(conduit, peer);
            let mut handles = Vec::new();
            for i in 0..300u64 {
                let at = there + 16 * i;
                handles.push(conduit.put_nb(peer, at, &i.to_le_bytes()).unwrap());
                conduit.put_nbi(peer, at + 8, &(!i).to_le_bytes()).unwrap();
            }
            handles.into_iter().for_each(|h| conduit.wait(h));
            conduit.wait_nbi_all();
            for i in 0..300u64 {
                let mut back = [0; 16];
                conduit.get(&mut back, peer, there + 16 * i).unwrap();
                assert_eq!(back[..8], i.to_le_bytes());
                assert_eq!(back[8..], (!i).to_le_bytes());
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
            let core = conduit.core.borrow();
            assert_eq!(core.resources.under_way(), 0);
            assert!(core.resources.requests().next().is_some());
        });
    }
}

/// What ends own messages is handled in one go, up to the limit of a poll.
#[test]
fn completions_are_handled_together_up_to_a_limit() {
    with(2, &[], |conduit| {
        let peer = 1 - conduit.mynode();
        let there = window(conduit, peer);
        let mut handles: Vec<_> = (0..20)
            .map(|i| conduit.put_nb(peer, there + 8 * i, &[7; 8]).unwrap())
            .collect();
        let mut together = false;
        while !handles.is_empty() {
            // Looks into the fabric, and takes nothing.
            let safe = conduit.safe_queue();
            conduit.interface().eq_peek(safe).unwrap();
            let before = handles.len();
            let mut left = 3;
            conduit.core.borrow_mut().settle(&mut left).unwrap();
            handles = handles
                .into_iter()
                .filter_map(|h| conduit.check_sync(h).err())
                .collect();
            assert!(before - handles.len() <= 3);
            together |= before - handles.len() > 1;
        }
        assert!(together);
    });
}

#[test]
fn bad_ranges_are_refused() {
    with(2, &[], |conduit| {
        let peer = 1 - conduit.mynode();
        let seg = conduit.segment(peer);
        let end = seg.addr + seg.size;
        let outside = Err(RmaError::Remote {
            node: peer,
            addr: end - 1,
            len: 2,
        });
        assert_eq!(conduit.put(peer, end - 1, &[0; 2]), outside);
        assert_eq!(conduit.get(&mut [0; 2], peer, end - 1), outside);
        assert_eq!(
            conduit.put(2, seg.addr, &[]),
            Err(RmaError::Node { node: 2, nodes: 2 })
        );
        assert_eq!(
            conduit.put_from_segment(peer, seg.addr, SIZE, 1),
            Err(RmaError::Local {
                offset: SIZE,
                len: 1
            })
        );
        assert_eq!(conduit.put(peer, end, &[]), Ok(()));
    });
    let ends = threads::run(1, |conduit| conduit.put(0, 0, &[]));
    assert_eq!(returned(ends), [Err(RmaError::NotAttached)]);
}
