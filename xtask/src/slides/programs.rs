//! `cargo xtask slides --gasnet DIR`: the slides by GASNet's own programs `testsmall`, `testlarge` and `testam`, unmodified, over its own
//! portals-conduit and over ours, both on the SeaStar model.
//!
//! ```text
//!  DIR/tests/test*.c ─┬─ our gasnet.h, libgasnet-portals-seq ──┐
//!                     └─ DIR/portals-conduit ─► libportals3 ───┴─► portolan run --fabric seastar --clock virtual, three times
//!                        portolan bench ───────────────────────► table, pictures
//! ```

use super::checkout::{Checkout, OLD_C};
use super::printed::Printed;
use super::table::Results;
use crate::cargo::{self, root};
use crate::endtoend::succeed;
use crate::install;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The machine that stands for that of the slides, Franklin.
const MACHINE: [&str; 4] = ["--fabric", "seastar", "--machine", "xt4"];
/// Runs of each program, which have to print the same.
const RUNS: usize = 3;
/// The longest that a run may take, seconds.
const LIMIT: &str = "600";

/// The programs: iterations, the largest size, and sections. The first `testlarge` has the window of the bench, the second a longer one.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("testsmall", &["100", "1024", "A"]),
    ("testlarge", &["-m", "-p", "-in", "16", "2097152", "C"]),
    ("testlarge", &["-m", "-p", "-in", "256", "16384", "B"]),
    ("testam", &["256", "1024", "AB"]),
];

/// What the bench measures beside the programs: measurements, sizes, conduits.
const BENCHES: [(&[&str], &str, &str); 4] = [
    (
        &["segment-put", "am-medium", "tag-ping-ack"],
        "1,2,4,8,16,32,64,128,256,512,1K",
        "portals,mpi",
    ),
    (
        &["segment-put-bandwidth", "tag-bandwidth"],
        "16,32,64,128,256,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M",
        "portals,mpi",
    ),
    (
        &["segment-get"],
        "1,2,4,8,16,32,64,128,256,512,1K",
        "portals",
    ),
    (&["am-short", "am-flood"], "0", "portals"),
];

const PICTURES: [(&str, &str); 3] = [
    ("segment-put", "programs-put-latency"),
    ("segment-put-bandwidth", "programs-put-bandwidth"),
    ("am-medium", "programs-am-medium"),
];
const TABLE: &str = "programs-table.txt";

/// How a program is compiled and linked by the variables of an installation of GASNet.
const MAKEFILE: &str = "include $(FRAGMENT)\n\
    %: $(TESTS)/%.c\n\
    \t$(GASNET_CC) $(GASNET_CPPFLAGS) -I$(TESTS) $(GASNET_CFLAGS) -c -o $@.o $<\n\
    \t$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ $@.o $(GASNET_LIBS)\n";

/// Compiles the programs in `folder` by the variables in `fragment`.
fn compile(checkout: &Checkout, fragment: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir(folder)?;
    std::fs::write(folder.join("Makefile"), MAKEFILE)?;
    let mut make = Command::new("make");
    make.arg(format!("FRAGMENT={}", fragment.display()))
        .arg(format!("TESTS={}", checkout.tests().display()))
        .arg(format!("MANUAL_CFLAGS={OLD_C}"))
        // On Cray's systems that was a compiler for MPI.
        .arg("GASNET_LD=cc")
        .args(["testsmall", "testlarge", "testam"]);
    cargo::run_in(folder, &mut make)
}

/// Runs the programs in `folder` on the model, and gives what they print in every run.
fn printed(portolan: &Path, folder: &Path) -> Result<Printed> {
    let mut all = Printed::default();
    for (name, arguments) in PROGRAMS {
        let run = || {
            let mut job = Command::new(portolan);
            job.args(["run", "-n", "2", "--clock", "virtual", "--timeout", LIMIT]);
            job.args(MACHINE).arg("--").arg(folder.join(name));
            job.args(arguments).stdin(Stdio::null());
            println!("$ {}", cargo::line(&job));
            succeed(&mut job)
        };
        let runs = (0..RUNS).map(|_| run()).collect::<Result<Vec<String>>>()?;
        all.extend(Printed::same(name, &runs)?);
    }
    Ok(all)
}

/// The bench's results of the same, and of messages.
fn benched(portolan: &Path) -> Result<String> {
    let mut all = String::new();
    for (names, sizes, conduits) in BENCHES {
        let mut bench = Command::new(portolan);
        bench.arg("bench").args(names).args(["--sizes", sizes]);
        bench.args(["--conduit", conduits, "--json", "-"]);
        bench.args(MACHINE).stdin(Stdio::null());
        println!("$ {}", cargo::line(&bench));
        let text = succeed(&mut bench)?;
        let results = text.lines().filter(|line| line.starts_with('{'));
        all.extend(results.map(|line| format!("{line}\n")));
    }
    Ok(all)
}

/// Builds both conduits and the programs, runs them, and writes table and pictures into the folder `into` of this checkout.
pub(super) fn run(checkout: &Path, into: &Path) -> Result<()> {
    let checkout = Checkout::find(checkout)?;
    cargo::run(&mut install::build())?;
    let folder = tempfile::tempdir()?;
    let place = |name: &str| -> PathBuf { folder.path().join(name) };
    let prefix = place("prefix");
    install::into(&prefix, "lib")?;
    let fragment = prefix.join("include/portals-conduit/portals-seq.mak");
    compile(&checkout, &fragment, &place("ours"))?;
    let original = checkout.build(folder.path(), &prefix)?;
    compile(&checkout, &original, &place("original"))?;
    let portolan = prefix.join("bin/portolan");
    let results = Results {
        original: printed(&portolan, &place("original"))?,
        ours: printed(&portolan, &place("ours"))?,
        bench: benched(&portolan)?,
    };
    let table = results.markdown()?;
    print!("\n{table}");
    let into = root().join(into);
    let file = into.join(TABLE);
    std::fs::write(&file, &table).with_context(|| file.display().to_string())?;
    super::pictures(&results.lines(), &PICTURES, (folder.path(), &into))
}
