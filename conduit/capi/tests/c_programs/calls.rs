//! What calls do, in every thread model, on every fabric that every machine has.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, passes, passes_in, run_on, text};

#[test]
fn every_call_does_what_it_says() {
    if compiler("cc") {
        let program = compile("gasnet_calls", SEQ);
        for ranks in [1, 2, 3] {
            passes(ranks, &program, &[]);
        }
        passes(2, &program, &["return"]);
    }
}

#[test]
fn every_call_with_memory_that_is_pinned_where_it_is_used() {
    if !compiler("cc") {
        return;
    }
    for segment in ["-DGASNET_SEGMENT_LARGE", "-DGASNET_SEGMENT_EVERYTHING"] {
        let debug = ["-std=gnu99", segment, "-DGASNET_DEBUG"];
        for (model, flags) in [("seq", &debug[..2]), ("seq", &debug), ("par", &debug[..2])] {
            let b = Build {
                model,
                compiled_for: model,
                flags,
                ..SEQ
            };
            let program = compile("gasnet_calls", b);
            for ranks in [1, 2, 3] {
                passes(ranks, &program, &[]);
            }
        }
    }
}

/// Memory that is unmapped, replaced, emptied or moved while peers hold it: they reach what is there then, or end with an
/// error.
#[test]
fn memory_that_goes_is_noticed() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let b = Build {
            flags: &["-std=gnu99", "-DGASNET_SEGMENT_EVERYTHING"],
            model,
            compiled_for: model,
            ..SEQ
        };
        let program = compile("gasnet_unmap", b);
        passes(2, &program, &[]);
        for fabric in FABRICS {
            let said = text(&run_on(fabric, 2, &program, &["gone"]));
            assert!(
                said.contains("has no memory of 1 bytes"),
                "{fabric}: {said}"
            );
        }
    }
}

#[test]
fn every_thread_model_has_every_call() {
    if compiler("cc") {
        passes_in(&["parsync", "par"], 2, "gasnet_calls");
    }
}

#[test]
fn every_error_code_when_its_condition_holds() {
    if compiler("cc") {
        let program = compile("gasnet_errors", SEQ);
        for ranks in [1, 2, 3] {
            passes(ranks, &program, &[]);
        }
    }
}

#[test]
fn no_operation_allocates() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 2, "gasnet_allocations");
    }
}

#[test]
fn every_number_of_arguments() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 2, "gasnet_numbered");
    }
}

#[test]
fn tools_do_what_they_say() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 1, "gasnet_tools_calls");
    }
}

#[test]
fn debug_builds_have_every_call() {
    if compiler("cc") {
        let b = Build {
            flags: &["-std=gnu99", "-DGASNET_DEBUG"],
            ..SEQ
        };
        passes(2, &compile("gasnet_calls", b), &[]);
    }
}

#[test]
fn threads_of_a_program_communicate_at_one_time() {
    if compiler("cc") {
        let b = Build {
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        passes(2, &compile("gasnet_threads", b), &[]);
    }
}

/// What threads send to different nodes arrives, each message once; where nodes share memory they need no lock of the process:
/// a thread that sits in the library the while, with whatever it locks, does not keep them.
#[test]
fn threads_send_to_different_nodes() {
    if compiler("cc") {
        let b = Build {
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        let program = compile("gasnet_disjoint", b);
        passes(3, &program, &[]);
        let said = text(&run_on("shm", 3, &program, &["inside"]));
        for rank in 0..3 {
            assert!(said.contains(&format!("node {rank}: all right")), "{said}");
        }
    }
}
