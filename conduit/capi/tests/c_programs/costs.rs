//! What a call from C costs beyond the conduit's own: shown, and not judged, for times are the machine's affair too.

use std::path::Path;
use std::process::Command;

use crate::programs::{compiler, example, places, run_on, text};

/// The difference that a line of the program names.
fn more(line: &str) -> Option<f64> {
    let (_, figure) = line.split_once("more ")?;
    figure.strip_suffix(" ns")?.parse().ok()
}

/// Both sides take turns in one process, so what else the machine does is the same for both.
#[test]
fn what_a_call_of_c_adds_is_measured() {
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
        assert_eq!(said.lines().filter_map(more).count(), 3, "{said}");
        println!("GASNET_{model}: {said}");
    }
}
