//! The same program under the launchers of MPI, and launchers under one another.

use super::*;

fn mpiexec(line: &str) -> Option<Output> {
    let found = Command::new("mpiexec.hydra")
        .args(line.split(' '))
        .stdin(Stdio::null())
        .output();
    if found.is_err() {
        println!("skipped: no mpiexec.hydra; it is in Debian's package mpich");
    }
    found.ok()
}

#[test]
fn mpichs_launcher_runs_the_same_program() {
    for style in ["-n 4", "-pmi-port -n 4"] {
        let Some(output) = mpiexec(&format!("{style} {PORTOLAN} probe --bytes 20000")) else {
            return;
        };
        assert!(output.status.success(), "{style}: {}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            text.matches(" of 4: ok, 4 here").count(),
            4,
            "{style}: {text}"
        );
    }
}

#[test]
fn an_abort_ends_a_job_of_mpichs_launcher() {
    let Some(output) = mpiexec(&format!("-n 4 {PORTOLAN} probe --fault abort7@3")) else {
        return;
    };
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
}

fn mpirun(line: &str) -> Option<Output> {
    let found = Command::new("mpirun.openmpi")
        .args(["--allow-run-as-root", "--oversubscribe"])
        .args(line.split(' '))
        .stdin(Stdio::null())
        .output();
    if found.is_err() {
        println!("skipped: no mpirun.openmpi; it is in Debian's package openmpi-bin");
    }
    found.ok()
}

#[test]
fn open_mpis_launcher_runs_the_same_program() {
    let Some(output) = mpirun(&format!("-n 4 {PORTOLAN} probe --bytes 20000")) else {
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches(" of 4: ok, 4 here").count(), 4, "{text}");
}

#[test]
fn ranks_that_fail_end_a_job_of_open_mpis_launcher() {
    for (fault, status) in [
        ("exit3@1", 3),
        ("abort7@1", 7),
        ("exit0@2", 1),
        ("kill@2", 137),
    ] {
        let Some(output) = mpirun(&format!("-n 4 {PORTOLAN} probe --fault {fault}")) else {
            return;
        };
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{fault}: {said}");
    }
}

#[test]
fn mpichs_launcher_speaks_pmi_2_too() {
    let Some(output) = mpiexec(&format!(
        "-n 4 -env PORTOLAN_LAUNCHER pmi2 {PORTOLAN} probe --bytes 20000"
    )) else {
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches(" of 4: ok, 4 here").count(), 4, "{text}");
}

#[test]
fn of_launchers_under_one_another_the_nearest_counts() {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let hydra = "mpiexec.hydra -n N";
    let mpirun = "mpirun.openmpi --allow-run-as-root --oversubscribe -n N";
    let ours = format!("{PORTOLAN} run -n N --");
    for (outer, inner) in [
        (mpirun, hydra),
        (hydra, mpirun),
        (mpirun, &*ours),
        (&ours, hydra),
        (&ours, mpirun),
        (hydra, &ours),
    ] {
        let names = [outer, inner].map(|l| l.split(' ').next().unwrap());
        if let Some(missing) = names.iter().find(|name| !there(name)) {
            println!("skipped: no {missing}");
            continue;
        }
        // With a script in between, and without.
        for script in ["", "sh -c '\"$@\"; exit $?' sh "] {
            let outer = outer.replace("-n N", "-n 1");
            let inner = inner.replace("-n N", "-n 3");
            let line = format!("{outer} {inner} {script}{PORTOLAN} probe");
            let output = Command::new("sh")
                .args(["-c", &line])
                .env("PORTOLAN_FABRIC", "shm")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
            for rank in 0..3 {
                let words = format!("rank {rank} of 3: ok, 3 here");
                assert!(said.contains(&words), "{line}: {said}");
            }
        }
    }
}

#[test]
fn an_mpi_program_runs_under_portolan() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("sum.c"), folder.path().join("sum"));
    fs::write(
        &source,
        "#include <mpi.h>\n#include <stdio.h>\nint main(int c, char **v) { int r, n, s; MPI_Init(&c, &v);\n\
         MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);\n\
         MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n\
         if (!r) printf(\"%d ranks, sum %d\\n\", n, s); MPI_Finalize(); return 0; }\n",
    )
    .unwrap();
    let built = Command::new("mpicc.mpich")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    match built {
        Ok(built) if built.status.success() => {
            let output = run(&format!("run -n 3 --timeout 60 -- {}", program.display()));
            assert!(output.status.success(), "{}", stderr(&output));
            assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                "3 ranks, sum 3\n"
            );
        }
        Ok(built) if !stderr(&built).contains("mpi.h: No such file") => {
            panic!("{}", stderr(&built))
        }
        _ => println!("skipped: no MPI compiler; it is in Debian's package libmpich-dev"),
    }
}
