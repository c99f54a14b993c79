//! C programs against the headers and the libraries, as ranks of jobs.
//!
//! They need a C compiler; without one the tests say so and pass.

use gasnet_c::install;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Where things are.
struct Places {
    root: PathBuf,
    /// Cargo's folder of this profile, which has the libraries.
    built: PathBuf,
    launcher: PathBuf,
    /// An installation of what was built.
    prefix: PathBuf,
}

/// A C or C++ compiler that works, or a word on its absence.
fn compiler(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {name}");
    }
    found
}

/// Builds the launcher and the libraries once.
fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let exe = std::env::current_exe().unwrap();
        let built = exe.ancestors().nth(2).unwrap().to_path_buf();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "portolan"]);
        for model in install::MODELS {
            build.args(["-p", &format!("gasnet-c-{model}")]);
        }
        build.arg("--target-dir").arg(built.parent().unwrap());
        if built.file_name().is_some_and(|n| n == "release") {
            build.arg("--release");
        }
        let status = build.current_dir(&root).status().unwrap();
        assert!(status.success(), "the launcher does not build");
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-installed");
        std::fs::create_dir_all(&prefix).unwrap();
        let include = root.join("conduit/capi/include");
        install::install(&include, &built, &prefix, "1.2.3").unwrap();
        Places {
            launcher: built.join("portolan"),
            root,
            built,
            prefix,
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

/// How a program is compiled.
#[derive(Clone, Copy)]
struct Build<'a> {
    compiler: &'a str,
    flags: &'a [&'a str],
    /// The model of the library it is linked with.
    model: &'a str,
    /// The model it is compiled for.
    compiled_for: &'a str,
}

const SEQ: Build<'_> = Build {
    compiler: "cc",
    flags: &["-std=gnu99"],
    model: "seq",
    compiled_for: "seq",
};

/// Compiles a program of `tests/c` as a user of the installation would.
fn try_compile(source: &str, b: Build<'_>) -> (PathBuf, Output) {
    let p = places();
    let flavour: String = format!(
        "{}{}{}{}",
        b.compiler,
        b.flags.concat(),
        b.model,
        b.compiled_for
    )
    .chars()
    .filter(char::is_ascii_alphanumeric)
    .collect();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{flavour}"));
    let lib = p.prefix.join("lib");
    let output = Command::new(b.compiler)
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-cast-function-type",
        ])
        .args(b.flags)
        .arg(format!("-DGASNET_{}", b.compiled_for.to_uppercase()))
        .arg("-I")
        .arg(p.prefix.join("include/portals-conduit"))
        .arg(p.root.join("tests/c").join(format!("{source}.c")))
        .args(["-x", "none", "-o"])
        .arg(&out)
        .arg("-L")
        .arg(&lib)
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg(format!("-lgasnet-portals-{}", b.model))
        .arg("-lpthread")
        .output()
        .unwrap();
    (out, output)
}

fn compile(source: &str, b: Build<'_>) -> PathBuf {
    let (out, output) = try_compile(source, b);
    assert!(output.status.success(), "{}", text(&output));
    out
}

/// The fabrics that every machine has.
const FABRICS: [&str; 2] = ["seastar", "shm"];

fn launch(fabric: &str, ranks: u32, program: &Path, args: &[&str]) -> Command {
    let mut run = Command::new(&places().launcher);
    run.args(["run", "-n", &ranks.to_string(), "--timeout", "120"])
        .args(["--fabric", fabric, "--"])
        .arg(program)
        .args(args);
    run
}

fn run_on(fabric: &str, ranks: u32, program: &Path, args: &[&str]) -> Output {
    launch(fabric, ranks, program, args).output().unwrap()
}

fn passes(ranks: u32, program: &Path, args: &[&str]) {
    for fabric in FABRICS {
        let output = run_on(fabric, ranks, program, args);
        let said = text(&output);
        assert!(output.status.success(), "{fabric}: {said}");
        for rank in 0..ranks {
            let line = format!("node {rank}: all right");
            assert!(said.contains(&line), "{fabric}: {said}");
        }
    }
}

/// Passes with the library of each of these thread models, compiled for it.
fn passes_in(models: &[&str], ranks: u32, source: &str) {
    for model in models {
        let b = Build {
            model,
            compiled_for: model,
            ..SEQ
        };
        passes(ranks, &compile(source, b), &[]);
    }
}

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

