//! What a peer's network interface delivers: frames of the verbs fabric, header packets of the
//! SeaStar.
//!
//! The first byte chooses. Its bit 1 brings a frame's prefix or a packet's operation into reach.

use portals_shim::nal::{seastar, verbs};

/// Bytes before a frame's body; the last four are the body's length.
const PREFIX: usize = 16;
/// Node where packets arrive.
const NODE: u32 = 7;

/// Nothing panics, and a header that is decoded survives being sent on.
pub fn run(data: &[u8]) -> u32 {
    let Some((choice, rest)) = data.split_first() else {
        return 0;
    };
    let mut bytes = rest.to_vec();
    let helped = choice & 2 != 0;
    u32::from(if choice & 1 == 0 {
        if helped && let Some(kind) = bytes.first_mut() {
            *kind %= 5;
        }
        let is_header = seastar::is_header(&bytes, NODE);
        let least = match bytes.first() {
            Some(0 | 1 | 3 | 4) => 48,
            Some(2) => 56,
            _ => usize::MAX,
        };
        assert_eq!(is_header, bytes.len() >= least, "{bytes:02x?}");
        is_header
    } else {
        if helped && let Some((prefix, body)) = bytes.split_first_chunk_mut::<PREFIX>() {
            prefix[0] %= 6;
            prefix[12..].copy_from_slice(&(body.len() as u32).to_le_bytes());
            if let Some(header) = body.first_chunk_mut::<4>() {
                *header = [0x50, 0x33, 1, header[3] % 5];
            }
        }
        let is_frame = verbs::is_frame(&bytes);
        let claimed = bytes.first_chunk().map(|prefix: &[u8; PREFIX]| {
            u32::from_le_bytes([prefix[12], prefix[13], prefix[14], prefix[15]]) as usize
        });
        let there = bytes.len().saturating_sub(PREFIX);
        assert!(
            !is_frame || claimed.is_some_and(|n| n <= there),
            "{bytes:02x?}"
        );
        is_frame
    })
}
