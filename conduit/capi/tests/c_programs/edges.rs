//! What programs do at the edge of the specification, in builds without the checks of debug builds.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, places, run_on, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For one thread, and for several.
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

/// Also where the system has no thread left, which would write it past the locks of others.
#[test]
fn what_was_printed_is_written_without_a_thread_for_it() {
    let Some(deny) = deny::Deny::compile() else {
        return;
    };
    for program in programs() {
        let program = program.display().to_string();
        let filter = ["EAGAIN", "clone,clone3", &program, "exit, handlers"];
        let output = run_on("shm", 2, deny.program(), &filter);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("the last words"), "{said}");
    }
}

/// A handler of the system's signals may call `gasnet_exit`, also where the signal comes while the library is polling.
#[test]
fn a_signal_may_end_the_job() {
    if !compiler("cc") {
        return;
    }
    for program in programs() {
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &program, &["signal"]);
            let said = text(&output);
            assert_eq!(output.status.code(), Some(7), "{fabric}: {said}");
            assert!(!said.contains("panicked"), "{fabric}: {said}");
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
    let prefix = &places().prefix;
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
}

/// A file is C without a warning where headers are looked for in these folders.
fn is_c(source: &Path, folders: &[&PathBuf]) {
    let mut cc = Command::new("cc");
    cc.args([
        "-std=gnu99",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        "-fsyntax-only",
        "-DGASNET_PAR",
    ]);
    for folder in folders {
        cc.arg("-I").arg(folder);
    }
    let output = cc.arg(source).output().unwrap();
    assert!(output.status.success(), "{source:?}: {}", text(&output));
}

/// A program with a `gasnet_config.h` of its own, as GASNet's conduit for Portals has one, is given that, though the installation's
/// headers come first; of two installations one says the release.
#[test]
fn a_configuration_of_the_program_is_not_hidden() {
    if !compiler("cc") {
        return;
    }
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-configuration");
    std::fs::create_dir_all(&own).unwrap();
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).unwrap();
    write(
        "gasnet_config.h",
        "#define OWN 1\n#define GASNET_RELEASE_VERSION_MAJOR 5\n",
    );
    let twice = "#include <gasnet_config.h>\n#include <gasnet_config.h>\n";
    let program =
        |condition: &str| format!("{twice}#if !({condition})\n#error\n#endif\nint own;\n");
    write(
        "own.c",
        &program(
            "OWN && GASNET_RELEASE_VERSION_MAJOR == 5 && !defined GASNET_RELEASE_VERSION_MINOR",
        ),
    );
    write("none.c", &program("GASNET_RELEASE_VERSION_MAJOR == 1"));
    let include = places().prefix.join("include");
    let second = own.join("second");
    std::fs::create_dir_all(&second).unwrap();
    std::fs::copy(
        include.join("gasnet_config.h"),
        second.join("gasnet_config.h"),
    )
    .unwrap();
    for (source, after) in [("own.c", &own), ("none.c", &include), ("none.c", &second)] {
        is_c(&own.join(source), &[&include, after]);
    }
}

/// The headers are found in the folder above the conduit's too, where they hide nothing of a program's own.
#[test]
fn the_headers_are_where_configure_scripts_look() {
    if !compiler("cc") {
        return;
    }
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-headers");
    std::fs::create_dir_all(&own).unwrap();
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).unwrap();
    write("gasnet.h", "#define OWN 1\n");
    let all = "#include <gasnet.h>\n#include <gasnet_tools.h>\n#include <gasnet_vis.h>\n#include <gasnet_coll.h>\n";
    write(
        "theirs.c",
        &format!("{all}int run(void) {{ return gasnet_AMPoll(); }}\n"),
    );
    write(
        "own.c",
        "#include <gasnet.h>\n#if !OWN || defined GASNET_OK\n#error\n#endif\nint own;\n",
    );
    let include = places().prefix.join("include");
    let conduit = include.join("portals-conduit");
    for (source, folders) in [
        ("theirs.c", &[&include][..]),
        ("theirs.c", &[&include, &conduit]),
        ("theirs.c", &[&conduit, &include]),
        ("own.c", &[&include, &own]),
        ("own.c", &[&own, &include]),
    ] {
        is_c(&own.join(source), folders);
    }
}

/// `gasnetrun_portals` starts so many ranks, with options of `portolan run` that the environment has, and refuses what it does not know.
#[test]
fn gasnetrun_starts_ranks() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let [program, _] = programs();
    let bin = p.prefix.join("bin");
    // As the command is in an installation.
    let command = bin.join("portolan");
    let _ = std::fs::remove_file(&command);
    std::os::unix::fs::symlink(&p.launcher, &command).unwrap();
    let run = |words: &[&str], options: &str| {
        let mut run = Command::new(bin.join("gasnetrun_portals"));
        run.args(words).arg(&program).arg("who");
        run.env("PORTOLAN_RUN_OPTIONS", options).output().unwrap()
    };
    for (words, options) in [
        (&["-n", "3"][..], ""),
        (&["-n3", "-N", "1", "-E", "HOME,PATH", "-v"], ""),
        (&["-np", "3", "--"], "--fabric seastar"),
    ] {
        let output = run(words, options);
        let said = text(&output);
        assert!(output.status.success(), "{words:?}: {said}");
        for node in 0..3 {
            assert!(
                said.contains(&format!("node {node} of 3")),
                "{words:?}: {said}"
            );
        }
    }
    let said = text(&run(&["-n", "2"], "--fabric nosuch"));
    assert!(said.contains("nosuch"), "{said}");
    for words in [&["-x"][..], &["-n", "2", "--nosuch"]] {
        let output = run(words, "");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            text(&output)
        );
    }
}
