//! A cycle-approximate model of the Cray SeaStar NIC and its torus.
//!
//! The model knows nothing of Portals. It has three seams:
//!
//! ```text
//!   host kernel / driver                     owner of the hosts' memory
//!     | RegisterIo: read32, write32            | HostMemories: read, write
//!     v                                        v
//!   World: SRAM, mailboxes, Tx DMA, Rx DMA, interrupt line ==== routers and links ==== others
//!     ^
//!     | Firmware: callbacks and a context
//!   firmware-sim
//! ```
//!
//! # For the author of a driver
//!
//! ```no_run
//! # use nic_model::*;
//! # fn f<F: Firmware>(firmware: impl FnMut(NodeId, &Machine) -> F,
//! #                   memories: &mut dyn HostMemories) -> Result<(), Box<dyn std::error::Error>> {
//! let machine = Machine::named("xt4")?;
//! let mut world = World::new(machine, Topology::torus([2, 1, 1])?, firmware);
//! while let Some(at) = world.next_event_time() {
//!     // ... let every host act that has something to do before `at` ...
//!     world.step(memories);
//!     while let Some((when, node)) = world.poll_interrupt() {
//!         // ... the handler of `node` runs from `when` + interrupt entry ...
//!         let mut io = world.registers(node, when);
//!         let _nid = io.read32(defs::map::NID);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! Boot, in this order, all through [`RegisterIo`]:
//!
//! 1. Map kernel memory: [`HtMapEntry::mapping`](defs::map::HtMapEntry::mapping) of its address
//!    into [`ht_slot(8)`](defs::map::ht_slot) (and 9).
//!    [`firmware_address(8, phys)`](defs::map::firmware_address) is then how commands name it.
//! 2. Open the interrupt line: any non-zero word into
//!    [`HT_INTERRUPT`](defs::map::HT_INTERRUPT).
//! 3. [`InitProcess`](defs::command::InitProcess) (result 0),
//!    [`InitEq`](defs::command::InitEq) (result 1),
//!    [`MarkAlive`](defs::command::MarkAlive) (result 0) through
//!    [mailbox](defs::mailbox) 0, waiting for each result.
//!
//! To send: fill header bytes at offset 64 of an idle transmit pending, write a
//! [`Transmit`](defs::command::Transmit); the pending is idle again with
//! [`TX_END`](defs::event::EventType::TX_END). To receive: on
//! [`HEADER`](defs::event::EventType::HEADER) read the [upper pending](defs::pending), match, then
//! write [`Release`](defs::command::Release) when no payload follows (or it is not wanted), or
//! [`Receive`](defs::command::Receive) with the buffer; on
//! [`RX_DONE`](defs::event::EventType::RX_DONE) finish, and `Release` unless the receive had
//! [`RELEASE`](defs::command::flags::RELEASE). One interrupt may stand for many events: drain the
//! event ring until it is empty, zeroing what was read.
//!
//! # Time
//!
//! [`SimTime`] is an argument everywhere; no clock is read, no thread is started, no float or hash
//! map decides anything. Two runs with the same calls process the same events.

pub mod defs;

mod chip;
mod fabric;
mod faults;

mod firmware;
mod host;
pub mod load;
mod network;
mod params;
mod posted;
mod queue;
mod time;
mod topology;
pub mod trace;
mod transfer;
mod world;

pub use faults::{Fault, FaultRates, Faults, FaultsError, LinkRates};
pub use firmware::{Firmware, FirmwareContext};
pub use host::{HostFault, HostMemories, HostMemory, RegisterIo};
pub use network::{Fidelity, LinkStats, NetworkStats};
pub use params::{
    AcceleratedParams, ChipParams, FirmwareParams, HostParams, Machine, MachineError,
    NetworkParams, Os, ParameterInfo, ProtocolParams, Provenance, Status,
};
pub use time::{Rate, SimDuration, SimTime};
pub use topology::{LinkName, LinkNameError, NodeId, Port, Topology, TopologyError};
pub use transfer::{
    Deposit, DmaSegment, EngineBusy, RxHandle, RxHeader, RxReport, StaleMessage, TransferFault,
    TxJob,
};
pub use world::{Options, Registers, Step, StepKind, World};
