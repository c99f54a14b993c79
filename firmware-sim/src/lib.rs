//! The program of the SeaStar embedded processor. In accelerated mode it matches too: [`accel`].
//!
//! In generic mode the host matches; the firmware moves data. One shared process (index 1, mailbox 0) carries all
//! traffic of a node:
//!
//! ```text
//!  mailbox --poll--> command --cost--> init / transmit / receive / release
//!                                        |           |         |
//!            tx queue --> Tx engine <----+           |         +--> free receive pendings
//!                           | done                   v                    |
//!                           v                     Rx engine               v
//!  host EQ <-- TX_END       +---------------------- done --> RX_DONE   waiting headers
//!  host EQ <-- HEADER <-- cost <-- header packet <------------------------+
//! ```
//!
//! # Rules
//!
//! 1. Commands of a mailbox are carried out in order, one at a time; the processor does one piece
//!    of work at a time, in the order in which the hardware reported it.
//! 2. A transmit pending is the firmware's from its command to its end event; a receive pending is
//!    the host's from its header event to its release.
//! 3. Messages of a source reach the host in order, each once. One for which there is no room (no
//!    receive pending, CAM entry or source structure) is counted and, as the machine's `exhaustion`
//!    says, waits in the network, is refused and sent again by its sender (go-back-n), or stops the
//!    node.
//! 4. A transmit ends when its peer has taken the message, or when that has not happened for
//!    `give_up`. A message for a process that is not alive counts as taken; it is thrown away and
//!    counted.
//! 5. An event never overwrites one that the host has not read: without room it waits.
//! 6. Whatever the host or a peer writes is refused with a reason and counted; nothing panics.
//!
//! Costs are the `[firmware]` parameters of the machine.

pub mod accel;
pub mod answer;
pub mod awaited;
mod contexts;
mod datagram;
mod eq;
pub mod header;
mod mailbox;
mod process;
mod program;
mod protocol;
mod rx;
mod source;
mod tx;

pub use program::SeaStarFirmware;
