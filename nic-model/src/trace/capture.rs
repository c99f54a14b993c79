//! The capture: a pcap file of packets as they came out of the network.
//!
//! The file is classic pcap, little endian, with nanosecond times and [`LINK_TYPE`]. A frame is:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version of this layout: 1 |
//! | 1 | bit 0: the CRC fails |
//! | 2–3 | node that it came out at, big endian |
//! | 4–11 | picoseconds since the start of the world, big endian |
//! | 12–19 | the header flit ([`PacketHeader`](crate::defs::packet::PacketHeader)), big endian |
//! | 20– | the payload; of a message's first packet the Portals header and inline data |

use std::io::Write;

use super::{Output, Record, Sink, What};

/// What the file says its frames are: the first of the types kept free for private use
/// (`LINKTYPE_USER0`).
pub const LINK_TYPE: u32 = 147;
/// Bytes before the payload.
pub const FRAME_HEADER: usize = 20;
/// The file's mark for nanosecond times.
const MAGIC: u32 = 0xA1B2_3C4D;
/// Longest frame.
const SNAP: u32 = 256 * 1024;

/// Writes a pcap file; see the module's table.
#[derive(Debug)]
pub struct Capture<W> {
    out: Output<W>,
}

impl<W: Write> Capture<W> {
    /// Writes to `to`, which should be buffered.
    pub fn new(to: W) -> Self {
        let mut out = Output::new(to);
        let mut head = Vec::with_capacity(24);
        head.extend(MAGIC.to_le_bytes());
        // Version 2.4; time zone and accuracy are zero by custom.
        head.extend(2u16.to_le_bytes());
        head.extend(4u16.to_le_bytes());
        head.extend([0; 8]);
        head.extend(SNAP.to_le_bytes());
        head.extend(LINK_TYPE.to_le_bytes());
        out.write(&head);
        Self { out }
    }
}

impl<W: Write + Send> Sink for Capture<W> {
    fn record(&mut self, record: &Record<'_>) {
        let What::Packet {
            header,
            payload,
            corrupt,
        } = record.what
        else {
            return;
        };
        let ns = record.time.as_ns();
        let length = (FRAME_HEADER + payload.len()) as u32;
        let seconds = u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(16 + length as usize);
        frame.extend(seconds.to_le_bytes());
        frame.extend(((ns % 1_000_000_000) as u32).to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend([1, u8::from(corrupt)]);
        frame.extend(record.node.0.to_be_bytes());
        frame.extend(record.time.as_ps().to_be_bytes());
        frame.extend(header.0.to_be_bytes());
        frame.extend(payload);
        self.out.write(&frame);
    }

    fn finish(&mut self) -> Result<(), String> {
        self.out.finish().map_err(|e| format!("capture: {e}"))
    }
}
