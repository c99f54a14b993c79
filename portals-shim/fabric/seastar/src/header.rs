//! The Portals header on the wire, which the firmware of an accelerated process reads too.

pub(super) use firmware_sim::header::{AGAIN, FAILED, FLAGS_AT, LEN, PACKET, decode, encode};
