//! What a user of tag matching relies on: limits, synchronous sends, truncation, probes, communicators, a flood, and peers
//! that lie. Ranks are driven from one thread unless a call blocks.

use portals_shim::fabric::{Opened, in_process};
use portals_shim::{
    AckRequest, Interface, MdMemory, MdOptions, MdSpec, ProcessId, Region, THRESHOLD_INFINITE,
    Target, Unlink,
};
use std::convert::Infallible;
use std::thread;
use tagged::{CallError, Comm, OpenError, Options, RequestError, Slice, TagError, TagMode, World};

#[path = "messages/alike.rs"]
mod alike;
#[path = "messages/ends.rs"]
mod ends;
#[path = "messages/requests.rs"]
mod requests;

fn open(opened: Opened, rank: u32, options: &Options) -> Result<World, OpenError> {
    World::open(opened, rank, options, || Ok::<(), Infallible>(()))
}

fn worlds(ranks: u32, options: &Options) -> Vec<World> {
    let opened = in_process(ranks);
    (0..)
        .zip(opened)
        .map(|(rank, opened)| open(opened, rank, options).unwrap())
        .collect()
}

/// Each rank with so many interfaces.
fn scalable_worlds(ranks: u32, endpoints: u32, options: &Options) -> Vec<World> {
    let mut fabrics: Vec<_> = (0..endpoints)
        .map(|_| in_process(ranks).into_iter())
        .collect();
    let open = |rank| {
        let endpoints = fabrics.iter_mut().filter_map(Iterator::next).collect();
        let fence = || Ok::<(), Infallible>(());
        World::open_scalable(endpoints, rank, options, fence).unwrap()
    };
    (0..ranks).map(open).collect()
}

fn comms(ranks: u32) -> Vec<Comm> {
    worlds(ranks, &Options::default())
        .iter()
        .map(World::comm)
        .collect()
}

fn slice(bytes: &[u8]) -> Slice {
    let region = Region::new(bytes.len().max(1)).unwrap();
    region.write(0, bytes).unwrap();
    Slice::new(&region, 0, bytes.len()).unwrap()
}

