//! How programs end, by their own will or not.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, launch, run_on, text};

#[test]
fn ends_of_a_program_and_what_it_gets_wrong() {
    if !compiler("cc") {
        return;
    }
    let b = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    let program = compile("gasnet_ends", b);
    // How it ends; the status; what is said. A rank that aborts is one killed by a signal: 128 + 6.
    let cases = [
        ("exit", 7, ""),
        ("return", 5, ""),
        ("interrupt", 4, ""),
        ("handler", 9, ""),
        ("before-attach", 3, ""),
        ("range", 134, "gasnet_put: 3 bytes at"),
        ("node", 134, "node index too high: 2 of 2"),
        (
            "null-source",
            134,
            "gasnet_put: no local memory for 4 bytes",
        ),
        (
            "null-target",
            134,
            "gasnet_get_nbi_bulk: no local memory for",
        ),
        ("null-handles", 134, "NULL for 2 elements"),
        ("null-list", 134, "gasnet_putv_bulk: NULL for 1 elements"),
        ("null-strides", 134, "gasnet_puts_bulk: NULL for 2 elements"),
        ("poll-locked", 134, "gasnet_AMPoll while an HSL is held at"),
        (
            "relock",
            134,
            "gasnet_hsl_lock of a lock that this thread holds",
        ),
        ("order", 134, "not the last one taken"),
        ("wait-twice", 134, "barrier not notified"),
        ("misaligned", 134, "an address is not a multiple of 8"),
    ];
    for (how, status, words) in cases {
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &program, &[how]);
            let said = text(&output);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{how} on {fabric}: {said}"
            );
            assert!(said.contains(words), "{how} on {fabric}: {said}");
            if words.contains(" at") || how == "order" {
                assert!(said.contains("gasnet_ends.c:"), "{how}: no place: {said}");
            }
        }
    }
}

/// A node that makes no call after a signal: its handler of SIGQUIT is asked when the longest exit has passed, and
/// without one the job ends then with the signal.
#[test]
fn a_signal_ends_a_program_that_never_calls_again() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let b = Build {
            model,
            compiled_for: model,
            ..SEQ
        };
        let program = compile("gasnet_ends", b);
        for (how, status) in [("deaf-handler", 4), ("deaf", 130)] {
            for fabric in FABRICS {
                let output = launch(fabric, 2, &program, &[how])
                    .env("GASNET_EXITTIMEOUT", "0.5")
                    .output()
                    .unwrap();
                let code = output.status.code();
                assert_eq!(code, Some(status), "{how} on {fabric}: {}", text(&output));
            }
        }
    }
}
