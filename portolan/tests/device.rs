//! The tests of the driver on the model (`firmware-sim/tests/it/bodies.rs`), with the model in
//! another process behind vfio-user, and in this one behind the same interface.

#[path = "../../firmware-sim/tests/it/bodies.rs"]
mod bodies;
#[path = "../../firmware-sim/tests/it/driver.rs"]
#[allow(
    dead_code,
    reason = "what concerns the model itself is used by firmware-sim"
)]
mod driver;

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use driver::Sim;
use nic_device::{DmaMemory, Function, ModelFunction, UserFunction};
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;
use nic_model::{HostParams, Machine, RegisterIo, SimTime};
use tempfile::TempDir;

/// A server, which ends when its clients are gone, or at the latest with this value.
struct Server {
    child: Child,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Functions of one machine.
struct Functions<F> {
    // Dropped before the server.
    functions: RefCell<Vec<F>>,
    costs: HostParams,
    _server: Option<Server>,
}

impl<F: Function> driver::Chips for Functions<F> {
    type Memory = Vec<DmaMemory>;

    fn time(&self) -> SimTime {
        // The driver lives in wall time; the chips' time is their own.
        SimTime::ZERO
    }

    fn costs(&self) -> HostParams {
        self.costs
    }

    fn io(&mut self, node: u16, _at: SimTime) -> impl RegisterIo {
        Borrowed(&mut self.functions.get_mut()[usize::from(node)])
    }

    fn next_time(&self) -> Option<SimTime> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn advance(&mut self, _memory: &mut Self::Memory) -> bool {
        false
    }

    fn count(&self, node: u16, counter: Counter) -> u32 {
        let mut functions = self.functions.borrow_mut();
        functions[usize::from(node)].read32(counter.address())
    }

    fn interrupt(&mut self) -> Option<(SimTime, u16)> {
        // Pushes posted writes out, and lets time pass until all is done or somebody is
        // interrupted.
        for (node, function) in (0u32..).zip(self.functions.get_mut()) {
            assert_eq!(function.read32(map::NID), node);
        }
        for (node, function) in (0..).zip(self.functions.get_mut()) {
            if function.interrupts(Duration::ZERO).unwrap() > 0 {
                return Some((SimTime::ZERO, node));
            }
        }
        None
    }

    fn load(memory: &Self::Memory, node: u16, address: u64, buf: &mut [u8]) {
        memory[usize::from(node)].read(address, buf).unwrap();
    }

    fn store(memory: &mut Self::Memory, node: u16, address: u64, data: &[u8]) {
        memory[usize::from(node)].write(address, data).unwrap();
    }
}

struct Borrowed<'a, F>(&'a mut F);

impl<F: Function> RegisterIo for Borrowed<'_, F> {
    fn read32(&mut self, address: u32) -> u32 {
        self.0.read32(address)
    }

    fn write32(&mut self, address: u32, value: u32) {
        self.0.write32(address, value);
    }
}

fn over<F: Function>(mut functions: Vec<F>, server: Option<Server>) -> Sim<Functions<F>> {
    let mut memory = Vec::new();
    for function in &mut functions {
        let own = DmaMemory::new(bodies::MEMORY as u64).unwrap();
        function.map(&own, 0).unwrap();
        memory.push(own);
    }
    let nodes = functions.len() as u16;
    let chips = Functions {
        functions: RefCell::new(functions),
        costs: Machine::named("xt4").unwrap().host,
        _server: server,
    };
    Sim::over(chips, memory, nodes)
}

/// Chips in another process.
fn elsewhere(nodes: u16) -> Sim<Functions<UserFunction>> {
    elsewhere_with(nodes, &[], &[])
}

