//! A host that does not read what it is told is waited for, and is told of every refusal.

use nic_model::defs::command::{OpCode, Release};
use nic_model::defs::event::{EventType, RESULT_REFUSED, RejectedCommand, refusal};
use nic_model::defs::mailbox;
use nic_model::defs::niccb::Counter;
use nic_model::{NodeId, RegisterIo, SimDuration};
use zerocopy::FromZeros;

use super::driver::{EQ_ENTRIES, Sim, init_eq};

/// Refusals that wait for room in the event queue before the firmware leaves the mailbox alone.
const WAITING: u32 = 1024;

fn bad_release() -> Release {
    let mut release = Release::new_zeroed();
    release.op = OpCode::RELEASE;
    // A transmit pending.
    release.pending_index = 0.into();
    release
}

#[test]
fn refusals_that_the_host_has_not_read_hold_further_commands_up() {
    let mut sim = Sim::pair(1 << 20);
    // As many as the queue and the firmware have room for, and what the mailbox holds beyond.
    let commands = EQ_ENTRIES + WAITING + 40;
    for _ in 0..commands {
        let now = sim.now();
        sim.write(0, now, &bad_release());
    }
    let later = sim.now() + SimDuration::from_us(1000);
    while sim.now() < later {
        sim.step();
    }
    let refused = sim.counter(0, Counter::COMMANDS_REJECTED);
    assert_eq!(refused, EQ_ENTRIES + WAITING);
    // The host reads its queue after all.
    sim.run();
    assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), commands);
    assert_eq!(sim.counter(0, Counter::EVENTS_LOST), 0);
    let told = sim.hosts[0].log.iter().map(|(_, event)| *event);
    let told = told.filter(|event| event.kind() == EventType::REJECTED);
    let told: Vec<_> = told.map(|event| RejectedCommand(event.index())).collect();
    assert_eq!(told.len(), commands as usize);
    assert!(told.iter().all(|told| told.reason() == refusal::PENDING));
}

fn result(sim: &mut Sim) -> Option<u32> {
    let now = sim.now();
    let mut io = sim.world.registers(NodeId(0), now);
    let read = io.read32(mailbox::address(0, mailbox::RESULT_READ));
    if read == io.read32(mailbox::address(0, mailbox::RESULT_WRITE)) {
        return None;
    }
    let result = io.read32(mailbox::address(0, mailbox::RESULT_RING + 4 * read));
    let next = mailbox::next_result(read);
    io.write32(mailbox::address(0, mailbox::RESULT_READ), next);
    Some(result)
}

#[test]
fn results_that_the_host_has_not_read_hold_further_commands_up() {
    let mut sim = Sim::pair(1 << 20);
    let commands = 10;
    for _ in 0..commands {
        let now = sim.now();
        // It has its queue.
        sim.write(0, now, &init_eq());
    }
    for _ in 0..commands {
        let later = sim.now() + SimDuration::from_us(200);
        sim.run_until(later);
        let refused = RESULT_REFUSED | u32::from(refusal::STATE);
        assert_eq!(result(&mut sim), Some(refused));
        assert_eq!(result(&mut sim), None, "more than the ring has room for");
    }
    sim.run();
    assert_eq!(sim.counter(0, Counter::RESULTS_LOST), 0);
    assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), commands);
}
