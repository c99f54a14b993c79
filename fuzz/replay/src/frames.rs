//! What a peer's network interface delivers: frames of the verbs fabric, header packets of the
//! SeaStar.
//!
//! The first byte chooses. Its bit 1 brings a frame's prefix or a packet's operation into reach.

use portals_shim::nal::{seastar, verbs};

/// Bytes before a frame's body.
const PREFIX: usize = 8;
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
            prefix[0] %= 13;
            if let Some(operation) = body.first_mut().filter(|_| prefix[0] == 0) {
                *operation %= 5;
            }
        }
        let is_frame = verbs::is_frame(&bytes);
        // What each kind has at least.
        let least = match bytes.first() {
            Some(0) => PREFIX + 4,
            Some(1) => PREFIX + 20,
            Some(2 | 4) => PREFIX + 4,
            Some(3) => PREFIX + 8,
            Some(5 | 6 | 10) => PREFIX,
            Some(7) => PREFIX + 1,
            Some(8) => PREFIX + 12,
            Some(9) => PREFIX + 20,
            Some(11) => PREFIX + 20,
            Some(12) => PREFIX + 4,
            _ => usize::MAX,
        };
        assert!(!is_frame || bytes.len() >= least, "{bytes:02x?}");
        is_frame
    })
}
