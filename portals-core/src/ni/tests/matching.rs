//! What a search of a match list costs.

use super::world::*;
use alloc::vec::Vec;

/// The cost of a match that the owner may account: entries looked at.
#[test]
fn the_search_is_counted() {
    let mut w = World::new();
    for bits in 1..=3 {
        w[1].me(4, bits);
    }
    w.target(8, PUT);
    let src = w.source(0);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let Some((_, crate::Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    assert_eq!(d.searched, 4);
}

/// A long list has an index after a long search, unless the owner wants what a walk costs.
#[test]
fn the_search_of_a_long_list_is_short_or_a_walk() {
    for walks in [false, true] {
        let mut w = World::new();
        if walks {
            w[1].ni.walk_lists();
        }
        let first: Vec<_> = (1..=999).map(|bits| w[1].me(4, bits)).collect();
        for me in &first[..100] {
            w[1].ni.me_unlink(*me).unwrap();
        }
        w.target(8, PUT);
        let src = w.source(0);
        for searched in [900, if walks { 900 } else { 1 }] {
            w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
            let Some((_, crate::Incoming::Deposit(d), _)) = w.arrive() else {
                panic!("not accepted")
            };
            assert_eq!(d.searched, searched);
        }
        // One that finds nothing is long too.
        w.knock(To {
            bits: 5000,
            ..to(1)
        });
        assert_eq!(w[1].drops(), 1);
    }
}
