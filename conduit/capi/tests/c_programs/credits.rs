//! What C programs see of credits.

use crate::programs::{Build, SEQ, compile, compiler, launch, text};

/// A program of two nodes with as few credits as may be, whose active messages go by the interface everywhere.
fn run(fabric: &str, b: Build<'_>, args: &[&str], set: &[(&str, &str)]) -> (bool, String) {
    let few = [
        ("GASNET_PORTAL_CRED_PER_NODE", "8"),
        ("GASNET_PORTAL_BANKED_CREDITS", "40"),
        ("GASNET_PORTAL_NEAR", "0"),
    ];
    let output = launch(fabric, 2, &compile("gasnet_credits", b), args)
        .envs(few)
        .envs(set.iter().copied())
        .output()
        .unwrap();
    (output.status.success(), text(&output))
}

/// Three of four messages wait, and ask for 7, 7 and 1 credits, which are granted up to the largest loan of all.
#[test]
fn credits_grow_with_what_waits_for_them() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let b = Build {
            model,
            compiled_for: model,
            ..SEQ
        };
        for (fabric, grown) in [("shm", "15"), ("seastar", "any")] {
            let (passed, said) = run(fabric, b, &[grown], &[]);
            assert!(passed, "{fabric} {model}: {said}");
            for rank in 0..2 {
                assert!(said.contains(&format!("node {rank}: all right")), "{said}");
            }
        }
    }
    let most = [("GASNET_PORTAL_MAX_CRED_PER_NODE", "13")];
    let (passed, said) = run("shm", SEQ, &["5"], &most);
    assert!(passed, "{said}");
}

#[test]
fn credits_of_no_node_end_the_process() {
    if !compiler("cc") {
        return;
    }
    let (passed, said) = run("shm", SEQ, &["any", "nowhere"], &[]);
    assert!(!passed, "{said}");
    let line = ": gasnet_revoked_credits: there is no node 2";
    assert!(said.contains(line), "{said}");
}
