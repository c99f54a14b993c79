//! What becomes of what is left: requests and messages that are dropped, communicators, worlds; and what ranks must have alike.

use super::{comms, each, open, worlds};
use portals_shim::Region;
use portals_shim::fabric::in_process;
use std::collections::HashSet;
use std::thread;
use tagged::{CallError, Comm, OpenError, Options, RequestError, Slice, TagMode, World};

/// Two threads of each rank duplicate a communicator each, at the same time.
#[test]
fn threads_that_duplicate_at_once_get_ids_of_their_own() {
    const ROUNDS: usize = 200;
    let options = Options {
        threads: true,
        ..Options::default()
    };
    let worlds = worlds(2, &options);
    let rounds: Vec<Vec<(u32, u32)>> = each(&worlds, |_, all| {
        let (a, b) = (all.dup().unwrap(), all.dup().unwrap());
        let round = |_| {
            let (x, y) = thread::scope(|s| {
                let x = s.spawn(|| a.dup().unwrap());
                let y = s.spawn(|| b.dup().unwrap());
                (x.join().unwrap(), y.join().unwrap())
            });
            all.barrier().unwrap();
            (x.id(), y.id())
        };
        (0..ROUNDS).map(round).collect()
    });
    assert_eq!(rounds[0], rounds[1], "ranks disagree");
    let clashes = rounds[0].iter().filter(|(x, y)| x == y).count();
    assert_eq!(clashes, 0, "of {ROUNDS} rounds");
    let ids: HashSet<u32> = rounds[0].iter().flat_map(|(x, y)| [*x, *y]).collect();
    assert!(ids.iter().all(|id| *id < 10), "not used again: {ids:?}");
}

/// One rank duplicates two communicators in two threads, the other one after the other: the second waits for the first.
#[test]
fn a_duplicate_that_waits_for_a_rank_holds_up_no_other() {
    let options = Options {
        threads: true,
        ..Options::default()
    };
    let worlds = worlds(2, &options);
    let ids = each(&worlds, |_, all| {
        let (a, b) = (all.dup().unwrap(), all.dup().unwrap());
        let round = |_| {
            let (x, y) = if all.rank() == 0 {
                thread::scope(|s| {
                    let x = s.spawn(|| a.dup().unwrap());
                    let y = s.spawn(|| b.dup().unwrap());
                    (x.join().unwrap(), y.join().unwrap())
                })
            } else {
                let y = b.dup().unwrap();
                (a.dup().unwrap(), y)
            };
            all.barrier().unwrap();
            (x.id(), y.id())
        };
        (0..50).map(round).collect::<Vec<_>>()
    });
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0].iter().all(|(x, y)| x != y), "{ids:?}");
}

#[test]
fn an_id_is_not_used_again_while_a_receive_or_a_message_of_it_is_left() {
    let comm = comms(1).remove(0);
    let (into, from) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    let (into, from) = (
        Slice::new(&into, 0, 8).unwrap(),
        Slice::new(&from, 0, 8).unwrap(),
    );
    let old = comm.dup().unwrap();
    let posted = old.irecv(&into, Some(0), Some(1)).unwrap();
    let id = old.id();
    drop(old);
    let new = comm.dup().unwrap();
    assert_ne!(new.id(), id);
    new.send(&from, 0, 1).unwrap();
    assert_eq!(comm.test(&posted), Ok(None), "a message of another one");
    new.recv(&into, None, None).unwrap();
    let other = new.id();
    // One that nobody receives.
    new.send(&from, 0, 2).unwrap();
    assert!(new.iprobe(None, None).unwrap().is_some());
    drop(new);
    let third = comm.dup().unwrap();
    assert!(![id, other].contains(&third.id()));
    assert_eq!(third.iprobe(None, None), Ok(None));

    assert!(comm.cancel(&posted).unwrap());
    let end = comm.wait(posted);
    assert_eq!(end, Err(RequestError::Cancelled.into()));
    assert_eq!(comm.dup().unwrap().id(), id, "free again");
}

