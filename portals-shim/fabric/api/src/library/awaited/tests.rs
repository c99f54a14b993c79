//! What a caller that waits is told, by a fabric that ends its operations when the test says so.

use super::*;
use crate::call::{RemoteKey, Target};
use crate::identity::rank_config;
use crate::nal::Look;
use crate::place::Placement;
use crate::region::tests::TRUST;
use portals_core::{
    EqHandle, Event, EventKind, InPlace, Landing, MdDesc, MdHandle, MdOptions, Memory, Ni,
    ProcessId, Transmit, Unlink,
};

/// Ends what it makes alone after so many looks, well or not.
#[derive(Debug)]
struct Adapter {
    /// It makes nothing alone.
    busy: bool,
    looks: u32,
    fails: bool,
    /// What would be answered, until it is.
    answer: Option<(InPlace, bool)>,
    sent: u32,
}

impl Adapter {
    fn ended(&self) -> bool {
        self.looks == 0
    }
}

impl Nal for Adapter {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        self.sent += 1;
        if let Some(op) = tx.op {
            ni.send_end(op, NiFail::OK);
        }
    }

    fn transfer(&mut self, way: Direction, local: &Landing, remote: &Target) -> bool {
        let offset = match way {
            Direction::Read => local.offset,
            Direction::Write => 0,
        };
        let answer = answer(local.md, remote, offset, local.memory.len);
        self.answer = Some((answer, way == Direction::Write));
        !self.busy
    }

    fn await_end(&mut self, _: &mut Ni) -> (Awaiting, bool) {
        self.looks = self.looks.saturating_sub(1);
        let awaiting = match (self.ended(), self.fails) {
            (false, _) => Awaiting::Yet,
            (true, true) => Awaiting::Failed,
            (true, false) => Awaiting::Done,
        };
        (awaiting, false)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        if self.ended() && self.fails {
            self.answer(ni);
        }
    }

    fn progress(&mut self, _: &mut Ni, _: Look) -> bool {
        false
    }

    fn distance(&self, _: ProcessId) -> Option<u64> {
        None
    }
}

impl Adapter {
    fn answer(&mut self, ni: &mut Ni) {
        let fail = match self.fails {
            true => NiFail::FAIL,
            false => NiFail::OK,
        };
        match self.answer.take() {
            Some((answer, false)) => ni.reply_in_place(&answer, fail),
            Some((answer, true)) if !self.fails => ni.ack_in_place(&answer),
            _ => {}
        }
    }
}

fn target() -> Target {
    Target {
        process: ProcessId::new(7, 7),
        pt_index: 4,
        ac_index: 0,
        match_bits: 3,
        remote_offset: 0,
    }
}

fn get(md: MdHandle, (offset, len): (u64, u64)) -> Get<'static> {
    Get::new(md, target()).region(offset, len).wait()
}

fn put(md: MdHandle, (offset, len): (u64, u64)) -> Put<'static> {
    Put::new(md, target()).region(offset, len).wait()
}

fn answer(md: MdHandle, from: &Target, offset: u64, length: u64) -> InPlace {
    InPlace {
        md,
        target: from.process,
        pt_index: from.pt_index,
        match_bits: from.match_bits,
        offset,
        length,
    }
}

struct World {
    library: Library<Adapter>,
    md: MdHandle,
    eq: EqHandle,
}

const LOOKS: u32 = 4;

fn world(threshold: i32, looks: u32, fails: bool) -> World {
    let mut ni = Ni::new(rank_config(Placement::ONE, 0, 1));
    let eq = ni.eq_alloc(16).unwrap();
    let md = ni.md_bind(
        MdDesc {
            memory: Memory::contiguous(4096, 64),
            threshold,
            max_size: 0,
            options: MdOptions::OP_PUT | MdOptions::OP_GET,
            user_ptr: 0,
            eq: Some(eq),
        },
        Unlink::Retain,
    );
    let adapter = Adapter {
        busy: false,
        looks,
        fails,
        answer: None,
        sent: 0,
    };
    World {
        library: Library::new(ni, adapter, TRUST),
        md: md.unwrap(),
        eq,
    }
}

impl World {
    fn get(&mut self) -> Posted {
        let got = self.library.get_awaited(&get(self.md, (8, 8)), LOOKS);
        got.unwrap()
    }

