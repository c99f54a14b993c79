//! What the table and the pictures of the book are measured on.

use nic_model::load::{Load, Pattern};
use nic_model::{Machine, Topology};

/// The machine, with this rule where both ways round a ring are equal.
pub(crate) fn machine(tie_break: u32) -> Machine {
    let machine = Machine::named("xt4").expect("it is built in");
    machine
        .with("network.tie_break", tie_break.into())
        .expect("a value of it")
}

/// The torus of 8 x 8.
pub(crate) fn torus() -> Topology {
    Topology::torus([8, 8, 1]).expect("it is small")
}

/// A load of so many flits for each node in 1000 flit times.
pub(crate) fn load(pattern: Pattern, per_mille: u32) -> Load {
    Load {
        pattern,
        per_mille,
        warm_up: 5_000,
        window: 10_000,
        seed: 1,
    }
}
