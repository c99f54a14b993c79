//! How the work of the simulation grows with the number of its ranks, and that it counts them right.

use super::super::map::Map;
use super::super::usermem::UserMemory;
use super::{Request, Return, Setting, Sim};
use fabric_api::call::{Answer, Call, Target};
use fabric_api::mode::Mode;
use fabric_api::place::{RANK_PID, nid};
use nic_model::{Faults, Machine, SimTime};
use portals_core::{
    AckRequest, Limits, MdDesc, MdHandle, MdOptions, Memory, NiConfig, ProcessId, Segment, Unlink,
};

/// Bytes that a rank sends from.
#[derive(Debug)]
struct Bytes;

impl UserMemory for Bytes {
    fn read(&mut self, _: u64, buf: &mut [u8]) -> bool {
        buf.fill(7);
        true
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        true
    }
}

fn id(rank: usize) -> ProcessId {
    ProcessId::new(nid(rank as u32), RANK_PID)
}

fn sim(ranks: usize) -> Sim {
    let setting = Setting {
        machine: Machine::named("xt4").unwrap(),
        topology: None,
        map: Map::default(),
        mode: Mode::Generic,
        faults: Faults::none(),
        patience: None,
    };
    let config = |rank| NiConfig {
        id: id(rank),
        uid: 1,
        jid: 1,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    };
    let configs: Vec<NiConfig> = (0..ranks).map(config).collect();
    let memories = (0..ranks).map(|_| Box::new(Bytes) as Box<dyn UserMemory>);
    Sim::new(setting, &configs, memories.collect()).unwrap()
}

/// The call that a rank makes when it has had so many answers.
fn next(rank: usize, ranks: usize, made: usize, md: Option<MdHandle>) -> Option<Call> {
    let target = |step| Target {
        process: id((rank + step) % ranks),
        pt_index: 4,
        ac_index: 0,
        match_bits: 0,
        remote_offset: 0,
    };
    match made {
        0 => Some(Call::MdBind {
            desc: MdDesc {
                memory: Memory::Contiguous(Segment { addr: 4096, len: 8 }),
                threshold: -1,
                max_size: 0,
                options: MdOptions::OP_PUT,
                user_ptr: 0,
                eq: None,
            },
            unlink: Unlink::Retain,
        }),
        1..=4 => Some(Call::Put {
            md: md?,
            region: None,
            ack: AckRequest::NoAck,
            to: target(made),
            hdr_data: 0,
        }),
        5 => Some(Call::Compute(rank as u64 % 7 * 100)),
        6 => Some(Call::Close),
        _ => None,
    }
}

/// Runs a program on so many ranks; answers and their times in the order in which they came, and how many calls were looked at.
fn run(ranks: usize) -> (Vec<(usize, SimTime)>, u64) {
    let mut sim = sim(ranks);
    let (mut made, mut mds) = (vec![0; ranks], vec![None; ranks]);
    for rank in 0..ranks {
        let call = next(rank, ranks, 0, None).unwrap();
        assert!(sim.handle_call(rank, Request::Call(call)));
    }
    let mut returns = Vec::new();
    while sim.live() > 0 {
        while let Some(Return {
            rank,
            clock,
            result,
        }) = sim.poll_return()
        {
            returns.push((rank, clock));
            if let Ok(Answer::Md(md)) = result {
                mds[rank] = Some(md);
            }
            made[rank] += 1;
            if let Some(call) = next(rank, ranks, made[rank], mds[rank]) {
                assert!(sim.handle_call(rank, Request::Call(call)));
            }
        }
        assert!(sim.live() == 0 || sim.has_more(), "nobody goes on");
    }
    (returns, sim.waiting_calls.looks)
}

#[test]
fn calls_that_are_looked_at_grow_with_the_calls_and_not_with_the_ranks() {
    let looks = [50, 400].map(|ranks| {
        let (returns, looks) = run(ranks);
        assert_eq!(returns.len(), 7 * ranks);
        looks / ranks as u64
    });
    assert!(looks[1] < 2 * looks[0], "{looks:?} for each rank");
}

#[test]
fn a_rank_that_dies_while_it_waits_to_come_back_keeps_nobody_outside() {
    let mut sim = sim(3);
    for rank in [0, 1] {
        assert!(sim.handle_call(rank, Request::Leave));
    }
    assert!(sim.handle_call(0, Request::Rejoin));
    sim.handle_exit(0);
    assert_eq!((sim.live(), sim.rejoining), (2, 0));
    assert!(sim.handle_call(1, Request::Rejoin));
    let call = next(2, 3, 0, None).unwrap();
    assert!(sim.handle_call(2, Request::Call(call)));
    let answered: Vec<usize> = std::iter::from_fn(|| sim.poll_return())
        .map(|answer| answer.rank)
        .collect();
    // Both may go outside, and 1 is back. It runs, so that the call of 2 waits.
    assert_eq!(answered, [0, 1, 1]);
    assert!(sim.handle_call(1, Request::Call(Call::Close)));
    let answered: Vec<usize> = std::iter::from_fn(|| sim.poll_return())
        .map(|answer| answer.rank)
        .collect();
    assert_eq!(answered, [1, 2]);
    assert_eq!((sim.live(), sim.rejoining), (1, 0));
}