/// Names with these beginnings that are called, or handed on, in a text: whole words.
fn words(text: &str) -> BTreeSet<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part(c))
        .filter(|w| w.starts_with("gasnet_") || w.starts_with("gasnett_"))
        .collect()
}

/// What a header offers to be called: words before an opening bracket.
fn offered(header: &str) -> BTreeSet<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in header.match_indices('(') {
        let before = header[..at].trim_end_matches(' ');
        let start = before.rfind(|c| !part(c)).map_or(0, |i| i + 1);
        let word = &before[start..];
        if word.starts_with("gasnet_") || word.starts_with("gasnett_") {
            found.insert(word);
        }
    }
    found
}

/// Calls that the programs below make by pasting names: those of the families of atomics.
const PASTED: [&str; 3] = [
    "gasnett_atomic",
    "gasnett_strongatomic",
    "gasnett_threadkey",
];

#[test]
fn the_programs_call_everything_that_the_headers_offer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let programs = [
        "gasnet_calls",
        "gasnet_numbered",
        "gasnet_tools_calls",
        "gasnet_errors",
        "gasnet_ends",
        "gasnet_threads",
    ];
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let text: String = programs
        .iter()
        .map(|p| read(root.join("tests/c").join(format!("{p}.c"))))
        .collect();
    let called = words(&text);
    let mut all = 0;
    for header in std::fs::read_dir(root.join("conduit/capi/include")).unwrap() {
        let header = read(header.unwrap().path());
        for name in offered(&header) {
            all += 1;
            let pasted = PASTED.iter().any(|p| name.starts_with(p));
            assert!(called.contains(name) || pasted, "{name} is not called");
        }
    }
    assert!(all > 300, "{all}");
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

/// The headers alone, strictly by the standards: warnings are errors, extensions that a header hides behind
/// `__extension__` or attributes are not warned about.
#[test]
fn the_headers_are_strict_cxx() {
    if !compiler("g++") {
        return;
    }
    let p = places();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet_headers.cc");
    let lines = "#include <gasnet.h>\n#include <gasnet_tools.h>\n#include <gasnet_vis.h>\n\
                #include <gasnet_coll.h>\nint main(int c, char **v) { return gasnet_init(&c, &v); }\n";
    std::fs::write(&source, lines).unwrap();
    for standard in ["-std=c++98", "-std=c++17"] {
        for define in [
            "-DGASNET_SEQ",
            "-DGASNET_PAR",
            "-DGASNET_SEQ -DGASNET_DEBUG",
            "-DGASNET_SEQ -DGASNET_SEGMENT_LARGE",
            "-DGASNET_PAR -DGASNET_SEGMENT_EVERYTHING",
        ] {
            let output = Command::new("g++")
                .args([
                    standard,
                    "-Wall",
                    "-Wextra",
                    "-pedantic",
                    "-Werror",
                    "-Wno-long-long",
                ])
                .args(["-fsyntax-only", "-I"])
                .arg(p.prefix.join("include/portals-conduit"))
                .args(define.split(' '))
                .arg(&source)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{standard} {define}: {}",
                text(&output)
            );
        }
    }
}

/// Runs a program with variables and files of its own; what it said, and the files' texts by rank.
fn traced(
    program: &Path,
    fabric: &str,
    name: &str,
    vars: &[(&str, &str)],
) -> (String, Vec<String>) {
    let stem = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{fabric}"));
    let pattern = format!("{}.%", stem.display());
    let files: Vec<PathBuf> = (0..2)
        .map(|r| format!("{}.{r}", stem.display()).into())
        .collect();
    for file in &files {
        let _ = std::fs::remove_file(file);
    }
    let output = Command::new(&places().launcher)
        .args([
            "run",
            "-n",
            "2",
            "--timeout",
            "120",
            "--fabric",
            fabric,
            "--",
        ])
        .arg(program)
        .envs(vars.iter().map(|(k, v)| (*k, v.replace("FILE", &pattern))))
        .output()
        .unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let read = |f: &PathBuf| std::fs::read_to_string(f).unwrap_or_default();
    (said, files.iter().map(read).collect())
}