/// Each rank in a thread of its own.
fn each<R: Send>(worlds: &[World], run: impl Fn(&World, Comm) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = worlds
            .iter()
            .map(|w| scope.spawn(|| run(w, w.comm())))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn layouts_enforce_their_limits() {
    for (mode, max_tag) in [
        (TagMode::Tag1, i32::MAX),
        (TagMode::Tag2, (1 << 19) - 1),
        (TagMode::Full, i32::MAX),
    ] {
        let options = Options {
            mode,
            ..Options::default()
        };
        let worlds = worlds(2, &options);
        let (a, b) = (worlds[0].comm(), worlds[1].comm());
        assert_eq!(a.max_tag(), max_tag);
        let send = a.isend(slice(b"x"), 1, max_tag).unwrap();
        let into = Region::new(8).unwrap();
        let receive = b
            .irecv(Slice::whole(&into), Some(0), Some(max_tag))
            .unwrap();
        assert_eq!(b.wait(receive).unwrap().tag, max_tag);
        a.wait(send).unwrap();
        if let Some(tag) = max_tag.checked_add(1) {
            assert_eq!(
                a.isend(slice(b"x"), 1, tag),
                Err(CallError::Tag { tag, max: max_tag })
            );
        }
        let negative = CallError::Tag {
            tag: -1,
            max: max_tag,
        };
        assert_eq!(a.isend(slice(b"x"), 1, -1), Err(negative));
        assert_eq!(a.irecv(slice(b"x"), None, Some(-1)), Err(negative));
        assert_eq!(a.iprobe(None, Some(-1)), Err(negative));
        let rank = CallError::Rank { rank: 2, size: 2 };
        assert_eq!(a.isend(slice(b"x"), 2, 0), Err(rank));
        assert_eq!(a.irecv(slice(b"x"), Some(2), None), Err(rank));
    }
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let refused = |options: Options| open(in_process(1).remove(0), 0, &options).unwrap_err();
    for (option, options) in [
        (
            "contexts",
            Options {
                contexts: 7,
                ..Options::default()
            },
        ),
        (
            "contexts",
            Options {
                contexts: 0,
                ..Options::default()
            },
        ),
        (
            "events_per_call",
            Options {
                events_per_call: 0,
                ..Options::default()
            },
        ),
        (
            "short",
            Options {
                short: 0,
                ..Options::default()
            },
        ),
        (
            "requests",
            Options {
                requests: 0,
                ..Options::default()
            },
        ),
    ] {
        assert!(matches!(refused(options), OpenError::Option { option: o, .. } if o == option));
    }
    let few = Options {
        mode: TagMode::Tag1,
        format: u64::MAX >> 5,
        ..Options::default()
    };
    assert_eq!(
        refused(few),
        OpenError::FewCommunicators {
            reserved: 5,
            of: 12
        }
    );
    assert_eq!(
        "tag_3".parse::<TagMode>(),
        Err(OpenError::Mode {
            name: "tag_3".into()
        })
    );
    assert_eq!("tag_2".parse(), Ok(TagMode::Tag2));
}

#[test]
fn a_synchronous_send_ends_when_it_is_received_and_not_before() {
    let comms = comms(2);
    for len in [0, 8, 100_000] {
        let data = slice(&vec![7; len]);
        let send = comms[0].issend(data, 1, 3).unwrap();
        for _ in 0..50 {
            assert_eq!(comms[0].test(&send).unwrap(), None);
            assert_eq!(
                comms[1].iprobe(None, None).unwrap().map(|s| s.len),
                Some(len)
            );
        }
        let into = Region::new(len.max(1)).unwrap();
        let receive = comms[1]
            .irecv(Slice::new(&into, 0, len).unwrap(), Some(0), Some(3))
            .unwrap();
        let mut ends = (None, None);
        while ends.0.is_none() || ends.1.is_none() {
            ends.0 = ends.0.or(comms[0].test(&send).unwrap_or(None));
            ends.1 = ends.1.or(comms[1].test(&receive).unwrap_or(None));
        }
        assert_eq!(ends.1.unwrap().unwrap().len, len);
        // Posted first, the ack of the put ends it.
        let receive = comms[1]
            .irecv(Slice::new(&into, 0, len).unwrap(), Some(0), Some(3))
            .unwrap();
        let send = comms[0].issend(slice(&vec![7; len]), 1, 3).unwrap();
        assert_eq!(comms[1].wait(receive).unwrap().len, len);
        comms[0].wait(send).unwrap();
    }
}

#[test]
fn a_receive_that_is_too_short_has_the_beginning_and_says_so() {
    let comms = comms(2);
    for posted_first in [false, true] {
        for len in [9, 100_000] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let into = Region::new(8).unwrap();
            let post = || {
                comms[1]
                    .irecv(Slice::new(&into, 0, 8).unwrap(), None, None)
                    .unwrap()
            };
            let early = posted_first.then(post);
            let send = comms[0].isend(slice(&data), 1, 5).unwrap();
            while early.is_none() && comms[1].iprobe(None, None).unwrap().is_none() {}
            let receive = early.unwrap_or_else(post);
            let mut end = None;
            while end.is_none() {
                comms[0].iprobe(None, None).unwrap();
                end = comms[1].test(&receive).unwrap();
            }
            let Err(RequestError::Truncated { status, sent }) = end.unwrap() else {
                panic!("{end:?}");
            };
            assert_eq!(
                (status.source, status.tag, status.len, sent),
                (0, 5, 8, len)
            );
            let mut bytes = [0; 8];
            into.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, data[..8]);
            // The sender is done all the same.
            while comms[0].test(&send).unwrap().is_none() {
                comms[1].iprobe(None, None).unwrap();
            }
        }
    }
}

#[test]
fn a_request_is_used_up_once() {
    let comms = comms(1);
    let into = Region::new(8).unwrap();
    let receive = comms[0].irecv(Slice::whole(&into), None, None).unwrap();
    comms[0].send(slice(b"12345678"), 0, 1).unwrap();
    while comms[0].test(&receive).unwrap().is_none() {}
    assert_eq!(comms[0].test(&receive), Err(CallError::NotARequest));
    assert_eq!(comms[0].cancel(&receive), Err(CallError::NotARequest));
    assert_eq!(
        comms[0].wait(receive),
        Err(TagError::Call(CallError::NotARequest))
    );
}

