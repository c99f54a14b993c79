//! What driver, firmware and chip agree on: the address map, the mailbox, commands, event words,
//! pendings and the packet header.
//!
//! Layouts follow what public SeaStar drivers show. What those do not show is marked *ours*: op
//! codes 3 and up, everything of accelerated mode, event types 128 to 133, result codes of
//! failures, flags, the contents of an upper pending beyond its first two words, the lower
//! pending's words, packet-header fields beyond the flit's, control packets, the RAS area beyond
//! its config words, and the counters from offset 256 of the NIC control block.

pub mod accel;
pub mod command;
pub mod context;
pub mod datagram;
pub mod event;
pub mod mailbox;
pub mod map;
pub mod niccb;
pub mod packet;
pub mod pending;
pub mod ras;
