//! Every kind of active message between ranks that are processes, on both fabrics that work everywhere.

use std::process::{Command, Stdio};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

fn all_messages(arguments: &[&str]) {
    let output = Command::new(PORTOLAN)
        .args(["run", "-n", "3", "--timeout", "300"])
        .args(arguments)
        .args(["--", PORTOLAN, "messages"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}{error}");
    assert_eq!(said, "731 messages and replies on each rank: ok\n");
}

#[test]
fn every_message_over_shared_memory() {
    all_messages(&["--fabric", "shm"]);
    all_messages(&["--fabric", "shm", "--env", "GASNET_PORTAL_PACKED_LONG=0"]);
}

#[test]
fn every_message_on_the_model() {
    all_messages(&["--fabric", "seastar"]);
    all_messages(&["--fabric", "seastar", "--mode", "accelerated"]);
}