#[test]
fn a_cancelled_receive_leaves_its_message_to_the_next() {
    let comms = comms(2);
    let into = Region::new(8).unwrap();
    let first = comms[1].irecv(Slice::whole(&into), None, None).unwrap();
    assert!(comms[1].cancel(&first).unwrap());
    assert_eq!(
        comms[1].wait(first),
        Err(TagError::Request(RequestError::Cancelled))
    );
    comms[0].send(slice(b"12345678"), 1, 1).unwrap();
    let second = comms[1].irecv(Slice::whole(&into), None, None).unwrap();
    while comms[1].iprobe(None, Some(2)).unwrap().is_some() {}
    assert!(!comms[1].cancel(&second).unwrap());
    let end = comms[1].test(&second).unwrap();
    assert_eq!(end.unwrap().unwrap().len, 8);
}

/// Such receives have one entry of the match list after the other, or the same one: what they get is the same.
#[test]
fn too_many_requests_are_refused_and_nothing_is_lost() {
    let options = Options {
        requests: 4,
        ..Options::default()
    };
    let worlds = worlds(1, &options);
    let comm = worlds[0].comm();
    let into = Region::new(64).unwrap();
    let part = |n: usize| Slice::new(&into, n * 8, 8).unwrap();
    let receives: Vec<_> = (0..4)
        .map(|n| comm.irecv(part(n), None, Some(n as i32)).unwrap())
        .collect();
    assert!(matches!(
        comm.irecv(part(4), None, None),
        Err(CallError::NoRequest { max: 4 })
    ));
    assert!(matches!(
        comm.isend(part(5), 0, 0),
        Err(CallError::NoRequest { max: 4 })
    ));
    for receive in receives {
        assert!(comm.cancel(&receive).unwrap());
        let _ = comm.wait(receive);
    }
    let receive = comm.irecv(part(0), None, Some(0)).unwrap();
    comm.send(part(1), 0, 0).unwrap();
    comm.wait(receive).unwrap();
}

#[test]
fn what_is_received_gives_its_credit_back() {
    let options = Options {
        short: 64,
        overflow: 64 * 2 * 2 * 4,
        ..Options::default()
    };
    assert_eq!(options.credits(2), 4);
    for answers in [false, true] {
        let worlds = worlds(2, &options);
        let comms = [worlds[0].comm(), worlds[1].comm()];
        let into = Region::new(8).unwrap();
        let pass = |from: usize, to: usize| {
            comms[from].send(slice(b"12345678"), to as u32, 1).unwrap();
            comms[to].recv(Slice::whole(&into), None, None).unwrap();
            // Credits may have come.
            comms[from].iprobe(None, None).unwrap();
        };
        for _ in 0..1000 {
            pass(0, 1);
            if answers {
                pass(1, 0);
            }
        }
        let counts = worlds[0].counts()[0];
        assert_eq!((counts.short, counts.released), (1000, 0));
        // Answers carry them.
        let alone = worlds[1].counts()[0].credit_messages;
        assert_eq!(alone, if answers { 0 } else { 500 });
    }
}

#[test]
fn ranks_meet_whatever_nobody_receives() {
    let options = Options {
        short: 64,
        overflow: 1,
        ..Options::default()
    };
    let worlds = worlds(3, &options);
    each(&worlds, |_, comm| {
        let peer = (comm.rank() + 1) % 3;
        let sends: Vec<_> = (0..20)
            .map(|n| comm.isend(slice(&[n]), peer, 1).unwrap())
            .collect();
        // Most of them wait for receives that begin only now.
        let twin = comm.dup().unwrap();
        twin.barrier().unwrap();
        let into = Region::new(1).unwrap();
        for n in 0..20 {
            comm.recv(Slice::whole(&into), None, Some(1)).unwrap();
            let mut byte = [0];
            into.read(0, &mut byte).unwrap();
            assert_eq!(byte, [n]);
        }
        for send in sends {
            comm.wait(send).unwrap();
        }
        comm.barrier().unwrap();
    });
}

