//! The SeaStar model as a PCI device, and a driver's ways to a chip.
//!
//! The model has no I/O. This crate adds it on both sides of the register window:
//!
//! ```text
//!   driver ── Function: registers, mapped memory, interrupts
//!     │
//!     ├─ ModelFunction     the model in this process            ─┐
//!     ├─ UserFunction      vfio-user: a socket to another ───►  Chips: world, memory of the hosts
//!     │                    process, served by `serve`            ─┘
//!     └─ KernelFunction    Linux VFIO: a PCI function of this machine
//! ```
//!
//! Every way gives a driver the same three things: 32-bit registers of the 2 MiB window at
//! BAR 0 ([`RegisterIo`](nic_model::RegisterIo), by their SeaStar addresses), memory that the
//! chip reaches at addresses of the driver's choice ([`DmaMemory`]), and a count of interrupts.
//!
//! # Time
//!
//! The world behind a function lives in virtual time, its driver in wall time:
//!
//! * Writes are posted and take no time.
//! * Before a register is read the world runs until nothing more is going to happen, a host is
//!   interrupted, or [`TOUCH`] of virtual time has passed. So a driver that polls sees progress,
//!   and what a read shows has happened: memory is written, interrupts are signalled.
//! * An interrupt stops time until its host does something (a server waits a second of wall time
//!   for that), so that no timer of a firmware runs out because a driver was not scheduled.
//! * While no client of a server says anything, [`IDLE_STEP`] passes for each millisecond.

mod bar;
mod callers;
mod chips;
mod client;
mod dma;
mod error;
mod function;
mod kernel;
mod memory;
mod model;
mod pci;
mod proto;
mod serve;
mod server;
mod signal;
mod socket;

pub use chips::{Chips, TOUCH};
pub use client::UserFunction;
pub use dma::{DmaMap, DmaMapError};
pub use error::DeviceError;
pub use function::Function;
pub use kernel::KernelFunction;
pub use memory::DmaMemory;
pub use model::ModelFunction;
pub use pci::{DEVICE_ID, VENDOR_ID};
pub use serve::{IDLE_STEP, Listeners, ServeOptions, serve};