/// The same with further words and variables.
fn elsewhere_with(
    nodes: u16,
    words: &[&str],
    variables: &[(&str, &str)],
) -> Sim<Functions<UserFunction>> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device");
    let mut child = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args([
            "seastar-device",
            "--once",
            "--nodes",
            &nodes.to_string(),
            "--socket",
        ])
        .arg(&socket)
        .args(words)
        .env_remove("PORTOLAN_MACHINE_SET")
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let paths: Vec<_> = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .take(usize::from(nodes))
        .map(Result::unwrap)
        .collect();
    let server = Server {
        child,
        _folder: folder,
    };
    assert_eq!(paths.len(), usize::from(nodes), "the server ended");
    let functions = paths
        .iter()
        .map(|path| UserFunction::connect(path.as_ref()).unwrap())
        .collect();
    over(functions, Some(server))
}

/// Chips in this process.
fn here(nodes: u16) -> Sim<Functions<ModelFunction>> {
    let chips = nic_device::Chips::new(Machine::named("xt4").unwrap(), nodes).unwrap();
    over(ModelFunction::all(chips), None)
}

macro_rules! both {
    ($($name:ident),+ $(,)?) => {
        mod in_another_process {
            $(#[test] fn $name() { let _ = super::bodies::$name(super::elsewhere); })+
        }
        mod in_this_process {
            $(#[test] fn $name() { let _ = super::bodies::$name(super::here); })+
        }
    };
}

both!(
    header_only_and_inline,
    payloads_arrive_exactly,
    scattered_and_truncated,
    a_node_sends_to_itself,
    many_messages_of_many_sources_stay_in_order,
    inline_messages_arrive_in_the_order_sent,
    a_process_that_is_not_alive_gets_nothing,
    host_faults_end_transfers_with_a_failed_status,
    an_unreadable_header_does_not_disturb_the_sequence,
    absurd_commands_are_refused_with_a_reason,
);

#[test]
fn a_parameter_that_is_set_is_that_of_the_chips() {
    let left = |words: &[&str], variables: &[(&str, &str)]| {
        let mut sim = elsewhere_with(2, words, variables);
        sim.boot_all();
        sim.counter(1, Counter::SOURCE_FREELIST)
    };
    let usual = Machine::named("xt4").unwrap().firmware.sources;
    assert_eq!(left(&[], &[]), usual);
    assert_eq!(left(&["--set", "firmware.sources=9"], &[]), 9);
    let variable = [("PORTOLAN_MACHINE_SET", "firmware.sources=8,host.trap=0.2")];
    assert_eq!(left(&[], &variable), 8);
    let refused = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
        command.args(["seastar-device", "--socket", "/nonexistent/x"]);
        command.env_remove("PORTOLAN_MACHINE_SET");
        let output = command.args(words).envs(variables.iter().copied()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = "--set (PORTOLAN_MACHINE_SET): \"firmware.source\" is not a parameter; is it firmware.sources?";
    for errors in [
        refused(&["--set", "firmware.source=9"], &[]),
        refused(&[], &[("PORTOLAN_MACHINE_SET", "firmware.source=9")]),
    ] {
        assert!(errors.contains(said), "{errors}");
    }
}

/// A server that is killed is a card that is pulled: ones, no interrupt, an error that says so.
#[test]
fn a_server_that_ends_reads_as_ones() {
    let mut sim = elsewhere(2);
    sim.boot_all();
    let server = sim.world._server.take();
    drop(server);
    let function = &mut sim.world.functions.get_mut()[0];
    assert_eq!(function.read32(map::NID), u32::MAX);
    function.write32(map::HT_INTERRUPT, 1);
    assert_eq!(function.read32(map::NID), u32::MAX);
    let fault = function.fault().unwrap().to_string();
    assert!(fault.contains("closed the connection"), "{fault}");
    assert!(
        function
            .map(&DmaMemory::new(4096).unwrap(), 1 << 40)
            .is_err()
    );
}

#[test]
fn nobody_at_the_socket_is_told_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nobody");
    let error = UserFunction::connect(&path).unwrap_err().to_string();
    assert!(
        error.contains("portolan seastar-device --socket"),
        "{error}"
    );
}