/// Takes all descriptors that the interface can still have.
fn exhaust(ni: &Interface) -> Vec<portals_shim::MdHandle> {
    let spec = || MdSpec {
        memory: MdMemory::Empty,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: MdOptions::empty(),
        user_ptr: 0,
        eq: None,
    };
    std::iter::from_fn(|| ni.md_bind(spec(), Unlink::Retain).ok()).collect()
}

#[test]
fn a_send_that_is_refused_costs_nothing_and_one_that_had_waited_ends_as_failed() {
    let options = Options {
        short: 64,
        overflow: 1,
        ..Options::default()
    };
    assert_eq!(options.credits(2), 1);
    let worlds = worlds(2, &options);
    let (a, b) = (worlds[0].comm(), worlds[1].comm());
    let into = Region::new(8).unwrap();
    let ni = worlds[0].interface();
    let kept = slice(b"1");

    let held = exhaust(ni);
    for refused in [a.isend(kept.clone(), 1, 0), a.issend(kept.clone(), 1, 0)] {
        assert!(matches!(refused, Err(CallError::Portals(_))), "{refused:?}");
    }
    held.into_iter().for_each(|md| ni.md_unlink(md).unwrap());

    // One has the credit, one has what it needs without it, and two wait, of which the first finds no descriptor.
    let first = a.isend(kept.clone(), 1, 1).unwrap();
    let second = a.isend(kept.clone(), 1, 2).unwrap();
    let third = a.isend(slice(b"3"), 1, 3).unwrap();
    let fourth = a.isend(kept, 1, 4).unwrap();
    let counts = worlds[0].counts()[0];
    assert_eq!((counts.short, counts.released), (1, 1));
    let held = exhaust(ni);
    assert_eq!(b.recv(Slice::whole(&into), None, Some(1)).unwrap().len, 1);
    let mut end = None;
    for _ in 0..100 {
        end = end.or(a.test(&third).unwrap_or(None));
    }
    assert_eq!(end, Some(Err(RequestError::Fabric { rank: 1 })));
    held.into_iter().for_each(|md| ni.md_unlink(md).unwrap());

    // The next one went in its place, and all that went arrives in order.
    for tag in [2, 4] {
        let receive = b.irecv(Slice::whole(&into), None, None).unwrap();
        let mut end = None;
        for _ in 0..100 {
            a.iprobe(None, None).unwrap();
            end = end.or(b.test(&receive).unwrap_or(None));
        }
        assert_eq!(end.unwrap().unwrap().tag, tag);
    }
    for send in [first, second, fourth] {
        a.wait(send).unwrap();
    }
}

#[test]
fn communicators_are_apart_and_ordered_by_key() {
    let worlds = worlds(5, &Options::default());
    let ids = each(&worlds, |_, all| {
        let twin = all.dup().unwrap();
        assert_ne!(twin.id(), all.id());
        let key = 10 - all.rank();
        let colour = (all.rank() != 4).then_some(all.rank() % 2);
        let half = twin.split(colour, key).unwrap();
        // The same message, by tag and ranks, in two communicators.
        if all.rank() == 0 {
            all.send(slice(b"all"), 1, 1).unwrap();
            twin.send(slice(b"twin"), 1, 1).unwrap();
        } else if all.rank() == 1 {
            let into = Region::new(16).unwrap();
            assert_eq!(
                twin.recv(Slice::whole(&into), Some(0), Some(1))
                    .unwrap()
                    .len,
                4
            );
            assert_eq!(all.recv(Slice::whole(&into), None, None).unwrap().len, 3);
        }
        let id = match &half {
            None => {
                assert_eq!(all.rank(), 4);
                0
            }
            Some(half) => {
                assert_eq!(half.size(), 2);
                // Keys fall with the rank.
                assert_eq!(half.rank(), 1 - all.rank() / 2);
                let peer = 1 - half.rank();
                let into = Region::new(16).unwrap();
                let receive = half.irecv(Slice::whole(&into), None, None).unwrap();
                half.send(slice(&[all.rank() as u8]), peer, 7).unwrap();
                let status = half.wait(receive).unwrap();
                assert_eq!(status.source, peer);
                let mut byte = [0];
                into.read(0, &mut byte).unwrap();
                assert_eq!(u32::from(byte[0]) % 2, all.rank() % 2);
                assert_ne!(u32::from(byte[0]), all.rank());
                half.barrier().unwrap();
                half.id()
            }
        };
        drop(half);
        assert_eq!(twin.all_max(u64::from(twin.rank())).unwrap(), 4);
        drop(twin);
        // The ids are free again.
        let again = all.dup().unwrap();
        (id, again.id())
    });
    assert!(ids.iter().all(|(_, again)| *again == 1), "{ids:?}");
}

