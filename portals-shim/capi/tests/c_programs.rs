//! C programs against the headers and the library, alone and as ranks of jobs.
//!
//! They need a C compiler; without one the tests say so and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[path = "../../../tests/built.rs"]
mod built;
#[path = "../src/install.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to the library, which only C links"
)]
mod install;

/// Where things are.
struct Places {
    root: PathBuf,
    /// Cargo's folder of this profile, which has the libraries.
    built: PathBuf,
    launcher: PathBuf,
}

/// A C or C++ compiler that works, or a word on its absence.
fn compiler(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {name}");
    }
    found
}

/// Builds the launcher once; and the libraries.
fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built = built::built(&["-p", "portolan", "-p", "portals-c", "-p", "portolan-clock"]);
        Places {
            launcher: built.join("portolan"),
            root,
            built,
        }
    })
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Compiles a program of `tests/c` and returns its path.
fn compile(compiler: &str, language: &[&str], source: &str, link: &[&str]) -> PathBuf {
    let p = places();
    let flavour: String = format!("{compiler}{}{}", language.concat(), link.concat())
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{flavour}"));
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Werror", "-g"])
        .args(language)
        .arg("-I")
        .arg(p.root.join("portals-shim/include"))
        .arg(p.root.join("tests/c").join(format!("{source}.c")))
        .args(["-x", "none", "-o"])
        .arg(&out);
    if link.is_empty() {
        command
            .arg("-L")
            .arg(&p.built)
            .arg(format!("-Wl,-rpath,{}", p.built.display()))
            .arg("-lportals3");
    } else {
        command.arg(p.built.join("libportals3.a")).args(link);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    out
}

fn shared(source: &str) -> PathBuf {
    compile("cc", &["-std=gnu99"], source, &[])
}

fn alone(program: &Path) {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// The fabrics that every machine has, as options say them.
const FABRICS: [&[&str]; 3] = [
    &["seastar"],
    &["seastar", "--mode", "accelerated"],
    &["shm"],
];

/// Runs ranks on the SeaStar; `vars` come on top of the environment.
fn run(ranks: u32, vars: &[(&str, &str)], program: &Path, args: &[&str]) -> Output {
    run_on(FABRICS[0], ranks, vars, program, args)
}

fn run_on(
    fabric: &[&str],
    ranks: u32,
    vars: &[(&str, &str)],
    program: &Path,
    args: &[&str],
) -> Output {
    let p = places();
    let folder = tempfile::tempdir().unwrap();
    Command::new(&p.launcher)
        .args(["run", "-n", &ranks.to_string(), "--timeout", "60"])
        .arg("--fabric")
        .args(fabric)
        .arg("--")
        .arg(program)
        .args(args)
        .env("TMPDIR", folder.path())
        .envs(vars.iter().copied())
        .output()
        .unwrap()
}

fn passes(ranks: u32, program: &Path, args: &[&str]) {
    for fabric in FABRICS {
        let output = run_on(fabric, ranks, &[], program, args);
        assert!(output.status.success(), "{fabric:?}: {}", text(&output));
    }
}

#[test]
fn layouts_and_values_are_those_programs_were_compiled_with() {
    if compiler("cc") {
        alone(&shared("layout"));
        alone(&compile("cc", &["-std=c99", "-pedantic"], "layout", &[]));
    }
    if compiler("c++") {
        alone(&compile("c++", &["-x", "c++"], "layout", &[]));
    }
}

#[test]
fn the_bridging_blocks_of_programs_compile() {
    if compiler("cc") {
        passes(1, &shared("compat"), &[]);
    }
    if compiler("c++") {
        let program = compile("c++", &["-x", "c++", "-std=c++98"], "compat", &[]);
        passes(1, &program, &[]);
    }
}

/// Every header, and what of `portals3.h` is more than a declaration.
const HEADERS: &str = "#include <portals3.h>\n#include <portals/portals3.h>\n#include <portals/nal.h>\n\
    #include <p3api/debug.h>\n#include <p3/debug.h>\n#include <p3nal_utcp.h>\n#include <p3nal_ibng.h>\n\
    #include <p3nal_tcp.h>\n#include <p3rt/p3rt.h>\n#include <p3utils.h>\n#include <cnos_mpi_os.h>\n\
    int entry(ptl_handle_ni_t, ptl_process_id_t);\n\
    int entry(ptl_handle_ni_t ni, ptl_process_id_t any) {\n\
    return PtlACEntry(ni, 0, any, PTL_UID_ANY, PTL_JID_ANY, 4) + PtlACEntry(ni, 0, any, PTL_UID_ANY, 4); }\n";

/// Says what a compiler makes of a text, which nothing is linked with.
fn checked(compiler: &str, flags: &[&str], name: &str, lines: &str) -> Output {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&source, lines).unwrap();
    Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .arg(places().root.join("portals-shim/include"))
        .arg(&source)
        .output()
        .unwrap()
}

#[test]
fn the_headers_keep_to_the_standards() {
    let c = ["c90", "gnu90", "c99", "gnu99", "c11"].as_slice();
    let cxx = &["c++98", "c++11", "c++17", "c++20"];
    for (by, name, standards) in [("cc", "headers.c", c), ("c++", "headers.cc", cxx)] {
        if !compiler(by) {
            continue;
        }
        for standard in standards {
            let output = checked(by, &[&format!("-std={standard}")], name, HEADERS);
            assert!(output.status.success(), "{standard}: {}", text(&output));
        }
    }
}

/// Old makefiles name whichever folder of the headers they know, such as `include/portals`, and no other.
#[test]
fn headers_are_found_by_whatever_folder_of_theirs_a_makefile_names() {
    if !compiler("cc") {
        return;
    }
    let mut folders = vec![places().root.join("portals-shim/include")];
    let mut compiled = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let output = Command::new("cc")
                .args(["-std=gnu99", "-fsyntax-only", "-I"])
                .arg(&folder)
                .arg("-include")
                .arg(path.file_name().unwrap())
                .args(["-x", "c", "/dev/null"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{path:?}: {}", text(&output));
            compiled += 1;
        }
    }
    assert!(compiled > 20, "{compiled}");
}

/// Said before the system's headers are looked for, of which there may be none.
#[test]
fn a_program_with_shorter_addresses_is_refused() {
    if compiler("cc") {
        let flags = ["-U__LP64__", "-nostdinc"];
        let output = checked("cc", &flags, "short.c", "#include <portals3.h>\n");
        let said = text(&output);
        assert!(!output.status.success());
        assert!(
            said.contains("only programs with 64-bit addresses"),
            "{said}"
        );
    }
}

#[test]
fn two_ranks_put_get_and_swap() {
    if compiler("cc") {
        let program = shared("smoke");
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &[], &program, &[]);
            let said = text(&output);
            assert!(output.status.success(), "{fabric:?}: {said}");
            assert!(said.contains("rank 0: all right") && said.contains("rank 1: all right"));
        }
    }
}