    fn put(&mut self) -> Posted {
        let put = self.library.put_awaited(&mut put(self.md, (8, 8)), LOOKS);
        put.unwrap()
    }

    fn events(&mut self) -> Vec<(EventKind, bool)> {
        let ni = &mut self.library.ni;
        let next = || ni.eq_next(self.eq).unwrap().map(|(event, _)| *event);
        std::iter::from_fn(next)
            .map(|e: Event| (e.kind, e.ni_fail == NiFail::OK))
            .collect()
    }

    /// The operation ends.
    fn end(&mut self) {
        let Library { ni, nal, .. } = &mut self.library;
        nal.answer(ni);
    }
}

const DONE: Posted = Posted::Done { events: false };

#[test]
fn what_ends_within_the_looks_makes_no_event() {
    for looks in 1..=LOOKS {
        let mut w = world(-1, looks, false);
        assert_eq!(w.get(), DONE);
        let status = w.library.ni.status();
        let got = (status.send_count, status.recv_count, status.recv_length);
        assert_eq!(got, (1, 1, 8));
        w.library.nal.looks = looks;
        assert_eq!(w.put(), DONE);
        let status = w.library.ni.status();
        assert_eq!((status.send_count, status.send_length), (2, 8));
        assert_eq!(w.library.ni.usage().messages.made, 2);
        assert_eq!(w.events(), []);
        // Nothing is owed to the descriptor.
        assert!(w.library.ni.md_unlink(w.md).is_ok());
    }
}

#[test]
fn what_takes_longer_ends_by_its_events() {
    let mut w = world(-1, LOOKS + 1, false);
    assert_eq!(w.get(), Posted::Begun);
    assert_eq!(w.events(), []);
    w.end();
    assert_eq!(
        w.events(),
        [(EventKind::ReplyStart, true), (EventKind::ReplyEnd, true)]
    );
    w.library.nal.looks = LOOKS + 1;
    assert_eq!(w.put(), Posted::Taken);
    assert_eq!(w.events(), []);
    w.end();
    assert_eq!(w.events(), [(EventKind::Ack, true)]);
    assert_eq!(w.library.nal.sent, 0);
}

#[test]
fn what_fails_says_so_by_an_event() {
    let mut w = world(-1, 2, true);
    assert_eq!(w.get(), Posted::Begun);
    assert_eq!(
        w.events(),
        [(EventKind::ReplyStart, true), (EventKind::ReplyEnd, false)]
    );
    assert_eq!(w.library.nal.sent, 0);
}

#[test]
fn what_is_not_made_alone_is_an_operation_as_ever() {
    // By a busy adapter, and with a threshold, which an operation changes.
    for threshold in [-1, 5] {
        let mut w = world(threshold, 1, false);
        w.library.nal.busy = threshold < 0;
        assert_eq!(w.get(), Posted::Begun);
        assert_eq!(w.put(), Posted::Begun);
        assert_eq!(w.library.nal.sent, 2);
        let sent = [(EventKind::SendStart, true), (EventKind::SendEnd, true)];
        assert_eq!(w.events(), sent);
    }
}

#[test]
fn a_caller_that_is_done_is_told_of_other_events() {
    let mut w = world(-1, LOOKS + 1, false);
    assert_eq!(w.get(), Posted::Begun);
    w.end();
    w.library.nal.looks = 1;
    assert_eq!(w.put(), Posted::Done { events: true });
    assert_eq!(w.events().len(), 2);
    w.library.nal.looks = 1;
    assert_eq!(w.put(), DONE);
}

#[test]
fn refusals_are_those_of_the_calls() {
    let mut w = world(-1, 1, false);
    let region = (60, 8);
    let got = w.library.get_awaited(&get(w.md, region), LOOKS);
    assert_eq!(got, Err(Error::MdIllegal));
    let put = w.library.put_awaited(&mut put(w.md, region), LOOKS);
    assert_eq!(put, Err(Error::MdIllegal));
    w.library.ni.md_unlink(w.md).unwrap();
    let got = w.library.get_awaited(&get(w.md, (0, 8)), LOOKS);
    assert_eq!(got, Err(Error::MdInvalid));
}