#[test]
fn communicator_ids_run_out_and_come_back() {
    let options = Options {
        mode: TagMode::Tag1,
        format: u64::MAX >> 4,
        ..Options::default()
    };
    let worlds = worlds(2, &options);
    each(&worlds, |_, all| {
        let mut held: Vec<Comm> = (0..255).map(|_| all.dup().unwrap()).collect();
        let error = all.dup().unwrap_err();
        assert!(
            error.to_string().contains("all 255 communicator ids"),
            "{error}"
        );
        held.swap_remove(100);
        assert!(all.dup().is_ok());
    });
}

#[test]
fn a_flood_without_receives_stays_within_its_memory_and_arrives_whole_and_in_order() {
    const MESSAGES: u64 = 5000;
    let options = Options {
        short: 256,
        overflow: 16 * 1024,
        ..Options::default()
    };
    let worlds = worlds(3, &options);
    each(&worlds, |world, comm| {
        if comm.rank() == 0 {
            // Both floods are stopped by credits before anything is received.
            while world.counts()[0].unexpected == 0 {
                if comm.iprobe(Some(1), Some(9)).unwrap().is_some()
                    && comm.iprobe(Some(2), Some(9)).unwrap().is_some()
                {
                    break;
                }
            }
            let into = Region::new(512).unwrap();
            for n in 0..MESSAGES {
                for source in [1, 2] {
                    let status = comm.recv(Slice::whole(&into), Some(source), None).unwrap();
                    let mut number = [0; 8];
                    into.read(0, &mut number).unwrap();
                    assert_eq!(u64::from_le_bytes(number), n, "from {source}");
                    assert_eq!(status.tag, 9);
                }
            }
        } else {
            let bytes = Region::new(256 * 64).unwrap();
            let mut requests = std::collections::VecDeque::new();
            for n in 0..MESSAGES {
                let at = (n % 64) as usize * 256;
                if requests.len() == 64 {
                    comm.wait(requests.pop_front().unwrap()).unwrap();
                }
                bytes.write(at, &n.to_le_bytes()).unwrap();
                requests.push_back(
                    comm.isend(Slice::new(&bytes, at, 8 + at / 80).unwrap(), 0, 9)
                        .unwrap(),
                );
            }
            for request in requests {
                comm.wait(request).unwrap();
            }
        }
        comm.barrier().unwrap();
        assert_eq!(world.counts()[0].forged, 0);
    });
}

#[test]
fn several_threads_share_a_context_or_have_their_own() {
    // One context; three on one interface; three with an interface each.
    for (contexts, thread_grouping, endpoints) in [(1, false, 1), (3, true, 1), (3, true, 3)] {
        let options = Options {
            contexts,
            thread_grouping,
            threads: true,
            ..Options::default()
        };
        let worlds = scalable_worlds(2, endpoints, &options);
        each(&worlds, |world, all| {
            let comms: Vec<Comm> = (0..2).map(|_| all.dup().unwrap()).collect();
            thread::scope(|scope| {
                for comm in &comms {
                    scope.spawn(move || {
                        let peer = 1 - comm.rank();
                        let (out, into) = (Region::new(8).unwrap(), Region::new(8).unwrap());
                        for n in 0..2000u64 {
                            out.write(0, &n.to_le_bytes()).unwrap();
                            let receive = comm
                                .irecv(Slice::new(&into, 0, 8).unwrap(), Some(peer), Some(1))
                                .unwrap();
                            comm.send(Slice::new(&out, 0, 8).unwrap(), peer, 1).unwrap();
                            comm.wait(receive).unwrap();
                            let mut bytes = [0; 8];
                            into.read(0, &mut bytes).unwrap();
                            assert_eq!(u64::from_le_bytes(bytes), n);
                        }
                    });
                }
            });
            all.barrier().unwrap();
            // Each communicator's messages went through a context of its own.
            let short = world.counts().into_iter().map(|counts| counts.short);
            let expected = if thread_grouping {
                vec![2000; 2]
            } else {
                vec![]
            };
            assert_eq!(short.skip(1).collect::<Vec<_>>(), expected);
        });
    }
}

