//! Which machine a rank runs on.

use std::fs;

/// Characters that make a host id unreadable in a log line become `-`.
fn clean(text: &str) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_ascii_graphic() { c } else { '-' })
        .collect()
}

/// An id equal for two ranks exactly when they run on one kernel with one set of shared memory:
/// `name/boot id/ipc namespace`.
///
/// The host name alone is not enough (two containers or guests may share one), nor is the boot id
/// (containers of one kernel need not see each other's shared memory). A part that cannot be read is
/// left empty.
pub fn id() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let ipc = fs::read_link("/proc/self/ns/ipc").unwrap_or_default();
    clean(&format!(
        "{}/{}/{}",
        name.trim(),
        boot.trim(),
        ipc.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_one_stable_word() {
        let first = id();
        assert_eq!(first, id());
        assert!(
            first.len() > 2 && !first.contains(char::is_whitespace),
            "{first:?}"
        );
    }
}
