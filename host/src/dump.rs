// UNSAFETY: advice about mappings of this library, which changes nothing of what is in them.
#![expect(unsafe_code, reason = "advises the kernel about mappings")]
//! What of this library's memory is part of core dumps: segments and rings are not, because those of all ranks of the machine are mapped
//! in each of them, and a crash would write all of it.

use rustix::mm::{Advice, madvise};
use std::ffi::c_void;
use std::sync::OnceLock;

/// Set to 1, dumps have all memory.
const VARIABLE: &str = "PORTOLAN_DUMP_SEGMENTS";

/// Leaves a mapping out of core dumps, unless they are to have it.
///
/// # Safety
/// `len` bytes at `base` are a mapping of the caller's own.
pub unsafe fn leave_out(base: *mut c_void, len: usize) {
    static WHOLE: OnceLock<bool> = OnceLock::new();
    let whole = *WHOLE.get_or_init(|| is_whole(std::env::var(VARIABLE).ok().as_deref()));
    if !whole {
        // SAFETY: a mapping, by the condition of this function; no byte of it changes. Where the kernel cannot, dumps are larger.
        let _ = unsafe { madvise(base, len, Advice::LinuxDontDump) };
    }
}

fn is_whole(value: Option<&str>) -> bool {
    let value = value.unwrap_or_default().trim();
    ["1", "y", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_whole_where_that_is_said() {
        for value in [Some("1"), Some(" yes"), Some("TRUE"), Some("y")] {
            assert!(is_whole(value), "{value:?}");
        }
        for value in [None, Some(""), Some("0"), Some("no"), Some("2")] {
            assert!(!is_whole(value), "{value:?}");
        }
    }
}
