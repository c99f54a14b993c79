//! What a call from C costs beyond the conduit's own.

use std::path::Path;
use std::process::Command;

use crate::programs::{compiler, example, places, run_on, text};

/// More than this no call of C adds, nanoseconds: an indirect call, and finding the conduit.
const MORE: f64 = 20.0;

/// The difference that a line of the program names.
fn more(line: &str) -> Option<f64> {
    let (_, figure) = line.split_once("more ")?;
    figure.strip_suffix(" ns")?.parse().ok()
}

/// Both sides take turns in one process, so what else the machine does is the same for both.
#[test]
fn a_call_of_c_adds_at_most_20_ns() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let library = example("gasnet_costs");
    for model in ["SEQ", "PAR"] {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gasnet-costs-{model}"));
        let output = Command::new("cc")
            .args(["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(["-Wno-cast-function-type", &format!("-DGASNET_{model}")])
            .arg("-I")
            .arg(p.prefix.join("include/portals-conduit"))
            .arg(p.root.join("tests/c/gasnet_costs.c"))
            .arg("-o")
            .arg(&out)
            .arg(&library)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let output = run_on("shm", 2, &out, &[]);
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        let figures: Vec<f64> = said.lines().filter_map(more).collect();
        assert_eq!(figures.len(), 3, "{said}");
        println!("GASNET_{model}: {said}");
        // A build that is not optimised measures nothing that anybody uses.
        if !cfg!(debug_assertions) {
            assert!(figures.iter().all(|f| *f <= MORE), "GASNET_{model}: {said}");
        }
    }
}