#[test]
fn receives_that_are_dropped_are_taken_back() {
    let options = Options {
        requests: 8,
        ..Options::default()
    };
    let comm = worlds(1, &options)[0].comm();
    let (lost, kept, from) = (
        Region::new(8).unwrap(),
        Region::new(8).unwrap(),
        Region::new(8).unwrap(),
    );
    from.write(0, b"message!").unwrap();
    let from = Slice::new(&from, 0, 8).unwrap();
    // More than there may be at a time, alike, so that descriptors are renewed, and not.
    for n in 0..100 {
        let into = Slice::new(&lost, n % 3, 4).unwrap();
        drop(comm.irecv(&into, None, Some(n as i32 % 2)).unwrap());
    }
    comm.send(&from, 0, 1).unwrap();
    let status = comm.recv(Slice::whole(&kept), Some(0), Some(1)).unwrap();
    assert_eq!(status.len, 8);
    let mut bytes = [0; 8];
    lost.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    // One that has its message already, and is forgotten with it; sends go on.
    for _ in 0..20 {
        let received = comm.irecv(Slice::whole(&kept), None, Some(3)).unwrap();
        comm.send(&from, 0, 3).unwrap();
        assert_eq!(comm.iprobe(None, Some(3)), Ok(None));
        drop(received);
        drop(comm.issend(&from, 0, 4).unwrap());
        comm.recv(Slice::whole(&kept), None, Some(4)).unwrap();
    }
    // Nothing is left over the region of those that were taken back, but the descriptor that is kept for the next like it.
    assert!(lost.owners() <= 2, "{}", lost.owners());
}

#[test]
fn a_found_message_that_is_dropped_is_found_again_where_it_was() {
    let comm = comms(1).remove(0);
    let region = Region::new(8).unwrap();
    for tag in 0..5 {
        comm.send(Slice::new(&region, 0, 1).unwrap(), 0, tag)
            .unwrap();
    }
    let mut found = Vec::new();
    while let Some(message) = comm.improbe(None, None).unwrap() {
        found.push(message);
    }
    let tags: Vec<i32> = found.iter().map(|m| m.status().tag).collect();
    assert_eq!(tags, [0, 1, 2, 3, 4]);
    // In another order than they came.
    for at in [3, 0, 2, 0] {
        drop(found.remove(at));
    }
    let last = found.remove(0);
    assert_eq!(last.status().tag, 2);
    let mut tags = Vec::new();
    for _ in 0..4 {
        tags.push(comm.recv(Slice::whole(&region), None, None).unwrap().tag);
    }
    assert_eq!(tags, [0, 1, 3, 4]);
    comm.mrecv(last, Slice::whole(&region)).unwrap();
    assert_eq!(comm.iprobe(None, None), Ok(None));
}

/// Sends of tag 1, all begun, and one of tag 2; whether the receiver of tag 2 gets its message within so many looks of both.
fn overtaken(options: &Options, messages: usize, len: usize) -> (World, World, Vec<Comm>, bool) {
    let mut two = worlds(2, options);
    let (second, first) = (two.pop().unwrap(), two.pop().unwrap());
    let (from, to) = (first.comm(), second.comm());
    let data = Region::new(len).unwrap();
    let data = Slice::new(&data, 0, len).unwrap();
    let sends = (0..messages).map(|_| from.isend(&data, 1, 1).unwrap());
    let mut sends: Vec<_> = sends.collect();
    sends.push(from.isend(&data, 1, 2).unwrap());
    let into = Slice::new(&Region::new(len).unwrap(), 0, len).unwrap();
    let late = to.irecv(&into, Some(0), Some(2)).unwrap();
    let mut there = false;
    for _ in 0..messages * 2 + 100 {
        if there {
            break;
        }
        first.progress().unwrap();
        there = there || to.test(&late).unwrap().is_some();
    }
    // The others in their order, and what waited.
    let mut received = 0;
    for _ in 0..messages * 20 + 100 {
        if received == messages && there {
            break;
        }
        first.progress().unwrap();
        if received < messages && to.iprobe(Some(0), Some(1)).unwrap().is_some() {
            let one = to.irecv(&into, Some(0), Some(1)).unwrap();
            for _ in 0..1000 {
                first.progress().unwrap();
                if to.test(&one).unwrap().is_some() {
                    received += 1;
                    break;
                }
            }
        }
        there = there || to.test(&late).is_ok_and(|end| end.is_some());
    }
    assert_eq!(received, messages);
    for send in &sends {
        let mut ended = false;
        for _ in 0..1000 {
            if ended {
                break;
            }
            ended = ended || from.test(send).is_ok_and(|end| end.is_some());
            second.progress().unwrap();
        }
        assert!(ended);
    }
    (first, second, vec![from, to], there)
}

#[test]
fn any_number_of_messages_may_come_before_the_one_that_is_received() {
    for (overflow, short) in [(64 << 20, 8192), (1, 8192), (64 << 20, 1)] {
        let options = Options {
            overflow,
            short,
            ..Options::default()
        };
        let (first, second, _comms, overtook) = overtaken(&options, 500, 8);
        assert!(overtook, "overflow {overflow}, short {short}");
        let notes = second.counts()[0].notes;
        let kept = first.counts()[0].released;
        assert!(notes > 0 && notes <= kept, "{notes} notes of {kept}");
    }
}

