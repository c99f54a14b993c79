//! Processes of which one thread waits outside the simulation while another is in it.

use super::*;
use fabric_testing::{EndOnPanic, entry, spec, to};
use portals_core::{AckRequest, EqHandle, EventKind, InsertPosition, MdHandle, Unlink};
use portals_shim::MdMemory;
use std::sync::{Barrier, Mutex};

/// A rank with a descriptor that takes puts, and another to put from.
struct Member {
    ni: Interface,
    eq: EqHandle,
    from: MdHandle,
    peer: u32,
}

impl Member {
    fn join(served: &Served, rank: u32, line: OwnedFd) -> Self {
        let ni = served.join(rank, line).unwrap();
        let eq = ni.eq_alloc(16).unwrap();
        let me = ni.me_attach(4, entry(7), InsertPosition::After).unwrap();
        ni.md_attach(me, spec(MdMemory::Empty, Some(eq)), Unlink::Retain)
            .unwrap();
        let from = spec(MdMemory::Empty, None);
        let from = ni.md_bind(from, Unlink::Retain).unwrap();
        Self {
            ni,
            eq,
            from,
            peer: 1 - rank,
        }
    }

    fn greet(&self) {
        let peer = to(Placement::ONE.of(self.peer), 7, 0);
        self.ni.put(self.from, AckRequest::NoAck, peer, 0).unwrap();
    }

    fn is_greeted(&self) {
        while self.ni.eq_wait(self.eq).unwrap().event.kind != EventKind::PutEnd {}
    }
}

/// Has both ranks of a job join, do something and leave, each on a thread.
fn two_members(body: impl Fn(u32, &Member) + Sync) {
    let mut served = Served::new(2);
    let mut founder = served.founder.take();
    let (own, body) = (&served, &body);
    std::thread::scope(|s| {
        for rank in 0..2 {
            let line = founder.take().unwrap_or_else(|| own.connect());
            s.spawn(move || {
                let _end = EndOnPanic::guard();
                let member = Member::join(own, rank, line);
                body(rank, &member);
                member.ni.close().unwrap();
            });
        }
    });
    served.end().unwrap();
}

#[test]
fn threads_wait_for_events_while_others_of_their_ranks_are_outside() {
    let fence = &Barrier::new(2);
    two_members(|_, member| {
        std::thread::scope(|s| {
            let waits = s.spawn(|| member.is_greeted());
            for _ in 0..50 {
                member.ni.outside(|| fence.wait()).unwrap();
            }
            member.greet();
            waits.join().unwrap();
        });
    });
}

/// Two threads of a rank are outside at the same time, and wait for each other.
#[test]
fn several_threads_of_a_rank_are_outside_at_once() {
    let fences = &[Barrier::new(2), Barrier::new(2)];
    two_members(|rank, member| {
        let fence = &fences[rank as usize];
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..50 {
                        member.ni.outside(|| fence.wait()).unwrap();
                    }
                });
            }
        });
        member.greet();
        member.is_greeted();
    });
}

/// A rank comes to the fence only after another has answered it, of which a thread is in the fence already.
#[test]
fn a_thread_answers_while_another_of_its_rank_is_outside() {
    let fence = &Barrier::new(2);
    let (tell, is_outside) = std::sync::mpsc::channel();
    let (tell, is_outside) = (&Mutex::new(tell), &Mutex::new(is_outside));
    two_members(|rank, member| {
        if rank == 1 {
            is_outside.lock().unwrap().recv().unwrap();
            member.greet();
            member.is_greeted();
            member.ni.outside(|| fence.wait()).unwrap();
            return;
        }
        std::thread::scope(|s| {
            s.spawn(|| {
                member.is_greeted();
                member.greet();
            });
            let meet = || {
                tell.lock().unwrap().send(()).unwrap();
                fence.wait()
            };
            member.ni.outside(meet).unwrap();
        });
    });
}

/// A rank that asks again before it is answered is hung up on, and its question not lost.
#[test]
fn a_rank_that_asks_twice_leaves() {
    let (served, rank, hasty) = two();
    let question = postcard::to_stdvec(&Question::Call(Call::Status)).unwrap();
    for _ in 0..2 {
        say(&hasty.0, &question);
    }
    assert!(closed(&hasty.0));
    assert!(rank.ask(Call::Status).result.is_ok());
    assert!(rank.ask(Call::Close).result.is_ok());
    served.end().unwrap();
}
