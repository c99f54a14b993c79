//! The provider as libfabric loads it: by programs of its own, and by one of calls that go well and that must fail.

#[path = "../../tests/built.rs"]
mod built;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the provider and the simulation are built.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built::built(&["-p", "portolan-ofi", "-p", "portolan"]))
}

/// A folder with the provider alone, where libfabric looks for it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let name = "libportolan_fi.so";
    std::fs::copy(built().join(name), folder.path().join(name)).unwrap();
    folder
}

fn command(program: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    command
        .env("FI_PROVIDER_PATH", folder.path())
        .env("FI_PORTOLAN_FABRIC", "shm");
    command
}

/// A test cannot run here. Continuous integration does not pass without it.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    println!("skipped: {why}");
}

/// Whether there is such a program; a test is skipped if not.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let there = found.is_ok_and(|o| o.status.success());
    if !there {
        skip(&format!(
            "{program} is not installed (Debian: libfabric-bin)"
        ));
    }
    there
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn fi_info_shows_the_provider_and_its_variables() {
    if !is_there("fi_info") {
        return;
    }
    let folder = folder();
    let shown = command("fi_info", &folder)
        .args(["-p", "portolan"])
        .output();
    let shown = text(&shown.unwrap());
    for words in ["provider: portolan", "domain: shm", "type: FI_EP_RDM"] {
        assert!(shown.contains(words), "{words:?} in {shown}");
    }
    let shown = command("fi_info", &folder)
        .args(["-e", "-g", "portolan"])
        .output();
    let shown = text(&shown.unwrap());
    for name in ["FI_PORTOLAN_FABRIC", "FI_PORTOLAN_DEVICE"] {
        assert!(shown.contains(name), "{name:?} in {shown}");
    }
}

/// Whether somebody listens at this port of this machine.
fn listens(port: u16) -> bool {
    let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let end = format!(":{port:04X}");
    all.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&end));
        local && words.nth(1) == Some("0A")
    })
}

