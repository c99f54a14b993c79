//! How programs end, by their own will or not.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, launch, line_of, run_on, text};
use std::path::PathBuf;

/// `gasnet_ends` with the checks of a debug build.
fn debug_build() -> PathBuf {
    let b = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    compile("gasnet_ends", b)
}

#[test]
fn ends_of_a_program_and_what_it_gets_wrong() {
    if !compiler("cc") {
        return;
    }
    let program = debug_build();
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

/// Each ends the process, and says the call and where it stands.
#[test]
fn wrong_locks_operations_and_collectives_say_call_and_place() {
    if !compiler("cc") {
        return;
    }
    let program = debug_build();
    // How it ends; what is said; the line of the program, by words of it.
    let cases = [
        (
            "unlock",
            "gasnet_hsl_unlock of a lock that this thread does not hold",
            "\"unlock\"",
        ),
        (
            "uninitialised",
            "gasnet_hsl_lock: the lock is not initialised",
            "\"uninitialised\"",
        ),
        (
            "init-twice",
            "gasnet_hsl_init of a lock that is initialised",
            "\"init-twice\"",
        ),
        (
            "destroy-held",
            "gasnet_hsl_destroy of a lock that is held",
            "held: destroyed",
        ),
        (
            "destroy-twice",
            "gasnet_hsl_destroy: the lock is not initialised",
            "destroyed again",
        ),
        ("hold-twice", "gasnet_hold_interrupts twice", "held again"),
        (
            "resume",
            "gasnet_resume_interrupts without gasnet_hold_interrupts",
            "\"resume\"",
        ),
        (
            "put-section",
            "gasnet_put_val in a no-interrupt section",
            "gasnet_put_val(0, &mine",
        ),
        (
            "send-locked",
            "gasnet_AMRequestShort while an HSL is held",
            "AMRequestShort1(1, 200, 9) != GASNET_OK) gasnet_exit(94)",
        ),
        (
            "handler-lock",
            "a handler returned while it held an HSL",
            "kept by a handler",
        ),
        (
            "reply-locked",
            "gasnet_AMReplyShort while an HSL is held",
            "AMReplyShort0(token, 201)",
        ),
        (
            "region-twice",
            "gasnet_begin_nbi_accessregion: nbi access regions do not nest",
            "begun again",
        ),
        (
            "region-end",
            "gasnet_end_nbi_accessregion: nbi access regions",
            "\"region-end\"",
        ),
        (
            "notify-twice",
            "gasnet_barrier_notify: barrier notified twice",
            "notified again",
        ),
        (
            "region-puts",
            "gasnet_wait_syncnbi_puts within an nbi access region",
            "of a region",
        ),
        (
            "region-all",
            "gasnet_try_syncnbi_all within an nbi access region",
            "of both",
        ),
        (
            "handle-twice",
            "is not the handle of an operation, or was synchronised before",
            "once more",
        ),
        (
            "handle-none",
            "gasnet_try_syncnb: 0x1267 is not the handle of an operation",
            "\"handle-none\"",
        ),
        (
            "handles-none",
            "gasnet_wait_syncnb_some: 0x1267 is not the handle of an operation",
            "syncnb_some(handles, 2)",
        ),
        (
            "value-length",
            "gasnet_put_val: 9 bytes are not 1 to 8",
            "\"value-length\"",
        ),
        (
            "value-nothing",
            "gasnet_get_val: 0 bytes are not 1 to 8",
            "\"value-nothing\"",
        ),
        (
            "value-twice",
            "gasnet_wait_syncnb_valget: not a handle of a value",
            "had already",
        ),
        (
            "totals",
            "gasnet_putv_bulk: 5 bytes there and 4 bytes here",
            "\"totals\"",
        ),
        (
            "indexed-totals",
            "gasnet_geti_bulk: 4 bytes there and 8 bytes here",
            "\"indexed-totals\"",
        ),
        (
            "vector-range",
            "gasnet_putv_bulk: 5 bytes at",
            "five of five",
        ),
        (
            "strided-range",
            "gasnet_gets_bulk: 8 bytes at",
            "there, strides, count, 1)",
        ),
        (
            "vector-lengths",
            "gasnet_putv_bulk: 18446744073709551615 bytes at",
            "there_too, 2",
        ),
        (
            "coll-length",
            "gasnet_coll_gather_all: no memory has 9223372036854775808 bytes",
            "SIZE_MAX / 2 + 1",
        ),
        (
            "coll-blocks",
            "gasnet_coll_exchange_nb: no memory has 18446744073709551615 bytes",
            "SIZE_MAX / 2 + 2",
        ),
        (
            "coll-source",
            "gasnet_coll_broadcast: no local memory for 4 bytes",
            "own, 0, NULL, 4",
        ),
        (
            "coll-target",
            "gasnet_coll_gather: no local memory for 8 bytes",
            "0, NULL, own, 4",
        ),
        (
            "coll-handle",
            "gasnet_coll_wait_sync: not the handle of a collective operation",
            "\"coll-handle\"",
        ),
        (
            "coll-handles",
            "gasnet_coll_wait_sync_all: not the handle of a collective operation",
            "coll_wait_sync_all(handles, 1)",
        ),
        (
            "coll-images",
            "gasnet_coll_init: too many images",
            "gasnet_coll_init(images, 0",
        ),
        ("coll-root", "image 2 of 2", "GASNET_TEAM_ALL, own, 2"),
        ("coll-function", "function 7 is not registered", "1, 7, 0"),
        (
            "coll-team",
            "gasnet_coll_team_size: no such team",
            "\"coll-team\"",
        ),
        (
            "coll-wait",
            "gasnet_coll_barrier_wait without gasnet_coll_barrier_notify",
            "\"coll-wait\"",
        ),
    ];
    for (how, words, line) in cases {
        let line = line_of("gasnet_ends.c", line);
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &program, &[how]);
            let said = text(&output);
            let code = output.status.code();
            assert_eq!(code, Some(134), "{how} on {fabric}: {said}");
            let found = said
                .lines()
                .any(|l| l.contains(words) && l.ends_with(&format!("gasnet_ends.c:{line}")));
            assert!(found, "{how} on {fabric}, line {line}: {said}");
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

/// The program of which a thread ends the job, if there is a compiler.
fn goes() -> Option<PathBuf> {
    let b = Build {
        model: "par",
        compiled_for: "par",
        ..SEQ
    };
    compiler("cc").then(|| compile("gasnet_goes", b))
}

/// Of a job that a thread ends while others are in calls the status is that thread's code.
#[test]
fn a_thread_ends_the_job_whatever_others_do() {
    let Some(program) = goes() else { return };
    let mut wrong = Vec::new();
    for turn in 0..100 {
        let how = ["own", "attach"][turn % 2];
        let code = 3 + turn as i32 % 5;
        let output = run_on("shm", 1, &program, &[how, &code.to_string()]);
        if output.status.code() != Some(code) {
            wrong.push((turn, how, output.status.code(), text(&output)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The handler keeps the library from the thread that ends the job, and would for ever.
#[test]
fn a_thread_ends_the_job_with_a_lock_that_a_handler_waits_for() {
    let Some(program) = goes() else { return };
    for how in ["lock", "trylock"] {
        for code in [0, 5] {
            for fabric in FABRICS {
                let output = run_on(fabric, 2, &program, &[how, &code.to_string()]);
                let said = text(&output);
                let status = output.status.code();
                assert_eq!(status, Some(code), "{how} on {fabric}: {said}");
            }
        }
    }
}
