//! How far simulating messages is from simulating packets.

mod fidelity;

use fidelity::{PATTERNS, error, run};
use nic_model::Fidelity;

#[test]
fn messages_are_as_near_to_packets_as_promised() {
    for (pattern, percent) in PATTERNS {
        for length in [0, 512, 4_096] {
            let fine = run(pattern, length, Fidelity::Packet);
            let coarse = run(pattern, length, Fidelity::Message);
            for (what, fine, coarse) in [
                ("last", fine.last, coarse.last),
                ("mean", fine.mean, coarse.mean),
            ] {
                let error = error(fine, coarse);
                assert!(
                    error.abs() <= percent * 10,
                    "{pattern}, {length} bytes, {what}: {} permille",
                    error
                );
            }
        }
    }
}

#[test]
fn long_messages_cost_a_fortieth_of_the_events() {
    let fine = run("neighbour", 65_536, Fidelity::Packet);
    let coarse = run("neighbour", 65_536, Fidelity::Message);
    assert!(fine.events > 40 * coarse.events, "{fine:?} {coarse:?}");
    assert!(error(fine.last, coarse.last).abs() <= 10);
    assert_eq!(coarse, run("neighbour", 65_536, Fidelity::Message));
}