#[test]
fn trace_and_statistics_of_a_program() {
    if !compiler("cc") {
        return;
    }
    let debug = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    let program = compile("gasnet_calls", debug);
    for fabric in FABRICS {
        let (said, files) = traced(
            &program,
            fabric,
            "calls-trace",
            &[("GASNET_TRACEFILE", "FILE")],
        );
        assert!(said.contains("GASNet reporting enabled"), "{said}");
        for (rank, file) in files.iter().enumerate() {
            for words in [
                format!("{rank}> gasnet_nodes(): 2"),
                format!("I am thread {rank} of 2"),
                "gasnet_calls.c:".to_owned(),
                "(P) PUT: sz =".to_owned(),
                "(G) GET_NB_BULK: sz =".to_owned(),
                "(A) AMREQUEST_MEDIUM: dest=".to_owned(),
                "(A) AMREPLY_SHORT_HANDLER: src=".to_owned(),
                "(B) BARRIER_WAIT: waittime =".to_owned(),
                "(S) WAIT_SYNCNB: waittime =".to_owned(),
                "(W) COLL_BROADCAST: sz =".to_owned(),
                "(L) HSL_LOCK: waittime =".to_owned(),
                "GASNet Statistical Summary:".to_owned(),
                "Total puts:".to_owned(),
                "(C) # credits of rank".to_owned(),
            ] {
                assert!(file.contains(&words), "{fabric} {rank}: no {words}");
            }
            assert!(file.lines().all(|l| l.starts_with(&rank.to_string())));
        }
    }
    // A mask, one rank, and statistics alone.
    let vars = [
        ("GASNET_TRACEFILE", "FILE"),
        ("GASNET_TRACEMASK", "B"),
        ("GASNET_STATSMASK", "G"),
        ("GASNET_TRACENODES", "1"),
    ];
    let (_, files) = traced(&program, "shm", "calls-mask", &vars);
    assert!(files[0].is_empty() && files[1].contains("(B) BARRIER_WAIT"));
    assert!(!files[1].contains("(P)") && !files[1].contains("gasnet_calls.c"));
    assert!(files[1].contains("  GET_BULK:") && !files[1].contains("  PUT_BULK:"));
    let (_, files) = traced(
        &program,
        "shm",
        "calls-stats",
        &[("GASNET_STATSFILE", "FILE")],
    );
    assert!(
        files
            .iter()
            .all(|f| f.contains("PUT_NBI_BULK:") && !f.contains("s> "))
    );
    // What the program says itself.
    let program = compile("gasnet_tools_calls", SEQ);
    let (_, files) = traced(
        &program,
        "shm",
        "tools-trace",
        &[("GASNET_TRACEFILE", "FILE")],
    );
    for words in [
        "gasnet_tools_calls.c:4711] (H) a message of the program: 1",
        "(H) a message that is forced",
        "0> statistics of the program: 42",
        "(I) Setting GASNET_TRACEMASK to: GP",
    ] {
        assert!(files[0].contains(words), "no {words}");
    }
    assert!(!files[0].contains("masked"));
}

#[test]
fn help_for_debugging() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_ends", SEQ);
    let run = |how: &str, vars: &[(&str, &str)]| {
        let output = Command::new(&places().launcher)
            .args(["run", "-n", "2", "--timeout", "60", "--fabric", "shm", "--"])
            .arg(&program)
            .arg(how)
            .envs(vars.iter().copied())
            .output()
            .unwrap();
        (output.status.code(), text(&output))
    };
    let (code, said) = run("range", &[("GASNET_BACKTRACE", "1")]);
    assert!(code == Some(134) && said.contains("gasnet_put"), "{said}");
    assert!(
        said.lines().filter(|l| l.starts_with("[0] ")).count() > 2,
        "{said}"
    );
    let (_, said) = run("range", &[]);
    assert!(!said.contains("\n[0] "), "{said}");
    let vars = [("GASNET_BACKTRACE", "1"), ("GASNET_BACKTRACE_NODES", "1")];
    assert!(!run("range", &vars).1.contains("\n[0] "));
    let (code, said) = run("crash", &[]);
    assert!(
        code == Some(139) && said.contains("*** Caught a fatal signal: SIGSEGV(11) on node 0/2"),
        "{said}"
    );
    let (_, said) = run("crash", &[("GASNET_NO_CATCH_SIGNAL", "SEGV")]);
    assert!(!said.contains("Caught"), "{said}");
    let (code, said) = run("exit", &[("GASNET_VERBOSEENV", "1")]);
    assert!(
        code == Some(7) && said.contains("ENV parameter: GASNET_FREEZE = NO"),
        "{said}"
    );
}

