//! What simulating messages instead of packets costs in accuracy and saves in time:
//! `cargo run --release -p nic-model --example fidelity`.
//!
//! For each traffic pattern on a torus of 4 x 4 x 4 every node sends its messages one after the
//! other, and receivers deposit whatever comes. Compared are the times at which the last message
//! was complete, and the mean time at which a message was. `tests/fidelity.rs` holds the limits.

#[path = "../tests/fidelity/mod.rs"]
mod fidelity;

fn main() {
    print!("{}", fidelity::table());
}
