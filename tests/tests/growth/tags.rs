//! Operations of tags, by two ranks that are threads.

use super::{Table, touched};
use portals_shim::fabric::Opened;
use std::convert::Infallible;
use std::sync::Barrier;
use tagged::{Comm, Options, Slice, World};

/// So much that a few hundred that were kept would be seen.
const SEEN: usize = 16 << 10;

/// A message and its answer, in memory that goes afterwards.
fn exchange(comm: &Comm, len: usize) {
    let region = touched(len.max(SEEN));
    exchange_in(comm, &Slice::new(&region, 0, len).unwrap());
}

fn exchange_in(comm: &Comm, slice: &Slice) {
    if comm.rank() == 0 {
        comm.send(slice, 1, 3).unwrap();
        comm.recv(slice, Some(1), Some(4)).unwrap();
    } else {
        comm.recv(slice, Some(0), Some(3)).unwrap();
        comm.send(slice, 0, 4).unwrap();
    }
}

/// A message of the other's that nobody has asked for when it comes, and how it is received.
fn unexpected(comm: &Comm, len: usize, receive: impl FnOnce(&Slice)) {
    let region = touched(len.max(SEEN));
    let slice = Slice::new(&region, 0, len).unwrap();
    let sent = comm.isend(&slice, 1 - comm.rank(), 5).unwrap();
    comm.barrier().unwrap();
    let region = touched(len.max(SEEN));
    receive(&Slice::new(&region, 0, len).unwrap());
    comm.wait(sent).unwrap();
}

/// Both ranks do the same, each on a thread of its own, and rank 0 measures.
pub(crate) fn rows(table: &Table, opened: Vec<Opened>) {
    let options = Options::default();
    let meeting = Barrier::new(opened.len());
    std::thread::scope(|s| {
        for (rank, opened) in (0..).zip(opened) {
            let (options, meeting) = (&options, &meeting);
            s.spawn(move || {
                let fence = || {
                    meeting.wait();
                    Ok::<(), Infallible>(())
                };
                let world = World::open(opened, rank, options, fence).unwrap();
                all(table, &world.comm());
                world.finish(fence).unwrap();
            });
        }
    });
}

fn all(table: &Table, comm: &Comm) {
    let other = 1 - comm.rank();
    let row = |what: &str, operation: &mut dyn FnMut()| {
        comm.barrier().unwrap();
        table.exchange(what, comm.rank(), operation);
    };
    row("tag send, receive, 8 bytes", &mut || exchange(comm, 8));
    row("tag send, receive, 16 KiB", &mut || {
        exchange(comm, 16 << 10);
    });
    let large = touched(256 << 10);
    row("tag send, receive, 256 KiB", &mut || {
        exchange_in(comm, &Slice::whole(&large));
    });
    row("tag synchronous send", &mut || {
        let region = touched(SEEN);
        let received = comm.irecv(Slice::whole(&region), None, Some(6)).unwrap();
        let region = touched(SEEN);
        comm.ssend(Slice::new(&region, 0, 8).unwrap(), other, 6)
            .unwrap();
        comm.wait(received).unwrap();
    });
    // The overflow buffers are of a fixed size, 4 MiB in all: the longest messages that go there have touched all of it before
    // memory is looked at. Those of 8 bytes do that slowly.
    let short = Options::default().short;
    for _ in 0..1000 {
        unexpected(comm, short, |into| {
            comm.recv(into, None, Some(5)).unwrap();
        });
    }
    for len in [8, 16 << 10] {
        row(&format!("tag unexpected, {len} bytes"), &mut || {
            unexpected(comm, len, |into| {
                comm.recv(into, None, Some(5)).unwrap();
            });
        });
        row(&format!("tag probe, {len} bytes"), &mut || {
            unexpected(comm, len, |into| {
                let found = comm.mprobe(None, None).unwrap();
                comm.mrecv(found, into).unwrap();
            });
        });
    }
    row("tag 16 each way, all waited for", &mut || {
        let regions = [touched(SEEN), touched(SEEN)];
        let slices = regions.each_ref().map(Slice::whole);
        let received = (0..16).map(|tag| comm.irecv(&slices[0], Some(other), Some(tag)));
        let mut requests: Vec<_> = received.map(Result::unwrap).collect();
        let sent = (0..16).map(|tag| comm.isend(&slices[1], other, tag).unwrap());
        requests.extend(sent);
        comm.wait_all(&mut requests).unwrap();
    });
    row("tag receive, dropped", &mut || {
        let region = touched(SEEN);
        drop(comm.irecv(Slice::whole(&region), None, Some(9)).unwrap());
    });
    row("tag receive, cancelled", &mut || {
        let region = touched(SEEN);
        let request = comm.irecv(Slice::whole(&region), None, Some(9)).unwrap();
        assert!(comm.cancel(&request).unwrap());
        assert!(comm.wait(request).is_err());
    });
    row("tag barrier", &mut || comm.barrier().unwrap());
    row("tag duplicate, drop", &mut || drop(comm.dup().unwrap()));
    row("tag duplicate, message, drop", &mut || {
        exchange(&comm.dup().unwrap(), 8);
    });
    row("tag split, drop", &mut || {
        drop(comm.split(Some(comm.rank()), 0).unwrap());
    });
}
