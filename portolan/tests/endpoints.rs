//! Endpoints of no job on the SeaStar model: programs that were not started together meet by addresses in a file.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use host::bystander::Bystander;
use portals_shim::endpoint::Endpoint;
use portals_shim::fabric::{FabricConfig, FabricKind};
use portals_shim::{
    AckRequest, EqHandle, EventKind, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeSpec,
    NiFail, ProcessId, Region, Target, Unlink,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");
/// What a program is to be, in a folder.
const ROLE: &str = "PORTOLAN_TEST_ENDPOINT";
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A `portolan simulate`, killed with this value.
struct Simulation {
    command: Child,
    word: String,
    /// Open until then.
    _out: BufReader<ChildStdout>,
}

impl Simulation {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(PORTOLAN)
            .arg("simulate")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(command.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let word = line.trim_end().strip_prefix("PORTOLAN_SIMULATION=");
        let word = word.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self {
            command,
            word,
            _out: out,
        }
    }

    /// This test program in another role.
    fn program(&self, role: &str, folder: &Path) -> Command {
        let mut program = Command::new(env::current_exe().unwrap());
        program
            .args(["--exact", "a_program_with_an_endpoint", "--nocapture"])
            .env(ROLE, format!("{role} {}", folder.display()))
            .env("PORTOLAN_SIMULATION", &self.word)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        program
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// Waits until `done` holds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

/// The line that a program prints behind the word `clock`.
fn clock(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let line = said.lines().find(|line| line.starts_with("clock "));
    line.unwrap_or_else(|| panic!("{said}{errors}")).to_owned()
}

/// One that takes puts of everybody, with its address in a file of its own.
struct Program {
    end: Endpoint,
    folder: PathBuf,
    eq: EqHandle,
    takes: Region,
    gives: Region,
    from: MdHandle,
}

const LEN: usize = 5000;

impl Program {
    fn open(folder: PathBuf, own: &str) -> Self {
        let config = FabricConfig {
            fabric: FabricKind::Seastar.into(),
            ..FabricConfig::default()
        };
        let end = Endpoint::open(&config).unwrap();
        let ni = end.interface();
        let eq = ni.eq_alloc(64).unwrap();
        let takes = Region::new(LEN).unwrap();
        let gives = Region::new(LEN).unwrap();
        let everybody = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: 7,
            ignore_bits: 0,
            unlink: Unlink::Retain,
        };
        let of = |region: &Region| MdSpec {
            memory: MdMemory::whole(region),
            threshold: -1,
            max_size: 0,
            options: MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE | MdOptions::EVENT_START_DISABLE,
            user_ptr: 0,
            eq: Some(eq),
        };
        let me = ni.me_attach(4, everybody, InsertPosition::After).unwrap();
        ni.md_attach(me, of(&takes), Unlink::Retain).unwrap();
        let from = ni.md_bind(of(&gives), Unlink::Retain).unwrap();
        // Whole when it has its name.
        let made = folder.join(format!("{own}.new"));
        fs::write(&made, end.address()).unwrap();
        fs::rename(made, folder.join(own)).unwrap();
        Self {
            end,
            folder,
            eq,
            takes,
            gives,
            from,
        }
    }

    /// Waits for the file of another, of which the simulation knows nothing.
    fn meet(&self, other: &str) -> ProcessId {
        let file = self.folder.join(other);
        until("the other's address", || file.exists());
        self.end.connect(&fs::read(file).unwrap()).unwrap()
    }

    fn next(&self, kind: EventKind) {
        loop {
            let event = self.end.interface().eq_wait(self.eq).unwrap().event;
            assert_eq!(event.ni_fail, NiFail::OK);
            if event.kind == kind {
                return;
            }
        }
    }

    fn takes(&self, value: u8) {
        self.next(EventKind::PutEnd);
        let mut there = vec![0; LEN];
        self.takes.read(0, &mut there).unwrap();
        assert_eq!(there, vec![value; LEN]);
    }

    fn puts(&self, process: ProcessId, value: u8) {
        self.gives.write(0, &[value; LEN]).unwrap();
        let to = Target {
            process,
            pt_index: 4,
            ac_index: 0,
            match_bits: 7,
            remote_offset: 0,
        };
        let ni = self.end.interface();
        ni.put(self.from, AckRequest::NoAck, to, 0).unwrap();
    }

    /// Puts and takes in turn, and prints the virtual time that it took from the second round on: in the first the other
    /// may have come at any time.
    fn exchange(&self, peer: ProcessId, begins: bool) {
        let mut began = 0;
        for round in 0..20 {
            if begins {
                self.puts(peer, round);
                self.takes(100 + round);
            } else {
                self.takes(round);
                self.puts(peer, 100 + round);
            }
            if round == 0 {
                began = self.end.interface().now();
            }
        }
        let took = self.end.interface().now() - began;
        if !begins {
            self.next(EventKind::SendEnd);
        }
        println!("\nclock {took}");
    }
}

/// What other processes of these tests are.
#[test]
fn a_program_with_an_endpoint() {
    let Ok(words) = env::var(ROLE) else { return };
    // The thread that waits for this one makes no calls: waits need no slices.
    let _main = Bystander::new();
    let (role, folder) = words.split_once(' ').unwrap();
    let folder = PathBuf::from(folder);
    match role {
        "first" | "second" => {
            let program = Program::open(folder, role);
            let begins = role == "second";
            let peer = program.meet(if begins { "first" } else { "second" });
            program.exchange(peer, begins);
            program.end.interface().close().unwrap();
        }
        "dies" => {
            let program = Program::open(folder, role);
            program.meet("first");
            program.end.interface().status().unwrap();
            fs::write(program.folder.join("dies.met"), "").unwrap();
            loop {
                std::thread::park();
            }
        }
        "alone" => {
            // Of a peer that nobody is, so that it holds time like one that has met somebody.
            let program = Program::open(folder.clone(), "alone.before");
            let mut nobody = program.end.address();
            nobody[9] ^= 1;
            program.end.connect(&nobody).unwrap();
            program.end.interface().status().unwrap();
            fs::write(folder.join(role), program.end.address()).unwrap();
            program.takes(9);
            program.end.interface().close().unwrap();
        }
        "sends" => {
            let program = Program::open(folder, role);
            let peer = program.meet("alone");
            program.puts(peer, 9);
            program.next(EventKind::SendEnd);
            program.end.interface().close().unwrap();
        }
        "waits" => {
            let program = Program::open(folder, role);
            assert!(program.end.interface().eq_wait(program.eq).is_err());
        }
        "bound" => {
            Program::open(folder, role);
        }
        _ => panic!("{role}"),
    }
}

/// Two programs that know a folder and the simulation, and nothing of each other; the virtual times that they took.
fn meet(simulation: &Simulation) -> [String; 2] {
    let folder = TempDir::new().unwrap();
    let first = simulation.program("first", folder.path()).spawn().unwrap();
    let address = folder.path().join("first");
    until("the first's address", || address.exists());
    let second = simulation.program("second", folder.path()).spawn().unwrap();
    let second = second.wait_with_output().unwrap();
    let first = first.wait_with_output().unwrap();
    [clock(&first), clock(&second)]
}

#[test]
fn programs_that_were_not_started_together_meet_through_a_file() {
    let simulation = Simulation::start(&["--places", "2"]);
    // The places are free again each time.
    let times: Vec<_> = (0..3).flat_map(|_| meet(&simulation)).collect();
    let took = times
        .iter()
        .map(|line| line["clock ".len()..].parse::<u64>().unwrap());
    let (least, most) = (took.clone().min().unwrap(), took.max().unwrap());
    // Both hold time, so it is theirs alone, but for the phase in which they come.
    assert!(least > 100_000 && most < least + least / 100, "{times:?}");
}

/// In a job a wait of everybody is a deadlock; here somebody may come.
#[test]
fn a_wait_of_everybody_ends_when_somebody_comes() {
    let simulation = Simulation::start(&["--places", "2"]);
    let folder = TempDir::new().unwrap();
    let alone = simulation.program("alone", folder.path()).spawn().unwrap();
    let address = folder.path().join("alone");
    until("an endpoint", || {
        address.metadata().is_ok_and(|m| m.len() == 64)
    });
    let sends = simulation.program("sends", folder.path()).spawn().unwrap();
    for program in [sends, alone] {
        let output = program.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{errors}");
    }
}

/// An endpoint that is killed while it holds time, and one that is there and does nothing, hold nobody up.
#[test]
fn a_killed_program_holds_nobody_up() {
    let simulation = Simulation::start(&["--places", "4", "--ranks-per-node", "2"]);
    let folder = TempDir::new().unwrap();
    let first = simulation.program("first", folder.path()).spawn().unwrap();
    let mut dies = simulation.program("dies", folder.path()).spawn().unwrap();
    let met = folder.path().join("dies.met");
    until("an endpoint that holds time", || met.exists());
    dies.kill().unwrap();
    dies.wait().unwrap();
    let second = simulation.program("second", folder.path()).spawn().unwrap();
    clock(&second.wait_with_output().unwrap());
    clock(&first.wait_with_output().unwrap());
}

/// Who waits in a simulation whose founder is killed hears of it at once, and no process of it is left.
#[test]
fn a_simulation_ends_with_its_killed_founder() {
    let mut simulation = Simulation::start(&["--places", "2"]);
    let folder = TempDir::new().unwrap();
    let waits = simulation.program("waits", folder.path()).spawn().unwrap();
    let address = folder.path().join("waits");
    until("an endpoint", || address.exists());
    let children = format!("/proc/{0}/task/{0}/children", simulation.command.id());
    let child: i32 = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let child = Pid::from_raw(child).unwrap();
    let began = Instant::now();
    simulation.command.kill().unwrap();
    simulation.command.wait().unwrap();
    let gone = || {
        fs::read_to_string(format!("/proc/{}/stat", child.as_raw_pid()))
            .map_or(true, |s| s.contains(") Z "))
    };
    until("the simulation's end", gone);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    let waits = waits.wait_with_output().unwrap();
    assert!(
        waits.status.success(),
        "{}",
        String::from_utf8_lossy(&waits.stderr)
    );
}

#[test]
fn a_full_simulation_and_none_are_said_in_one_line() {
    let simulation = Simulation::start(&["--places", "1"]);
    let folder = TempDir::new().unwrap();
    let mut waits = simulation.program("waits", folder.path()).spawn().unwrap();
    let address = folder.path().join("waits");
    until("an endpoint", || address.exists());
    let said = |program: &mut Command| {
        let output = program.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = said(&mut simulation.program("bound", folder.path()));
    let why = "the simulation did not take this endpoint: each of its 1 places is taken (portolan simulate --places)";
    assert!(told.contains(why), "{told}");
    let told = said(
        simulation
            .program("bound", folder.path())
            .env_remove("PORTOLAN_SIMULATION"),
    );
    assert!(
        told.contains("`portolan simulate --places N` starts one"),
        "{told}"
    );
    let told = said(
        simulation
            .program("bound", folder.path())
            .env("PORTOLAN_SIMULATION", "here"),
    );
    assert!(told.contains("PORTOLAN_SIMULATION is not a word"), "{told}");
    waits.kill().unwrap();
    waits.wait().unwrap();
    let mut accelerated = Command::new(PORTOLAN);
    accelerated.args(["simulate", "--places", "2", "--mode", "accelerated"]);
    let told = said(&mut accelerated);
    let why = "portolan: fabric seastar cannot be used here: endpoints join in generic mode only: ";
    assert!(told.starts_with(why) && told.lines().count() == 1, "{told}");
}

/// `run --places` has one word for the program, which is no rank, and ends the simulation with it.
#[test]
fn a_program_runs_in_a_simulation_of_its_own() {
    let folder = TempDir::new().unwrap();
    let own = env::current_exe().unwrap();
    let script = r#"
        [ -z "$PMI_FD$PMI_RANK$PMI_SIZE" ] || exit 7
        run() { PORTOLAN_TEST_ENDPOINT="$1 $2" "$3" --exact a_program_with_an_endpoint --nocapture; }
        run first "$1" "$2" & run second "$1" "$2" || exit 8
        wait $! || exit 9
        echo "$PORTOLAN_SIMULATION" > "$1/word"
        exit 5"#;
    let output = Command::new(PORTOLAN)
        .args(["run", "--fabric", "seastar", "--places", "2", "--timeout"])
        .arg(LIMIT.as_secs().to_string())
        .args(["--", "sh", "-c", script, "sh"])
        .args([folder.path(), own.as_path()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}{errors}");
    assert_eq!(said.matches("clock ").count(), 2, "{said}");
    // It has ended.
    let word = fs::read_to_string(folder.path().join("word")).unwrap();
    let mut late = Command::new(own);
    late.args(["--exact", "a_program_with_an_endpoint"])
        .env(ROLE, format!("bound {}", folder.path().display()))
        .env("PORTOLAN_SIMULATION", word.trim_end());
    let late = late.output().unwrap();
    let told =
        String::from_utf8_lossy(&late.stdout).into_owned() + &String::from_utf8_lossy(&late.stderr);
    assert!(told.contains("cannot reach the simulation"), "{told}");
}

/// What ends the command in order has the simulation write its files.
#[test]
fn a_simulation_that_is_ended_by_a_signal_writes_its_counters() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("counters");
    let mut command = Command::new(PORTOLAN)
        .args(["simulate", "--places", "2"])
        .env("PORTOLAN_TRACE_COUNTERS", &file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(command.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(command.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    command.wait().unwrap();
    until("the counters", || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("node 1"))
    });
}
