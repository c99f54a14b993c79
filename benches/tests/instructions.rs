//! The guard against slower delivery. It needs the optimized build:
//! `cargo test --release -p portolan-benches --test instructions -- --nocapture`.

use std::process::Command;

#[test]
fn a_delivery_costs_no_more_instructions_than_recorded() {
    let out = Command::new(env!("CARGO_BIN_EXE_instructions"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    print!("{said}");
    assert!(
        out.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