#[test]
fn frozen_ranks_go_on_when_told_to() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_ends", SEQ);
    let mut job = Command::new(&places().launcher)
        .args(["run", "-n", "2", "--timeout", "60", "--fabric", "shm", "--"])
        .arg(&program)
        .arg("exit")
        .env("GASNET_FREEZE", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut frozen = 0;
    for line in BufReader::new(job.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, pid)) = line.split_once("kill -CONT ") else {
            continue;
        };
        let pid = pid.trim_end_matches("`)");
        let sent = Command::new("kill").args(["-CONT", pid]).status().unwrap();
        assert!(sent.success());
        frozen += 1;
    }
    assert_eq!((frozen, job.wait().unwrap().code()), (2, Some(7)));
}

/// `GASNET_MAX_SEGSIZE` counts, and a segment beyond it is refused.
#[test]
fn the_largest_segment_can_be_chosen() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_errors", SEQ);
    for size in ["64K", "1M"] {
        let output = Command::new(&places().launcher)
            .args(["run", "-n", "2", "--timeout", "60", "--fabric", "shm", "--"])
            .arg(&program)
            .env("GASNET_MAX_SEGSIZE", size)
            .output()
            .unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{size}: {said}");
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
fn the_headers_are_cxx_too() {
    if compiler("c++") {
        let b = Build {
            compiler: "c++",
            flags: &["-x", "c++"],
            ..SEQ
        };
        passes(2, &compile("gasnet_calls", b), &[]);
        let b = Build {
            flags: &["-x", "c++", "-DGASNET_DEBUG"],
            compiled_for: "par",
            model: "par",
            ..b
        };
        passes(2, &compile("gasnet_calls", b), &[]);
    }
}

#[test]
fn a_program_of_another_thread_model_does_not_link() {
    if compiler("cc") {
        let b = Build {
            compiled_for: "par",
            ..SEQ
        };
        let (_, output) = try_compile("gasnet_calls", b);
        let said = text(&output);
        assert!(!output.status.success());
        assert!(said.contains("portals_fast_par_nodebug"), "{said}");
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

#[test]
fn an_installation_is_used_by_pkg_config_and_makefile_fragment() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let flags = Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", p.prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "gasnet-portals-seq"])
        .output();
    let source = p.root.join("tests/c/gasnet_calls.c");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if let Ok(flags) = flags {
        let flags = String::from_utf8(flags.stdout).unwrap();
        let program = out.join("gasnet-pkg-config");
        let output = Command::new("cc")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        passes(2, &program, &[]);
    } else {
        eprintln!("skipped: no pkg-config");
    }
    let fragment = p.prefix.join("include/portals-conduit/portals-seq.mak");
    let program = out.join("gasnet-fragment");
    let makefile = "include FRAGMENT\n\
        all:\n\
        \t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c SOURCE -o PROGRAM.o\n\
        \t$(GASNET_LD) $(GASNET_LDFLAGS) -o PROGRAM PROGRAM.o $(GASNET_LIBS)\n"
        .replace("FRAGMENT", &fragment.display().to_string())
        .replace("SOURCE", &source.display().to_string())
        .replace("PROGRAM", &program.display().to_string());
    let path = out.join("gasnet-fragment.mk");
    std::fs::write(&path, makefile).unwrap();
    match Command::new("make").arg("-f").arg(&path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output));
            passes(2, &program, &[]);
        }
        Err(_) => eprintln!("skipped: no make"),
    }
}

#[test]
fn the_static_library_links_with_the_libraries_it_names() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-static");
    let output = Command::new("cc")
        .args(["-DGASNET_SEQ", "-I"])
        .arg(p.prefix.join("include/portals-conduit"))
        .arg(p.root.join("tests/c/gasnet_calls.c"))
        .arg(p.built.join("libgasnet_portals_seq.a"))
        .args(install::LIBS_PRIVATE.split(' '))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    passes(2, &program, &[]);
}