/// A raw put to the portals of tag matching.
fn forge(ni: &Interface, to: ProcessId, portal: u32, bits: u64, len: usize, header: u64) {
    let memory = if len == 0 {
        MdMemory::Empty
    } else {
        MdMemory::whole(&Region::new(len).unwrap())
    };
    let md = MdSpec {
        memory,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: MdOptions::empty(),
        user_ptr: 0,
        eq: None,
    };
    let md = ni.md_bind(md, Unlink::Retain).unwrap();
    let target = Target {
        process: to,
        pt_index: portal,
        ac_index: 0,
        match_bits: bits,
        remote_offset: 0,
    };
    ni.put(md, AckRequest::NoAck, target, header).unwrap();
}

#[test]
fn messages_that_lie_are_counted_and_hurt_nobody() {
    for mode in [TagMode::Full, TagMode::Tag1] {
        let options = Options {
            mode,
            ..Options::default()
        };
        let mut opened = in_process(3);
        let peers = opened[0].peers.clone();
        let liar = opened.pop().unwrap().interface;
        let worlds: Vec<World> = (0..)
            .zip(opened)
            .map(|(r, o)| open(o, r, &options).unwrap())
            .collect();
        let (a, b) = (worlds[0].comm(), worlds[1].comm());
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..3000 {
            // Of sources that it is not, of communicators that nobody has, of every portal; with credits nobody had.
            let mut header = rng.u64(..);
            if rng.bool() {
                header = header & !0xffff_ffff | rng.u64(0..2);
            }
            let bits = if rng.bool() {
                rng.u64(..)
            } else {
                rng.u64(0..4)
            };
            forge(
                &liar,
                peers[1],
                44 + rng.u32(0..3),
                bits,
                rng.usize(0..9000),
                header,
            );
            b.iprobe(None, None).unwrap();
        }
        let counts = worlds[1].counts()[0];
        assert!(counts.forged > 1000, "{counts:?}");
        let into = Region::new(16).unwrap();
        for n in 0..200 {
            let send = a.isend(slice(&[n; 9]), 1, i32::from(n)).unwrap();
            let status = b
                .recv(Slice::whole(&into), Some(0), Some(i32::from(n)))
                .unwrap();
            assert_eq!((status.source, status.len), (0, 9));
            a.wait(send).unwrap();
        }
    }
}

/// Both ends from one thread, over shared memory: no call waits for the other rank.
#[test]
fn a_burst_from_one_thread_ends() {
    for first in [true, false] {
        let opened =
            portals_shim::fabric::interfaces(portals_shim::nal::shm::in_threads(2).unwrap());
        let worlds: Vec<_> = (0..)
            .zip(opened)
            .map(|(rank, opened)| open(opened, rank, &Options::default()).unwrap())
            .collect();
        let (a, b) = (worlds[0].comm(), worlds[1].comm());
        let into: Vec<_> = (0..400).map(|_| Region::new(8).unwrap()).collect();
        let receive = |at: usize| {
            b.irecv(Slice::whole(&into[at]), Some(0), Some(at as i32))
                .unwrap()
        };
        let mut receives = Vec::new();
        if first {
            receives.extend((0..400).map(receive));
        }
        let sends: Vec<_> = (0..400_i32)
            .map(|at| a.isend(slice(&at.to_le_bytes()), 1, at).unwrap())
            .collect();
        if !first {
            receives.extend((0..400).map(receive));
        }
        let (mut sends, mut receives) = (sends, receives);
        while !(sends.is_empty() && receives.is_empty()) {
            sends.retain(|send| a.test(send).unwrap().is_none());
            receives.retain(|receive| b.test(receive).unwrap().is_none());
        }
        for (at, region) in (0_i32..).zip(&into) {
            let mut got = [0; 4];
            region.read(0, &mut got).unwrap();
            assert_eq!(i32::from_le_bytes(got), at);
        }
    }
}