#[test]
fn memory_for_messages_that_came_early_is_bounded_and_the_sender_waits() {
    let options = Options {
        unexpected: 16 << 10,
        ..Options::default()
    };
    // All arrive, when they are received; not before.
    let (_first, second, _comms, _) = overtaken(&options, 1000, 8);
    let notes = second.counts()[0].notes;
    assert!(notes > 50, "{notes}");
    let two = worlds(2, &options);
    let (from, to) = (two[0].comm(), two[1].comm());
    let data = Region::new(8).unwrap();
    let sends: Vec<_> = (0..5000)
        .map(|_| from.isend(Slice::new(&data, 0, 8).unwrap(), 1, 1).unwrap())
        .collect();
    // Each look handles 100 events.
    for _ in 0..100 {
        assert!(to.iprobe(None, Some(2)).unwrap().is_none());
        two[0].progress().unwrap();
    }
    let counts = two[0].counts()[0];
    let gone = counts.short + counts.released;
    assert!((150..1000).contains(&gone), "{gone}");
    drop(sends);
}

#[test]
fn ranks_with_different_options_are_refused() {
    let common = Options::default();
    let others = [
        Options {
            mode: TagMode::Tag1,
            ..common
        },
        Options {
            short: 4096,
            ..common
        },
        Options {
            contexts: 2,
            ..common
        },
        Options {
            contexts: 2,
            thread_grouping: true,
            ..common
        },
    ];
    for other in others {
        for odd in 0..4 {
            let opened = in_process(4);
            let opened = (0..).zip(opened).map(|(rank, opened)| {
                let options = if rank == odd { &other } else { &common };
                open(opened, rank, options)
            });
            let opened: Vec<_> = opened.collect();
            // Who opens later may be told at once, and the others as soon as they look.
            let mut told = 0;
            for _ in 0..10 {
                told = 0;
                for world in &opened {
                    told += match world {
                        Err(OpenError::Differs { .. }) => 1,
                        Err(error) => panic!("{error}"),
                        Ok(world) => match world.progress() {
                            Err(CallError::Differs { .. }) => 1,
                            other => {
                                assert!(other.is_ok());
                                0
                            }
                        },
                    };
                }
            }
            // A world that was refused is gone, and tells nobody behind it.
            let left = opened.iter().flatten().count();
            assert!(told > 0, "rank {odd} of {other:?}");
            assert!(left < 4 || told == 4, "rank {odd} of {other:?}: {told}");
        }
    }
}

#[test]
fn a_world_that_is_finished_has_sent_what_was_sent() {
    let worlds = worlds(2, &Options::default());
    let meeting = std::sync::Barrier::new(2);
    thread::scope(|s| {
        for world in worlds {
            let meeting = &meeting;
            s.spawn(move || {
                let comm = world.comm();
                let region = Region::new(8).unwrap();
                let whole = Slice::whole(&region);
                if comm.rank() == 0 {
                    for _ in 0..100 {
                        drop(comm.isend(&whole, 1, 1).unwrap());
                    }
                } else {
                    for _ in 0..100 {
                        comm.recv(&whole, None, None).unwrap();
                    }
                }
                world
                    .finish(|| {
                        meeting.wait();
                        Ok::<(), std::convert::Infallible>(())
                    })
                    .unwrap();
                let after = comm.isend(&whole, 1, 1);
                assert!(matches!(after, Err(CallError::Portals(_))), "{after:?}");
            });
        }
    });
}

/// Memory of the library's own messages is used again, and what is sent from is not kept when the program has dropped it.
#[test]
fn memory_that_is_sent_from_goes_when_the_program_drops_it() {
    let worlds = worlds(2, &Options::default());
    let regions: Vec<Region> = (0..200).map(|_| Region::new(8).unwrap()).collect();
    let (from, to) = (worlds[0].comm(), worlds[1].comm());
    let into = Region::new(8).unwrap();
    for region in &regions {
        from.send(Slice::whole(region), 1, 1).unwrap();
        to.recv(Slice::whole(&into), None, None).unwrap();
        worlds[0].progress().unwrap();
    }
    let held = regions.iter().filter(|r| r.owners() > 1).count();
    assert!(held <= 64, "{held} descriptors are kept");
    let weak: Vec<_> = regions.iter().map(Region::downgrade).collect();
    drop(regions);
    // The next one that is sent from.
    let last = Region::new(8).unwrap();
    from.send(Slice::whole(&last), 1, 1).unwrap();
    to.recv(Slice::whole(&into), None, None).unwrap();
    assert_eq!(weak.iter().filter(|w| w.owners() > 0).count(), 0);
}
