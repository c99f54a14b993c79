//! Rights of peers end with the descriptor, and go no further than the access control list.

use super::raw::{Raw, close, connect_all, raws, until};
use super::*;
use fabric_api::call::Call;
use fabric_api::call::RemoteKey;
use fabric_api::op::{Get, Posted, Put};
use std::collections::BTreeSet;

/// What a rank believes that it may reach of another one.
fn believed(raw: &Raw, rank: usize, bits: u64) -> Option<super::super::frame::RemoteMd> {
    let peer = raw.library.nal.peers.get(rank)?;
    let list = peer.adverts.of(4);
    list.iter().find(|md| md.match_bits == bits).copied()
}

/// Unlinks a descriptor while the others answer.
fn unlink(raws: &mut [Raw], rank: usize, md: portals_core::MdHandle) {
    let (before, rest) = raws.split_at_mut(rank);
    let (own, after) = rest.split_first_mut().unwrap();
    std::thread::scope(|scope| {
        let unlinks = scope.spawn(|| own.library.execute(Call::MdUnlink(md)));
        while !unlinks.is_finished() {
            for raw in before.iter_mut().chain(after.iter_mut()) {
                raw.step();
            }
        }
        unlinks.join().unwrap().unwrap();
    });
}

/// A peer keeps the key of a descriptor that was unlinked, and uses it: it is refused, the memory does not change, and
/// traffic of others and later traffic of its own go on. No key is given out twice.
#[test]
fn device_a_stale_key_is_refused_and_never_given_out_again() {
    let Some(mut raws) = raws(3, 65_536) else {
        return;
    };
    connect_all(&mut raws);
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    let memory = Region::new(65_536).unwrap();
    let mut keys = BTreeSet::new();
    for round in 0..20u64 {
        // An entry stays when its descriptor goes, ahead of later ones of the same bits.
        let (bits, next) = (1000 + 2 * round, 1001 + 2 * round);
        // The same memory each time.
        let md = raws[1].attach(bits, Some(&memory), None);
        until(&mut raws, "it is advertised", |r| {
            believed(&r[0], 1, bits).is_some()
        });
        let key = believed(&raws[0], 1, bits).unwrap();
        assert!(keys.insert(key.start.rkey), "a key was given out again");
        unlink(&mut raws, 1, md);
        assert_eq!(believed(&raws[0], 1, bits), None);
        memory.fill(0, 65_536, 0xEE).unwrap();
        for raw in &mut raws {
            raw.events.clear();
        }
        // Rank 0 goes on to believe in it; half of the time the memory has a new descriptor with a new key.
        let again = (round % 2 == 0).then(|| raws[1].attach(next, Some(&memory), None));
        let stale = raws[0].nal().peer(1).unwrap();
        let mut list = stale.adverts.of(4).to_vec();
        list.push(key);
        stale.adverts.set(4, list);
        let reads = round % 4 < 2;
        match reads {
            true => raws[0].get(to(ids[1], bits, 0), 32_768),
            false => raws[0].put(to(ids[1], bits, 0), 32_768, AckRequest::Ack, 0),
        }
        assert!(raws[0].library.nal.counters.protocols.paths().one_sided > 0);
        // Traffic of another rank meanwhile.
        for n in 0..10 {
            raws[2].put(to(ids[1], LOUD, 0), 20_000, AckRequest::Ack, n);
        }
        until(&mut raws, "it is refused", |r| {
            let end = if reads {
                EventKind::ReplyEnd
            } else {
                EventKind::Ack
            };
            r[0].seen(end, bits) == (1, 1) && r[2].seen(EventKind::Ack, LOUD) == (10, 0)
        });
        let mut seen = vec![0; 65_536];
        memory.read(0, &mut seen).unwrap();
        assert!(
            seen.iter().all(|b| *b == 0xEE),
            "memory was written by a stale key"
        );
        // The connection is mended; its messages go on where they were.
        raws[0].put(to(ids[1], LOUD, 0), 20_000, AckRequest::Ack, 77);
        until(&mut raws, "it goes on", |r| {
            r[0].seen(EventKind::Ack, LOUD) == (1, 0)
        });
        if let Some(again) = again {
            let known = |r: &[Raw]| believed(&r[0], 1, next);
            until(&mut raws, "it is advertised", |r| known(r).is_some());
            assert!(keys.insert(known(&raws).unwrap().start.rkey));
            unlink(&mut raws, 1, again);
        }
    }
    close(raws);
}

