//! Jobs that name no fabric: what they take under which launcher, that one line says so, and what refuses them.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

const SMALL: [&str; 6] = ["--rows", "8", "--columns", "8", "--generations", "2"];

/// Runs this command line with these variables, which ends with this status; what it said and what it printed.
fn ends(words: &[&str], variables: &[(&str, &str)], status: i32) -> (String, String) {
    let mut command = clean(program(words[0], &words[1..]));
    for name in ["PORTOLAN_QUIET", "GASNET_QUIET", "PORTOLAN_SEASTAR_MODE"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code();
    assert_eq!(code, Some(status), "{words:?}: {text}{said}");
    (said, text)
}

/// `life` behind the words of a launcher.
fn life<'a>(launcher: &[&'a str]) -> Vec<&'a str> {
    [launcher, &[LIFE], &SMALL].concat()
}

/// The lines that say which fabric was taken.
fn taken(said: &str) -> Vec<&str> {
    let lines = said.lines();
    lines.filter(|l| l.contains("portolan: fabric ")).collect()
}

fn serial() -> String {
    checksum(&ends(&[&life(&[])[..], &["--serial"]].concat(), &[], 0).1)
}

#[test]
fn every_launcher_takes_memory_on_one_machine_and_one_rank_says_so() {
    let (serial, run) = (serial(), portolan());
    let line = "portolan: fabric shm: all 3 ranks are on one machine";
    for launcher in [
        &[run.to_str().unwrap(), "run", "-n", "3", "--"][..],
        &["mpiexec.hydra", "-n", "3"],
        &[
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "3",
        ],
    ] {
        if Command::new(launcher[0]).arg("--version").output().is_err() {
            println!("skipped: no {}", launcher[0]);
            continue;
        }
        let says = |variables: &[(&str, &str)], lines: &[&str]| {
            let (said, text) = ends(&life(launcher), variables, 0);
            assert_eq!(checksum(&text), serial, "{launcher:?}: {text}");
            assert_eq!(taken(&said), lines, "{launcher:?} {variables:?}: {said}");
        };
        says(&[], &[line]);
        says(&[("PORTOLAN_FABRIC", "auto")], &[line]);
        says(&[("PORTOLAN_QUIET", "1")], &[]);
        says(&[("GASNET_QUIET", "yes")], &[]);
        // Who names a fabric knows it.
        says(&[("PORTOLAN_FABRIC", "shm")], &[]);
        let model = "portolan: fabric seastar (a simulation): only the model has --machine (PORTOLAN_MACHINE)";
        says(&[("PORTOLAN_MACHINE", "xt3")], &[model]);
    }
}

#[test]
fn a_program_without_a_launcher_is_one_rank_in_memory() {
    let (said, text) = ends(&life(&[]), &[], 0);
    assert_eq!(checksum(&text), serial());
    assert_eq!(said, "portolan: fabric shm: the job has one rank\n");
}

/// A stand-in for ssh that does `first` on host b, and then runs the command line of the host in this machine's shell.
fn hosts(folder: &tempfile::TempDir, first: &str) -> String {
    let path = folder.path().join("ssh");
    let text =
        format!("#!/bin/sh\nhost=$1; shift; cd /\n[ $host = a ] || {first}\nexec sh -c \"$*\"\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The words of a launcher of one rank on host a and one on host b.
fn on_two_hosts<'a>(run: &'a Path, ssh: &'a str) -> [&'a str; 8] {
    let run = run.to_str().unwrap();
    [run, "run", "--ssh", ssh, "--hosts", "a,b", "-n", "2"]
}

#[test]
fn hosts_that_are_one_machine_take_its_memory() {
    let (folder, run) = (tempfile::tempdir().unwrap(), portolan());
    let ssh = hosts(&folder, "true");
    let (said, text) = ends(&life(&on_two_hosts(&run, &ssh)), &[], 0);
    assert_eq!(checksum(&text), serial());
    assert_eq!(taken(&said).len(), 1, "{said}");
    assert!(
        said.contains("fabric shm: all 2 ranks are on one machine"),
        "{said}"
    );
}

/// Another machine is one whose kernel has started another time.
#[test]
fn machines_that_no_device_joins_are_refused_by_rank_and_host() {
    if fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some()) {
        println!("skipped: this machine has an RDMA device");
        return;
    }
    let (folder, run) = (tempfile::tempdir().unwrap(), portolan());
    let boot = folder.path().join("boot_id");
    fs::write(&boot, "another-start-of-another-kernel\n").unwrap();
    let mount = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id",
        boot.display()
    );
    let tried = program("unshare", &["--mount", "sh", "-c", &mount]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: no mount namespace can be made here");
        return;
    }
    let ssh = hosts(
        &folder,
        &format!("exec unshare --mount sh -c \"{mount} && $*\""),
    );
    let (said, text) = ends(&life(&on_two_hosts(&run, &ssh)), &[], 3);
    assert_eq!(text, "");
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let words = format!(
        "life: no fabric reaches all ranks: 2 ranks are on 2 machines, and rank 0 on {}, the first of 2 such ranks, \
         has no RDMA device to use: ",
        name.trim()
    );
    assert!(said.contains(&words), "{said}");
    // The remedy.
    assert!(
        said.contains("libibverbs") || said.contains("SoftRoCE"),
        "{said}"
    );
    assert!(taken(&said).is_empty(), "{said}");
}

#[test]
fn ranks_that_ask_for_different_fabrics_are_refused_by_rank() {
    let (folder, run) = (tempfile::tempdir().unwrap(), portolan());
    for (variable, words) in [
        (
            "PORTOLAN_TOPOLOGY=2x1x1",
            "rank 1 on HOST asks for the model by PORTOLAN_TOPOLOGY, rank 0 on HOST does not",
        ),
        (
            "PORTOLAN_SEASTAR_MODE=accelerated",
            "rank 1 on HOST asks for the model by PORTOLAN_SEASTAR_MODE, rank 0 on HOST does not",
        ),
    ] {
        let ssh = hosts(&folder, &format!("export {variable}"));
        let (said, _) = ends(&life(&on_two_hosts(&run, &ssh)), &[], 3);
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let words = words.replace("HOST", name.trim());
        let words = format!("life: no fabric reaches all ranks: {words}");
        assert!(said.contains(&words), "{said}");
    }
}

/// A rank that has a fabric by name takes no part in the choice, whichever rank it is.
#[test]
fn a_rank_that_names_its_fabric_alone_ends_the_job() {
    const RANK: &str = "unset PORTOLAN_MACHINE PORTOLAN_SEASTAR_MODE; PORTOLAN_FABRIC=auto; \
                        [ $PMI_RANK = $NAMED ] && PORTOLAN_FABRIC=shm; exec \"$@\"";
    let run = portolan();
    let launcher = [
        run.to_str().unwrap(),
        "run",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        RANK,
        "sh",
    ];
    for named in ["0", "1"] {
        let (said, _) = ends(&life(&launcher), &[("NAMED", named)], 3);
        // The launcher may end the rank that is slower to say so.
        let words = "life: no fabric reaches all ranks: ";
        assert!(said.contains(words), "{said}");
        let words = "PORTOLAN_FABRIC must be the same for all ranks";
        assert!(said.contains(words), "{said}");
    }
}