#[test]
fn the_static_library_links_with_the_libraries_it_names() {
    if compiler("cc") {
        let link: Vec<_> = install::LIBS_PRIVATE.split(' ').collect();
        let program = compile("cc", &["-std=gnu99"], "smoke", &link);
        passes(2, &program, &[]);
    }
}

#[test]
fn the_process_id_0xffff_is_any_as_dart_defines_it() {
    on_both_interfaces("dart");
}

#[test]
fn a_rank_that_waits_in_a_barrier_serves_the_others() {
    if compiler("cc") {
        passes(2, &shared("barrier"), &[]);
    }
}

#[test]
fn the_library_needs_no_queue_of_the_programs() {
    if compiler("cc") {
        let program = compile("cc", &["-std=gnu99", "-pthread"], "all_queues", &[]);
        passes(2, &program, &[]);
    }
}

#[test]
fn a_program_for_cray_systems_needs_no_start_of_its_own() {
    if compiler("cc") {
        let program = shared("started");
        passes(2, &program, &[]);
        let vars = [("PORTOLAN_CRAY_START", "1")];
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &vars, &program, &["started"]);
            assert!(output.status.success(), "{fabric:?}: {}", text(&output));
        }
    }
}

#[test]
fn a_thread_with_the_smallest_stack_makes_calls() {
    if compiler("cc") {
        passes(1, &shared("stacks"), &[]);
    }
}

