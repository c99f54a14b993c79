//! What an initiator that copies by itself may reach.

use super::*;
use fabric_api::region::share_of;
use portals_core::Segment;

/// A descriptor over part of a region that others map: what does not fit the descriptor is dropped, and no byte behind it
/// changes.
#[test]
fn nothing_is_written_behind_what_is_shown() {
    const BITS: u64 = 9;
    let [a, b] = sides(4096, true, Options::default());
    let ni = &b.o.interface;
    let region = ni.new_region(8192).unwrap();
    let me = ni.me_attach(4, entry(BITS), InsertPosition::After).unwrap();
    let part = MdMemory::Region {
        region: region.clone(),
        offset: 1000,
        len: 2000,
    };
    ni.md_attach(me, spec(part, None), Unlink::Retain).unwrap();
    a.work.fill(0, 4096, 7).unwrap();
    let mut expected = vec![0; 8192];
    let dropped = || b.o.interface.status().unwrap().drop_count;
    for (at, len, fits) in [
        (0, 2000, true),
        (1990, 10, true),
        (1990, 11, false),
        (2000, 8, false),
        (0, 2001, false),
        (u64::MAX - 3, 8, false),
    ] {
        let before = dropped();
        a.work.fill(0, 4096, 7 + len as u8).unwrap();
        a.put(len, to(b.o.interface.id(), BITS, at));
        if fits {
            let ack = event(&[&a, &b], EventKind::Ack);
            assert_eq!((ack.ni_fail, ack.mlength), (NiFail::OK, len as u64));
            let at = 1000 + at as usize;
            expected[at..at + len].fill(7 + len as u8);
        } else {
            let begun = Instant::now();
            while dropped() == before {
                assert!(begun.elapsed() < Duration::from_secs(20), "{len} at {at}");
                b.look();
                let event = a.look();
                assert!(event.is_none_or(|e| e.kind != EventKind::Ack), "{event:?}");
            }
        }
        let mut seen = vec![0; 8192];
        region.read(0, &mut seen).unwrap();
        assert!(seen == expected, "{len} bytes at {at}");
    }
}

/// A descriptor's number may have come to mean another file of the peer: that one is not written.
#[test]
fn another_file_of_the_same_number_is_not_written() {
    let (us, map, layout) = alone_with(std::process::id(), WITHOUT);
    let other = Region::shared(4096).unwrap();
    let whole = Segment {
        addr: other.addr(),
        len: 4096,
    };
    let share = share_of(whole).expect("memory that can be mapped");
    let block = layout.block(1);
    let show = |inode, generation| {
        let words = [
            4 | 7 << 32,
            u64::from(u32::MAX) | u64::from(u32::MAX) << 32,
            QUIET,
            0,
            // The mapping is the only way there.
            8,
            whole.len,
            u64::from(u32::MAX) | u64::from(share.fd.cast_unsigned()) << 32,
            inode,
            share.len,
            0,
        ];
        for (i, word) in words.into_iter().enumerate() {
            block.advert(&map, 0, i).store(word, Ordering::Relaxed);
        }
        block.count(&map).store(1, Ordering::Relaxed);
        block.generation(&map).store(generation, Ordering::Release);
    };
    let mut seen = [0; 8];
    us.work.fill(0, 8, 7).unwrap();
    show(share.inode + 1, 2);
    let there = to(us.o.peers[1], QUIET, 0);
    us.put(8, there);
    other.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 8]);
    // The file is the one that is meant.
    show(share.inode, 4);
    us.put(8, there);
    other.read(0, &mut seen).unwrap();
    assert_eq!(seen, [7; 8]);
}