/// Entries of the access control list hold for what adapters serve alone as for everything else, from the return of the
/// call that sets them.
#[test]
fn device_access_control_holds_for_what_adapters_serve() {
    ranks(2, 4096, |rank, o, s| {
        let ni = &o.interface;
        let peer = o.peers[1 - rank as usize];
        let anybody = AcEntry {
            match_id: ProcessId::ANY,
            uid: ANY,
            jid: ANY,
            pt_index: ANY,
        };
        // 0: all; 1: a rank that does not exist; 2: another portal; 3: another user; 4: another job; 5: all.
        let stranger = ProcessId::new(77, 77);
        let entries = [
            anybody,
            AcEntry {
                match_id: stranger,
                ..anybody
            },
            AcEntry {
                pt_index: 5,
                ..anybody
            },
            AcEntry {
                uid: ni.uid() + 1,
                ..anybody
            },
            AcEntry {
                jid: ni.jid() + 1,
                ..anybody
            },
            anybody,
        ];
        for (index, entry) in (0..).zip(entries) {
            ni.ac_entry(index, entry).unwrap();
        }
        let allowed = [true, false, false, false, false, true];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        if rank == 1 {
            for closed in [false, true] {
                let dropped = ni.status().unwrap().drop_count;
                if closed {
                    // From here on nobody comes in by the last entry.
                    let entry = AcEntry {
                        match_id: stranger,
                        ..anybody
                    };
                    ni.ac_entry(5, entry).unwrap();
                    s.quiet.fill(0, 4096, 0).unwrap();
                }
                ring(o, s, peer);
                wait(o, s.eq, EventKind::PutEnd, BELL);
                let mut seen = [0; 6];
                s.quiet.read(0, &mut seen).unwrap();
                let let_in = |at: usize| allowed[at] && !(closed && at == 5);
                for (at, byte) in seen.iter().enumerate() {
                    assert_eq!(
                        *byte,
                        u8::from(let_in(at)) * 9,
                        "entry {at}, closed: {closed}"
                    );
                }
                let refused = (0..6).filter(|at| !let_in(*at)).count() as u64;
                assert_eq!(ni.status().unwrap().drop_count - dropped, refused);
            }
            ring(o, s, peer);
            return;
        }
        s.work.fill(0, 4096, 9).unwrap();
        for closed in [false, true] {
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let before = ni.paths().unwrap().one_sided;
            for at in 0..6u32 {
                let there = Target {
                    ac_index: at,
                    ..to(peer, QUIET, u64::from(at))
                };
                let is_let_in = allowed[at as usize] && !(closed && at == 5);
                let ack = if is_let_in {
                    AckRequest::Ack
                } else {
                    AckRequest::NoAck
                };
                ni.put_region(s.source, (0, 1), ack, there, 0).unwrap();
                match is_let_in {
                    true => {
                        wait(o, s.eq, EventKind::Ack, QUIET);
                    }
                    false => {
                        wait(o, s.eq, EventKind::SendEnd, QUIET);
                    }
                }
            }
            let alone = ni.paths().unwrap().one_sided - before;
            assert!(alone <= 2, "adapters served {alone}");
            ring(o, s, peer);
        }
        wait(o, s.eq, EventKind::PutEnd, BELL);
    });
}

/// Memory that its owner has pinned is written and read by whoever has its key, without its owner's library.
#[test]
fn device_pinned_memory_is_reached_by_its_key() {
    const PINNED: u64 = 9;
    const AT: u64 = 16;
    let told = std::sync::OnceLock::new();
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        let ni = &o.interface;
        if rank == 1 {
            let memory = Region::new(4096).unwrap();
            let me = ni
                .me_attach(4, entry(PINNED), InsertPosition::After)
                .unwrap();
            let mut pinned = spec(MdMemory::whole(&memory), None);
            pinned.options |= MdOptions::PINNED;
            let md = ni.md_attach(me, pinned, Unlink::Retain).unwrap();
            let rkey = ni.remote_key(md).unwrap();
            assert_ne!(rkey, 0);
            let key = RemoteKey {
                base: memory.addr(),
                len: memory.len() as u64,
                rkey,
            };
            told.set(key).unwrap();
            ring(o, s, peer);
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let mut seen = [0; 40];
            memory.read(0, &mut seen).unwrap();
            assert_eq!(seen[..16], [0; 16]);
            assert_eq!(seen[16..24], pattern(8, 5));
            assert_eq!(seen[24..], [0; 16]);
            ni.me_unlink(me).unwrap();
            return;
        }
        wait(o, s.eq, EventKind::PutEnd, BELL);
        let key = *told.get().unwrap();
        s.work.write(0, &pattern(8, 5)).unwrap();
        let there = to(peer, PINNED, AT);
        let alone = || ni.paths().unwrap().one_sided;
        // The first ones may have to wait for what went before them.
        let until_served = |put: bool| {
            for _ in 0..1000 {
                let before = alone();
                if put {
                    let put = Put::new(s.source, there).region(0, 8);
                    ni.post_put(put.ack(AckRequest::Ack).key(&key)).unwrap();
                    wait(o, s.eq, EventKind::Ack, PINNED);
                } else {
                    let get = Get::new(s.source, there).region(64, 8);
                    ni.post_get(get.key(&key)).unwrap();
                    wait(o, s.eq, EventKind::ReplyEnd, PINNED);
                }
                if alone() > before {
                    return;
                }
            }
            panic!("the adapters served nothing");
        };
        s.work.write(0, &pattern(8, 9)).unwrap();
        until_served(true);
        s.work.write(0, &pattern(8, 5)).unwrap();
        let before = alone();
        let put = Put::new(s.source, there).region(0, 8).ack(AckRequest::Ack);
        let posted = ni.post_put(put.key(&key).at_once().silent());
        assert_eq!(posted, Ok(Posted::Taken));
        wait(o, s.eq, EventKind::Ack, PINNED);
        assert_eq!(alone(), before + 1);
        until_served(false);
        let mut back = [0; 8];
        s.work.read(64, &mut back).unwrap();
        assert_eq!(back, *pattern(8, 5));
        ring(o, s, peer);
        wait(o, s.eq, EventKind::SendEnd, BELL);
    });
}
