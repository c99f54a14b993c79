//! Ranks whose job is dropped, under each launcher and protocol: the status of the process says how the rank ended.

use std::process::{Command, Output, Stdio};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// The launchers, and the words before the program and its arguments.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    ("portolan run", PORTOLAN, "run -n 4 --"),
    ("PMI-1", "mpiexec.hydra", "-n 4"),
    ("PMI-1 over a port", "mpiexec.hydra", "-pmi-port -n 4"),
    ("PMI-2", "mpiexec.hydra", "-n 4 -env PORTOLAN_LAUNCHER pmi2"),
    (
        "PMIx",
        "mpirun.openmpi",
        "--allow-run-as-root --oversubscribe -n 4",
    ),
];

fn probes(faults: &[&str]) -> Vec<(&'static str, Output)> {
    let run = |(launcher, program, words): (&'static str, &str, &str)| {
        let mut command = Command::new(program);
        command.args(words.split(' ')).arg(PORTOLAN).arg("probe");
        for fault in faults {
            command.args(["--fault", fault]);
        }
        command.env_remove("PORTOLAN_FABRIC").stdin(Stdio::null());
        // Hydra ends a job that none of its ranks ends.
        command.env("MPIEXEC_TIMEOUT", "60");
        let Ok(output) = command.output() else {
            println!("skipped: {launcher}: no {program}");
            return None;
        };
        Some((launcher, output))
    };
    LAUNCHERS.into_iter().filter_map(run).collect()
}

#[test]
fn ranks_whose_jobs_are_dropped_end_well_with_status_0() {
    for (launcher, output) in probes(&["drop0@0", "drop0@1", "drop0@2", "drop0@3"]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{launcher}: {said}");
        assert!(!said.contains("finaliz"), "{launcher}: {said}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.matches(" of 4: ok").count(), 4, "{launcher}: {text}");
    }
}

#[test]
fn a_rank_whose_job_is_dropped_fails_with_any_other_status() {
    for (launcher, output) in probes(&["drop3@1"]) {
        let said = String::from_utf8_lossy(&output.stderr);
        if launcher == "PMI-2" {
            // Hydra does not know how a rank asks it over PMI-2 to end the job, and ends it for that.
            assert!(!output.status.success(), "{launcher}");
            continue;
        }
        assert_eq!(output.status.code(), Some(3), "{launcher}: {said}");
    }
}