#[test]
fn two_programs_that_were_not_started_together_play_ping_pong() {
    if !is_there("fi_info") {
        return;
    }
    let folder = folder();
    for mode in ["msg", "tagged"] {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let args = ["-p", "portolan", "-e", "rdm", "-c", "-m", mode];
        let mut server = command("fi_pingpong", &folder)
            .args(args)
            .args(["-B", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !listens(port) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            assert!(server.try_wait().unwrap().is_none(), "the server has ended");
            std::thread::yield_now();
        }
        let client = command("fi_pingpong", &folder)
            .args(args)
            .args(["-P", &port.to_string(), "127.0.0.1"])
            .output()
            .unwrap();
        assert!(client.status.success(), "{}", text(&client));
        assert!(text(&client).contains("1m "), "{}", text(&client));
        assert!(server.wait().unwrap().success());
    }
}

/// Runs a program of C over the provider, which says so when all is right.
fn run_c(name: &str, says: &str, args: &[&str], variables: &[(&str, &str)]) {
    let run = |program: &Path, folder: &TempDir| {
        let mut run = command(&program.to_string_lossy(), folder);
        run.args(args).envs(variables.iter().copied());
        run
    };
    run_c_by(name, says, run);
}

/// The same on the model of a machine with so many places.
fn run_c_on_the_model(name: &str, says: &str, places: &str, args: &[&str]) {
    let run = |program: &Path, folder: &TempDir| {
        let mut run = command(&built().join("portolan").to_string_lossy(), folder);
        run.args(["run", "--fabric", "seastar", "--places", places, "--"]);
        run.arg(program).args(args);
        run.env("FI_PORTOLAN_FABRIC", "seastar");
        run
    };
    run_c_by(name, says, run);
}

fn run_c_by(name: &str, says: &str, run: impl Fn(&Path, &TempDir) -> Command) {
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let folder = folder();
    let program = folder.path().join(name);
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .args([&source, "-lfabric"])
        .output();
    let headers = PathBuf::from("/usr/include/rdma/fabric.h");
    match compiled {
        Ok(output) if output.status.success() => {}
        Ok(output) if headers.is_file() => panic!("{}", text(&output)),
        _ => return skip("no compiler, or no headers of libfabric (Debian: libfabric-dev)"),
    }
    let run = run(&program, &folder).output().unwrap();
    assert!(run.status.success(), "{}", text(&run));
    assert!(text(&run).contains(says), "{}", text(&run));
}

#[test]
fn calls_do_what_libfabric_says_and_wrong_ones_say_why() {
    run_c("calls", "all calls are right", &[], &[]);
}

#[test]
fn corners_of_the_manual_pages_are_as_they_say() {
    run_c("corners", "all corners are right", &[], &[]);
    run_c_on_the_model("corners", "all corners are right", "2", &[]);
}

#[test]
fn endpoints_are_found_by_the_host_and_the_port_that_they_are_named() {
    run_c("named", "all names are right", &[], &[]);
    run_c_on_the_model("named", "all names are right", "4", &[]);
}

#[test]
fn what_is_held_for_sent_arrives_though_its_sender_ends() {
    run_c("leaves", "all has arrived", &[], &[]);
    for how in ["exit", "_exit"] {
        run_c("leaves", "all has arrived", &[how], &[]);
        run_c_on_the_model("leaves", "all has arrived", "2", &[how]);
    }
}

#[test]
fn no_operation_allocates() {
    run_c("allocations", "no operation allocates", &[], &[]);
}

#[test]
fn nothing_grows_with_the_number_of_calls() {
    run_c("growth", "nothing grows", &["20000"], &[]);
    run_c_on_the_model("growth", "nothing grows", "4", &["50"]);
}

#[test]
fn what_newer_libfabrics_call_is_there() {
    run_c("newer", "all that is newer is right", &[], &[]);
}

#[test]
fn sleeping_programs_are_woken_by_arrivals_and_by_what_they_sent() {
    run_c("waits", "all sleeps have ended", &[], &[]);
    // At once, and not after some looks.
    let at_once = [("PORTOLAN_SPIN", "0")];
    run_c("waits", "all sleeps have ended", &[], &at_once);
}

#[test]
fn a_program_that_makes_no_call_is_served_by_automatic_progress() {
    run_c("waits", "all sleeps have ended", &["automatic"], &[]);
}

#[test]
fn a_forked_child_has_nothing_of_its_parents_and_no_call_waits() {
    run_c("forks", "all forks are right", &[], &[]);
    run_c_on_the_model("forks", "all forks are right", "1", &[]);
}

#[test]
fn random_operations_end_as_libfabric_says() {
    for seed in ["1", "2", "3"] {
        run_c("random", "all are right", &[seed, "3000"], &[]);
    }
    run_c_on_the_model("random", "all are right", "3", &["4", "2000"]);
    for seed in ["1", "2", "3"] {
        run_c("random_memory", "all are right", &[seed, "3000"], &[]);
    }
    run_c_on_the_model("random_memory", "all are right", "3", &["4", "1000"]);
}

#[test]
fn what_is_under_way_ends_when_an_endpoint_or_memory_is_closed() {
    run_c("closes", "all has ended", &[], &[]);
    run_c_on_the_model("closes", "all has ended", "4", &[]);
}

#[test]
fn random_calls_of_several_threads_give_codes_and_all_closes() {
    run_c("random_calls", "all has been closed", &["1", "4000"], &[]);
    run_c(
        "random_calls",
        "all has been closed",
        &["2", "3000", "4"],
        &[],
    );
    run_c_on_the_model("random_calls", "all has been closed", "60", &["3", "2000"]);
}

#[test]
fn threads_share_endpoints_and_queues() {
    run_c("threads", "4 threads share all", &["1", "500"], &[]);
    run_c_on_the_model("threads", "4 threads share all", "2", &["2", "50"]);
}

#[test]
fn messages_keep_their_order_and_who_closes_ends_what_is_awaited_of_it() {
    run_c("pair", "a pair is right", &[], &[]);
    // There a short message overtakes a long one.
    run_c_on_the_model("pair", "a pair is right", "2", &[]);
}
