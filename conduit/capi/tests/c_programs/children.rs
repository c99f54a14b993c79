//! Children of a node, its signals, and a node that has no standard descriptors.

use crate::programs::{FABRICS, SEQ, compile, compiler, launch, passes, text};
use std::path::Path;

#[test]
fn a_forked_child_does_not_speak_for_its_node() {
    if compiler("cc") {
        passes(2, &compile("gasnet_children", SEQ), &[]);
    }
}

#[test]
fn signals_that_a_node_blocks_are_taken_by_no_thread_of_the_library() {
    if compiler("cc") {
        passes(2, &compile("gasnet_own_signals", SEQ), &[]);
    }
}

/// The launcher does not hear it any more, and the fabric perhaps not either.
#[test]
fn a_node_that_closes_all_its_descriptors_ends_the_job_by_its_name() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_children", SEQ);
    for fabric in FABRICS {
        let output = launch(fabric, 2, &program, &["all"]).output().unwrap();
        let said = text(&output);
        // Rust's library, where it looks, ends a process that closes what others own.
        assert!(!output.status.success(), "on {fabric}: {said}");
        let named = said.contains("portolan run: rank 1 ");
        assert!(named && !said.contains("panicked"), "on {fabric}: {said}");
    }
}

#[test]
fn closed_standard_descriptors_are_not_taken_by_the_library() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_children", SEQ);
    for closed in ["<&- >&- 2>&-", "<&-", ">&- 2>&-"] {
        // Those that stay open are as those that are opened.
        let script = format!("exec \"$0\" closed </dev/null >/dev/null 2>/dev/null {closed}");
        for fabric in FABRICS {
            let program = program.to_string_lossy();
            let args = ["-c", &script, &*program];
            let output = launch(fabric, 2, Path::new("sh"), &args).output().unwrap();
            let said = text(&output);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{closed} on {fabric}: {said}"
            );
        }
    }
}