#[test]
fn a_wait_ends_in_its_time_beside_threads_that_look() {
    if compiler("cc") {
        passes(1, &shared("crowd"), &[]);
    }
}

#[test]
fn memory_is_the_programs_once_its_interface_is_closed() {
    if compiler("cc") {
        let program = shared("finished");
        for who in ["receiver", "sender"] {
            passes(2, &program, &[who]);
        }
    }
}

#[test]
fn bad_pointers_handles_and_values_have_their_codes() {
    if compiler("cc") {
        on_both_interfaces("errors");
        let program = shared("errors");
        // A job of one without a launcher; the simulation needs the launcher's executable.
        let launcher = &places().launcher;
        let mut command = Command::new(&program);
        let output = command.env("PORTOLAN_EXE", launcher).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// Programs of one rank that use the interface of the job, or that of their own process.
fn on_both_interfaces(source: &str) {
    on_both_interfaces_with(source, &[], &[]);
}

fn on_both_interfaces_with(source: &str, more: &[(&str, &str)], args: &[&str]) {
    if compiler("cc") {
        let program = shared(source);
        for own in [&[][..], &[("PORTOLAN_TEST_SELF", "1")]] {
            let vars = [own, more].concat();
            for fabric in FABRICS {
                let output = run_on(fabric, 1, &vars, &program, args);
                assert!(
                    output.status.success(),
                    "{fabric:?} {vars:?}: {}",
                    text(&output)
                );
            }
        }
    }
}

#[test]
fn every_entry_refuses_every_bad_argument() {
    on_both_interfaces("entries");
}

/// Other seeds and longer runs are for who changes something: `random CALLS SEED`.
#[test]
fn random_calls_end_with_a_code_and_touch_nothing_else() {
    if compiler("cc") {
        let program = shared("random");
        passes(2, &program, &["6000", "1"]);
        // An interrupt that let a call pass was forgotten if the call was one of the chip's.
        let output = run_on(FABRICS[1], 1, &[], &program, &["20000", "4"]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// Threads that wait while others free their queues, unlink what they use and close the interface; as above, with
/// `random_threads CALLS SEED THREADS ROUNDS`.
#[test]
fn random_calls_of_threads_end_when_what_they_use_goes() {
    if compiler("cc") {
        let program = compile("cc", &["-std=gnu99", "-pthread"], "random_threads", &[]);
        passes(2, &program, &["300", "1"]);
    }
}

/// Ranks say on standard error that operations fail, which cannot be written.
#[test]
fn operations_that_fail_end_where_that_cannot_be_said() {
    if compiler("cc") {
        let program = shared("unheard");
        for how in ["heard", "unheard"] {
            let output = run_on(FABRICS[2], 2, &[], &program, &[how]);
            assert!(output.status.success(), "{how}: {}", text(&output));
            let said = String::from_utf8_lossy(&output.stderr).contains("the operation fails");
            assert_eq!(said, how == "heard", "{}", text(&output));
        }
    }
}

#[test]
fn registers_limits_and_unlinks_that_are_told() {
    on_both_interfaces("registers");
}

/// What ranks say in two runs, each in the order of ranks.
/// What the ranks of a job that ends well have said, in an order that is the same in every run.
fn sorted_lines(fabric: &[&str], ranks: u32, program: &Path) -> Vec<String> {
    let output = run_on(fabric, ranks, &[], program, &[]);
    let said = text(&output);
    assert!(output.status.success(), "{fabric:?}: {said}");
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_program_reads_the_clock_of_its_interface() {
    if !compiler("cc") {
        return;
    }
    let program = shared("clock");
    let lines = |fabric: &[&str], ranks| sorted_lines(fabric, ranks, &program);
    for (fabric, kind) in FABRICS.into_iter().zip(["virtual", "virtual", "host"]) {
        for ranks in [1, 2] {
            let first = lines(fabric, ranks);
            let named = first.iter().filter(|l| l.contains(kind)).count();
            assert_eq!(named, ranks as usize, "{fabric:?}: {first:?}");
            assert_eq!(first, lines(fabric, ranks));
        }
    }
    on_both_interfaces("clock");
}

#[test]
fn the_systems_clocks_show_virtual_time() {
    if !compiler("cc") {
        return;
    }
    let program = compile("cc", &["-std=gnu11", "-pthread"], "system_clocks", &[]);
    let fabrics: [&[&str]; 2] = [
        &["seastar", "--clock", "virtual"],
        &["seastar", "--mode", "accelerated", "--clock", "virtual"],
    ];
    for fabric in fabrics {
        let lines = |ranks| sorted_lines(fabric, ranks, &program);
        for ranks in [1, 2] {
            assert_eq!(lines(ranks), lines(ranks), "{fabric:?}");
        }
    }
}

#[test]
fn a_program_with_the_library_in_itself_keeps_the_hosts_clocks() {
    if !compiler("cc") {
        return;
    }
    let words = ["-lm", "-lpthread", "-ldl", "-lrt", "-lgcc_s", "-lutil"];
    let program = compile("cc", &["-std=gnu99"], "clock", &words);
    let output = run_on(&["seastar", "--clock", "virtual"], 2, &[], &program, &[]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("clocks stay the host's"), "{said}");
}

#[test]
fn automatic_unlinks_are_told_always_or_when_asked_for() {
    const VARIABLE: &str = "PORTOLAN_CRAY_UNLINK_EVENTS";
    for vars in [&[][..], &[(VARIABLE, "")], &[(VARIABLE, "0")]] {
        on_both_interfaces_with("unlinks", vars, &["1"]);
    }
    on_both_interfaces_with("unlinks", &[(VARIABLE, "1")], &["0"]);
}

#[test]
fn wrong_maps_and_job_ids_have_their_codes() {
    on_both_interfaces("maps");
}

#[test]
fn a_call_takes_one_lock() {
    if compiler("cc") {
        alone(&shared("fastpath"));
    }
}

#[test]
fn queues_call_handlers_time_out_overflow_and_test_updates() {
    on_both_interfaces("queues");
}

#[test]
fn a_handler_that_does_not_return_ends_the_process_by_name() {
    let languages = [
        ("cc", &["-std=gnu99", "-pthread"][..]),
        ("c++", &["-x", "c++"]),
    ];
    for (by, language) in languages {
        if compiler(by) {
            let program = compile(by, language, "throws", &[]);
            let output = run_on(FABRICS[2], 1, &[], &program, &[]);
            let said = text(&output);
            assert_eq!(output.status.code(), Some(134), "{by}: {said}");
            let line = "portals: an event handler has not returned";
            assert!(said.contains(line), "{by}: {said}");
        }
    }
}

#[test]
fn threads_share_an_interface_and_a_queue() {
    if compiler("cc") {
        passes(
            2,
            &compile("cc", &["-std=gnu99", "-pthread"], "threads", &[]),
            &[],
        );
    }
}

/// With one rank and with two, as where a thread is when it is cancelled is left to chance.
#[test]
fn a_thread_that_is_cancelled_ends_after_its_call() {
    if compiler("cc") {
        let program = compile("cc", &["-std=gnu99", "-pthread"], "cancelled", &[]);
        passes(1, &program, &[]);
        passes(2, &program, &[]);
        // On the model waits for ever go on.
        let output = run_on(FABRICS[2], 2, &[], &program, &["for-ever"]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn old_values_of_updates_by_several_threads_belong_together() {
    if compiler("cc") {
        let program = compile("cc", &["-std=gnu99", "-pthread"], "updates", &[]);
        passes(1, &program, &[]);
    }
}

#[test]
fn ranks_come_from_the_launcher_the_environment_or_the_program() {
    if !compiler("cc") {
        return;
    }
    let program = shared("ranks");
    passes(2, &program, &[]);
    // The same program with maps in the environment: each rank has a process id of its own.
    let script = "PTL_MY_RID=$PMI_RANK PTL_NIDMAP=1:0x2 PTL_PIDMAP=700:701 exec \"$1\"";
    let output = run(
        2,
        &[],
        Path::new("/bin/sh"),
        &["-c", script, "sh", &program.display().to_string()],
    );
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_mpi_library_of_the_process_may_use_the_same_line_to_the_launcher() {
    if compiler("cc") {
        let program = shared("beside_mpi");
        for joins in ["first", "later"] {
            for leaves in [&["before"][..], &["before", "shut"], &["after", "shut"]] {
                for fabric in FABRICS {
                    let words = [&[joins], leaves].concat();
                    let output = run_on(fabric, 2, &[], &program, &words);
                    let said = text(&output);
                    assert!(output.status.success(), "{words:?}: {said}");
                    assert!(!said.contains("portals:"), "{words:?}: {said}");
                }
            }
        }
    }
}

#[test]
fn only_a_good_end_looks_like_one() {
    if !compiler("cc") {
        return;
    }
    let program = shared("ends");
    for how in [
        "return",
        "fini",
        "never",
        "fork",
        "_exit",
        "_Exit, capital _exit",
        "handler and _exit",
        "signal and _exit",
        "timer and _exit",
        "pending alarm and _exit",
        "_exit of a vfork",
    ] {
        passes(2, &program, &[how]);
    }
    // The launcher is told the low eight bits of a status.
    for how in ["status 256", "_exit with status 256"] {
        let output = run(2, &[], &program, &[how]);
        let said = text(&output);
        assert!(
            output.status.success() && !said.contains("rank"),
            "{how}: {said}"
        );
    }
    // To threads that run while the process ends well, nothing has happened.
    for how in [
        "a thread waits",
        "a thread waits for several",
        "a thread looks",
    ] {
        for _ in 0..5 {
            passes(2, &program, &[how]);
        }
    }
    passes(2, &program, &["a thread waits", "and _exit"]);
    for (how, status) in [("status", 3), ("crash", 139), ("bad end", 4)] {
        let output = run(2, &[], &program, &[how]);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{how}: {}",
            text(&output)
        );
    }
}

#[test]
fn a_rank_waits_for_all_its_children_and_has_none_of_the_librarys() {
    if compiler("cc") {
        passes(2, &shared("own_children"), &[]);
    }
}

#[test]
fn a_forked_child_is_no_rank() {
    if compiler("cc") {
        let program = compile("cc", &["-std=gnu99", "-pthread"], "forks", &[]);
        for when in ["early", "late"] {
            passes(2, &program, &[when]);
        }
    }
}

#[test]
fn an_installation_needs_no_flags_but_those_of_its_pkg_config_file() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    for libdir in ["lib", "lib/x86_64-linux-gnu"] {
        let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (made, prefix) = (at("installed-first"), at("installed"));
        for old in [&made, &prefix] {
            let _ = std::fs::remove_dir_all(old);
        }
        let include = p.root.join("portals-shim/include");
        let written = install::install(&include, &p.built, (&made, libdir), "1.2.3").unwrap();
        assert!(written.contains(&made.join("include/portals/portals3.h")));
        // An installation may be moved.
        std::fs::rename(&made, &prefix).unwrap();
        let lib = prefix.join(libdir);
        for old_name in install::ALIASES {
            let link = lib.join(format!("{old_name}.so"));
            let library = std::fs::canonicalize(link).unwrap();
            assert!(library.ends_with(format!("{libdir}/libportals3.so")));
        }
        let flags = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", lib.join("pkgconfig"))
            .args(["--cflags", "--libs", "portals3"])
            .output();
        let Ok(flags) = flags else {
            eprintln!("skipped: no pkg-config");
            return;
        };
        let flags = String::from_utf8(flags.stdout).unwrap();
        let program = at("smoke-installed");
        let output = Command::new("cc")
            .arg(p.root.join("tests/c/smoke.c"))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        passes(2, &program, &[]);
    }
}
