//! Operations of the conduit, by two ranks that are threads.

use super::Table;
use conduit::threads::{self, RankEnd};
use conduit::{BarrierName, Conduit, Counted, HandlerEntry, Payload, Token};
use portals_shim::fabric::Opened;
use std::cell::Cell;
use std::rc::Rc;

/// Handlers: messages are counted, some after an answer.
const COUNT: u8 = 200;
const ANSWER: u8 = 201;

/// Of so many operations one message that only touches memory.
const TOUCHES: u64 = 10;

const LONG: usize = 4000;
const SEGMENT: usize = 1 << 16;

pub(crate) fn rows(table: &Table, opened: Vec<Opened>) {
    let ends = threads::run_over(opened, &[], |conduit| {
        let seen = Rc::new(Cell::new(0u64));
        let counter = seen.clone();
        let count = HandlerEntry::new(COUNT, move |_, _, _| counter.set(counter.get() + 1));
        let answer = HandlerEntry::new(
            ANSWER,
            |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
                let answered = match payload.bytes().len() {
                    0 => token.reply_short(COUNT, args),
                    _ => token.reply_medium(COUNT, payload.bytes(), args),
                };
                answered.unwrap();
            },
        );
        conduit.attach(vec![count, answer], SEGMENT).unwrap();
        messages(table, &conduit, &seen);
        memory(table, &conduit);
        conduit.finish();
    });
    for end in ends {
        assert_eq!(end, RankEnd::Returned(()));
    }
}

fn row(table: &Table, c: &Conduit, what: &str, operation: &mut dyn FnMut()) {
    c.barrier(BarrierName::Anonymous).unwrap();
    table.exchange(what, c.mynode(), operation);
    c.barrier(BarrierName::Anonymous).unwrap();
}

/// Active messages, each of which is waited for.
fn messages(table: &Table, c: &Conduit, seen: &Cell<u64>) {
    let peer = 1 - c.mynode();
    let there = c.segment(peer).addr;
    let wanted = Cell::new(0);
    let row = |what: &str, each: u64, send: &dyn Fn()| {
        row(table, c, what, &mut || {
            send();
            wanted.set(wanted.get() + each);
            c.block_until(|| seen.get() >= wanted.get());
        });
    };
    // The buffers that messages land in are of a fixed size: long messages have touched all of it before memory is looked at. Short
    // ones do that slowly.
    for _ in 0..table.counts.exchanges / TOUCHES {
        c.am_request_medium(peer, COUNT, &[4; 500], &[1]).unwrap();
        wanted.set(wanted.get() + 1);
        c.block_until(|| seen.get() >= wanted.get());
    }
    row("conduit AM Short", 1, &|| {
        c.am_request_short(peer, COUNT, &[1]).unwrap();
    });
    row("conduit AM Medium", 1, &|| {
        c.am_request_medium(peer, COUNT, &[2; 100], &[1]).unwrap();
    });
    row("conduit AM Long", 1, &|| {
        c.am_request_long(peer, COUNT, &[3; LONG], there, &[1])
            .unwrap();
    });
    row("conduit AM Long, asynchronous", 1, &|| {
        c.am_request_long_async_from_segment(peer, COUNT, 0, LONG, there, &[1])
            .unwrap();
    });
    row("conduit AM Short, Short reply", 1, &|| {
        c.am_request_short(peer, ANSWER, &[1]).unwrap();
    });
    row("conduit AM Medium, Medium reply", 1, &|| {
        c.am_request_medium(peer, ANSWER, &[2; 100], &[1]).unwrap();
    });
    row("conduit AM Short, 16 at once", 16, &|| {
        for _ in 0..16 {
            c.am_request_short(peer, ANSWER, &[1]).unwrap();
        }
    });
}

/// Remote memory and barriers.
fn memory(table: &Table, c: &Conduit) {
    let peer = 1 - c.mynode();
    let there = c.segment(peer).addr;
    let row = |what: &str, operation: &mut dyn FnMut()| row(table, c, what, operation);
    row("conduit put", &mut || c.put(peer, there, &[1; 64]).unwrap());
    row("conduit get", &mut || {
        c.get(&mut [0; 64], peer, there).unwrap();
    });
    row("conduit put, get, 4000 bytes", &mut || {
        let mut data = [1; LONG];
        c.put(peer, there, &data).unwrap();
        c.get(&mut data, peer, there).unwrap();
    });
    row("conduit put, explicit handle", &mut || {
        c.wait(c.put_nb(peer, there, &[1; 64]).unwrap());
    });
    row("conduit put, implicit", &mut || {
        c.put_nbi(peer, there, &[1; 64]).unwrap();
        c.wait_nbi_all();
    });
    row("conduit put, get, of segments", &mut || {
        let put = c.put_from_segment_nb(peer, there, 0, LONG).unwrap();
        let get = c.get_to_segment_nb(8192, peer, there + 8192, LONG).unwrap();
        c.wait(put);
        c.wait(get);
    });
    row("conduit region of implicit puts", &mut || {
        c.begin_nbi_region().unwrap();
        c.put_from_segment_nbi(peer, there, 0, LONG).unwrap();
        c.get_to_segment_nbi(8192, peer, there + 8192, LONG)
            .unwrap();
        c.wait(c.end_nbi_region().unwrap());
    });
    row("conduit memset", &mut || {
        let set = c.memset(peer, there, 7, LONG, Counted::Explicit);
        c.wait(set.unwrap());
    });
    row("conduit barrier", &mut || {
        c.barrier(BarrierName::Anonymous).unwrap();
    });
    row("conduit barrier, named, tried", &mut || {
        c.barrier_notify(BarrierName::Named(3)).unwrap();
        while !c.barrier_try(BarrierName::Named(3)).unwrap() {
            c.poll();
        }
    });
}
