//! A host that writes anything anywhere, and the same run twice.

use nic_model::defs::command::{COMMAND_LEN, OpCode};
use nic_model::defs::niccb::Counter;
use nic_model::defs::{mailbox, map};
use nic_model::{NodeId, RegisterIo, Step};

use super::driver::{EQ, LISTS, Sim, UPPER};

/// One random act of a hostile host.
fn act(sim: &mut Sim, rng: &mut fastrand::Rng) {
    let node = rng.u16(0..3);
    let now = sim.world.now();
    let mut io = sim.world.registers(NodeId(node), now);
    match rng.u32(0..100) {
        0..40 => {
            // A command that is nearly right, with the odd wild field.
            let mut entry = [0u8; COMMAND_LEN];
            entry[0] = [0, 1, 2, 3, 3, 3, 4, 4, 5, 5, 13, rng.u8(..)][rng.usize(0..12)];
            entry[1] = rng.u8(0..8);
            entry[2] = rng.u8(0..3);
            if entry[0] == OpCode::RECEIVE.0 {
                entry[2] = rng.u8(0..2);
            }
            entry[4..8].copy_from_slice(&rng.u32(0..6000).to_le_bytes());
            entry[8..16].copy_from_slice(&(rng.u64(0..0x6_0000)).to_le_bytes());
            entry[16..18].copy_from_slice(&rng.u16(0..130).to_le_bytes());
            entry[18..20].copy_from_slice(&rng.u16(0..66).to_le_bytes());
            if entry[0] == OpCode::RECEIVE.0 {
                entry[18..20].copy_from_slice(&rng.u16(0..5).to_le_bytes());
                // The pendings of the first headers; payload that nobody answers blocks the port.
                entry[16..18].copy_from_slice(&rng.u16(64..72).to_le_bytes());
            }
            if rng.u32(0..4) == 0 {
                let at = rng.usize(1..COMMAND_LEN);
                entry[at] = rng.u8(..);
            }
            let slot = rng.u32(0..mailbox::COMMANDS);
            mailbox::write_command(&mut io, rng.u32(0..4) / 3, slot, &entry);
        }
        40..65 => {
            let index = if rng.u32(0..20) == 0 {
                rng.u32(..)
            } else {
                rng.u32(0..64)
            };
            io.write32(
                mailbox::address(rng.u32(0..4) / 3, mailbox::COMMAND_WRITE),
                index,
            );
        }
        65..75 => io.write32(map::SRAM + 4 * rng.u32(0..map::SRAM_LEN / 4), rng.u32(..)),
        75..78 => io.write32(rng.u32(..), rng.u32(..)),
        78..80 => {
            io.read32(rng.u32(..));
        }
        80..82 => io.write32(map::ht_slot(rng.u32(0..16)), rng.u32(..)),
        82..84 => io.write32(map::ht_slot(8), 0x8000),
        84 => io.write32(map::HT_INTERRUPT, rng.u32(0..2)),
        85..95 => {
            let (base, length) = [(EQ, 4096), (UPPER, 0x4000), (LISTS, 0x1_0000)][rng.usize(0..3)];
            let at = base as usize + rng.usize(0..length);
            sim.memory[usize::from(node)].bytes[at] = rng.u8(..);
        }
        _ => {
            // The host drains its queue after all.
            let bytes = &mut sim.memory[usize::from(node)].bytes;
            bytes[EQ as usize..EQ as usize + 4096].fill(0);
        }
    }
}

fn rampage(seed: u64, acts: u32) -> (Vec<Step>, Vec<u32>) {
    let mut sim = Sim::new([3, 1, 1], 1 << 20);
    sim.boot_all();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut trace = Vec::new();
    for _ in 0..acts {
        act(&mut sim, &mut rng);
        for _ in 0..rng.u32(0..12) {
            trace.extend(sim.world.step(&mut sim.memory));
            sim.world.poll_interrupt();
        }
    }
    for _ in 0..50_000 {
        trace.extend(sim.world.step(&mut sim.memory));
    }
    let counters = (0..3)
        .flat_map(|node| Counter::ALL.iter().map(move |(_, c)| (node, *c)))
        .map(|(node, counter)| sim.counter(node, counter))
        .collect();
    (trace, counters)
}

#[test]
fn nothing_a_host_writes_panics_seed_1_to_4() {
    for seed in 1..=4 {
        let (trace, _) = rampage(seed, 100_000);
        assert!(
            trace.len() > 100_000,
            "seed {seed}: only {} events",
            trace.len()
        );
    }
}

#[test]
fn hostile_runs_do_move_data_and_are_refused() {
    let mut sim = Sim::new([3, 1, 1], 1 << 20);
    sim.boot_all();
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut rejected, mut done, mut deposits) = (0, 0, 0);
    for _ in 0..20_000 {
        act(&mut sim, &mut rng);
        for _ in 0..40 {
            sim.world.step(&mut sim.memory);
        }
        let most = |counter| (0..3).map(|n| sim.counter(n, counter)).sum::<u32>();
        rejected = rejected.max(most(Counter::COMMANDS_REJECTED));
        done = done.max(most(Counter::TX_COMPLETE));
        deposits = deposits.max(most(Counter::RX_COMPLETE));
    }
    assert!(
        rejected > 100 && done > 10 && deposits > 0,
        "{rejected} {done} {deposits}"
    );
}

#[test]
fn the_same_run_twice_is_the_same_seed_9() {
    let (first, second) = (rampage(9, 20_000), rampage(9, 20_000));
    assert!(first == second);
    assert!(rampage(10, 20_000) != first);
}
