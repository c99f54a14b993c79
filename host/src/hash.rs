//! A hash that is the same in every build, for numbers that processes compare.

/// FNV-1a of 64 bits. It keeps no secret: whoever chooses the bytes chooses the number.
///
/// ```
/// assert_eq!(host::hash::fnv1a(b""), 0xcbf2_9ce4_8422_2325);
/// assert_eq!(host::hash::fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
/// ```
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
