//! The clock of `gasnett_ticks_now`, and computing that takes a stated time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::programs::{FABRICS, compiler, example, places, run_on, text};

/// Compiles with the flags of a user, to be linked with `with`.
fn compile(name: &str, flags: &[&str], with: &[&Path]) -> PathBuf {
    let p = places();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new("cc")
        .args([
            "-std=gnu99",
            "-O2",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
        ])
        .args(flags)
        .arg("-I")
        .arg(p.prefix.join("include/portals-conduit"))
        .args(with)
        .arg("-o")
        .arg(&out)
        .arg("-lpthread")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    out
}

fn source(name: &str) -> PathBuf {
    places().root.join("tests/c").join(name)
}

/// The program of a thread model, with an object that includes no `gasnet.h`; made once, as tests run at one time.
fn program(model: &'static str) -> PathBuf {
    static MADE: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(model).or_insert_with(|| make(model)).clone()
}

fn make(model: &str) -> PathBuf {
    let tools = compile(
        &format!("gasnet-clock-tools-{model}.o"),
        &["-c"],
        &[&source("gasnet_clock_tools.c")],
    );
    compile(
        &format!("gasnet-clock-{model}"),
        &[&format!("-DGASNET_{model}")],
        &[&source("gasnet_clock.c"), &tools, &example("gasnet_clock")],
    )
}

/// What ranks said of themselves, in the order of ranks. Of several the first that exits ends the others, whose handlers do not run.
fn lines(fabric: &str, ranks: u32, program: &Path) -> Vec<String> {
    let output = run_on(fabric, ranks, program, &[]);
    let said = text(&output);
    assert!(output.status.success(), "{fabric}: {said}");
    let (after, mut lines): (Vec<_>, Vec<_>) = said
        .lines()
        .map(str::to_owned)
        .partition(|line| line.contains("after the job"));
    assert!(!after.is_empty(), "{fabric}: {said}");
    let monotone = |line: &String| line == "after the job: monotone";
    assert!(after.iter().all(monotone), "{fabric}: {said}");
    lines.sort();
    lines
}

/// Ticks are those of the conduit's clock: on the model the same in every run, on other fabrics the host's.
#[test]
fn ticks_are_of_the_clock_of_the_fabric() {
    if !compiler("cc") {
        return;
    }
    for model in ["SEQ", "PAR"] {
        let program = program(model);
        for ranks in [1, 3] {
            for fabric in FABRICS {
                let first = lines(fabric, ranks, &program);
                let count = |words: &str| first.iter().filter(|l| l.contains(words)).count();
                assert_eq!(count("all right"), ranks as usize, "{first:?}");
                let steps = if fabric == "seastar" { 8 * ranks } else { 0 };
                assert_eq!(count("step"), steps as usize, "{first:?}");
                assert_eq!(first, lines(fabric, ranks, &program));
            }
        }
    }
}

/// With one rank, which alone says when it has been interrupted often enough.
#[test]
fn handlers_of_signals_read_the_clock() {
    if !compiler("cc") {
        return;
    }
    for model in ["SEQ", "PAR"] {
        for fabric in FABRICS {
            let said = text(&run_on(fabric, 1, &program(model), &["signals"]));
            assert!(said.contains("node 0: all right"), "{fabric}: {said}");
        }
    }
}

/// A program without the library has the host's clock.
#[test]
fn a_program_of_tools_alone_reads_the_clock() {
    if !compiler("cc") {
        return;
    }
    let source = source("gasnet_clock_tools.c");
    let program = compile("gasnet-clock-alone", &["-DALONE"], &[&source]);
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}
