//! Memory in pieces.

use super::world::*;
use crate::{Error, Limits, MdDesc, MdOptions, Memory, Segment, Unlink};
use alloc::vec;
use alloc::vec::Vec;

fn pieces(w: &mut World, node: usize, lens: &[u64]) -> Vec<Segment> {
    lens.iter().map(|len| w[node].memory(*len)).collect()
}

fn iovec(segments: &[Segment], options: MdOptions) -> MdDesc {
    MdDesc {
        memory: Memory::Iovec {
            start: 0xabc0,
            segments: segments.to_vec(),
        },
        ..desc(segments[0], options | MdOptions::IOVEC)
    }
}

/// Scenarios 99 and 90; rules 11, 67 and 70.
#[test]
fn bytes_keep_their_order_across_unequal_pieces() {
    let mut w = World::new();
    let from = pieces(&mut w, 0, &[3, 0, 7, 5]);
    let mut next = 1..;
    for s in &from {
        let data: Vec<u8> = (&mut next).take(s.len as usize).collect();
        w[0].write(*s, &data);
    }
    let into = pieces(&mut w, 1, &[6, 12]);
    let (eq, me) = (w[1].eq(8), w[1].me(4, 0));
    let d = MdDesc {
        eq: Some(eq),
        ..iovec(&into, PUT)
    };
    w[1].attach(me, d);
    let md = w[0].bind(iovec(&from, NONE));
    w.put(0, md, None, NoAck, to(1), 0).unwrap();
    w.put(0, md, Some((2, 3)), NoAck, to(1), 0).unwrap();
    w.run();
    let got: Vec<u8> = into.iter().flat_map(|s| w[1].read(*s)).collect();
    let mut expected: Vec<u8> = (1..16).collect();
    expected.extend([3, 4, 5]);
    assert_eq!(got, expected);
    assert!(into.iter().all(|s| w[1].guards_intact(*s)));
    let e = w[1].events(eq);
    let at: Vec<_> = e.iter().map(|e| (e.offset, e.mlength)).collect();
    assert_eq!(at, [(0, 15), (0, 15), (15, 3), (15, 3)]);
    assert_eq!((e[0].md.start, e[0].md.length), (0xabc0, 2));
    // All 18 bytes are taken.
    w.put(0, md, Some((0, 1)), NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].drops(), 1);
}

/// Scenario 99 for the other directions: a get out of pieces into pieces, and a getput of both.
#[test]
fn gets_and_getputs_cross_pieces_too() {
    let mut w = World::new();
    let mine = pieces(&mut w, 0, &[5, 4]);
    let theirs = pieces(&mut w, 1, &[2, 7]);
    w[0].write(mine[0], &[1, 2, 3, 4, 5]);
    w[0].write(mine[1], &[6, 7, 8, 9]);
    w[1].write(theirs[0], &[11, 12]);
    w[1].write(theirs[1], &[13, 14, 15, 16, 17, 18, 19]);
    let me = w[1].me(4, 0);
    w[1].attach(me, iovec(&theirs, PUT | GET | REMOTE));
    let md = w[0].bind(iovec(&mine, NONE));
    w.get_put(0, md, md, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].read(theirs[0]), [1, 2]);
    assert_eq!(w[1].read(theirs[1]), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(w[0].read(mine[0]), [11, 12, 13, 14, 15]);
    assert_eq!(w[0].read(mine[1]), [16, 17, 18, 19]);
    let from = To { offset: 1, ..to(1) };
    w.get(0, md, Some((4, 2)), from).unwrap();
    w.run();
    assert_eq!(w[0].read(mine[0]), [11, 12, 13, 14, 2]);
    assert_eq!(w[0].read(mine[1]), [3, 17, 18, 19]);
}

/// Scenario 101; rule 67.
#[test]
fn pieces_are_limited() {
    let mut w = World::new();
    // What a program may rely on: as many as the specification of this library says.
    let most = 64;
    assert_eq!(Limits::LIBRARY.max_md_iovecs, most as i32);
    let piece = w[0].memory(1);
    let ni = &mut w[0].ni;
    let d = |n: usize| iovec(&vec![piece; n], NONE);
    assert!(ni.md_bind(d(most), Unlink::Retain).is_ok());
    assert_eq!(
        ni.md_bind(d(most + 1), Unlink::Retain),
        Err(Error::MdIllegal)
    );
    let huge = Segment {
        addr: 1,
        len: u64::MAX / 2 + 1,
    };
    assert_eq!(
        ni.md_bind(iovec(&[huge, huge], NONE), Unlink::Retain),
        Err(Error::MdIllegal)
    );
}
