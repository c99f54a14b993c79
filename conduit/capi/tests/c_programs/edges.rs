//! What programs do at the edge of the specification, in builds without the checks of debug builds.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, run_on, text};
use std::path::PathBuf;

/// Those of the thread models, but for the second, which is the third's.
fn programs() -> [PathBuf; 2] {
    let par = Build {
        model: "par",
        compiled_for: "par",
        ..SEQ
    };
    [SEQ, par].map(|build| compile("gasnet_edges", build))
}

/// `gasnet_exit` ends the process there: what the program left for its exit is not run, since the job is over; what it
/// has printed is written. A return from `main` does run it, and nothing in it changes the status.
#[test]
fn exit_handlers_run_at_an_exit_of_the_program_alone() {
    if !compiler("cc") {
        return;
    }
    let ran = "a handler ran";
    for program in programs() {
        for fabric in FABRICS {
            let run = |how: &str| run_on(fabric, 2, &program, &[how]);
            for how in ["exit, handlers", "another's exit, handlers"] {
                let output = run(how);
                let said = text(&output);
                assert_eq!(output.status.code(), Some(7), "{how} on {fabric}: {said}");
                assert!(!said.contains(ran), "{how} on {fabric}: {said}");
            }
            let said = text(&run("exit, handlers"));
            assert!(said.contains("the last words"), "{fabric}: {said}");
            let output = run("return, handlers");
            let said = text(&output);
            assert_eq!(output.status.code(), Some(7), "return on {fabric}: {said}");
            assert!(said.contains(ran), "return on {fabric}: {said}");
            assert!(!said.contains("panicked"), "return on {fabric}: {said}");
        }
    }
}

/// A lock that is held across `gasnet_init` and a query; the own node's memory outside of its segment; conditions of
/// `GASNET_BLOCKUNTIL` that change by being looked at, or ask another node.
#[test]
fn what_clients_rely_on_works() {
    if !compiler("cc") {
        return;
    }
    for program in programs() {
        for fabric in FABRICS {
            for how in ["lock", "own", "conditions"] {
                let output = run_on(fabric, 2, &program, &[how]);
                let said = text(&output);
                assert_eq!(output.status.code(), Some(0), "{how} on {fabric}: {said}");
            }
        }
    }
}

/// What configure scripts read of an installation is there, and says what the headers say.
#[test]
fn configure_scripts_find_what_they_look_for() {
    let prefix = &crate::programs::places().prefix;
    let read = |name: &str| std::fs::read_to_string(prefix.join(name)).expect(name);
    let config = read("include/gasnet_config.h");
    let basic = read("include/portals-conduit/gasnet_basic.h");
    for part in ["MAJOR", "MINOR", "PATCH"] {
        let number = |text: &str, name: String| {
            let mut words = text.split_whitespace();
            words
                .find(|w| *w == name)
                .and_then(|_| words.next())
                .map(str::to_owned)
        };
        let here = number(&config, format!("GASNET_RELEASE_VERSION_{part}"));
        assert!(here.is_some());
        assert_eq!(here, number(&basic, format!("GASNETI_RELEASE_{part}")));
    }
    assert!(read("include/portals-conduit/gasnet_core.h").contains("gasnet.h"));
    let script = read("bin/gasnetrun_portals");
    assert!(!script.contains("@PREFIX@"), "not filled in: {script}");
}
