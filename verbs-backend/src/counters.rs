//! The adapter's counters, from the kernel's files: the way to see that traffic really crossed the device.
//!
//! The kernel answers from its last reading of the adapter if that is younger than the port's `lifespan`, 10 ms
//! unless changed: a count read right after the traffic may lack some of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

/// All hardware counters of a port, by name. Which there are depends on the driver; rxe has `sent_pkts` and
/// `rcvd_pkts` among others.
///
/// # Errors
///
/// The device or port does not exist, or its driver keeps no counters.
pub fn all(device: &str, port: u8) -> io::Result<BTreeMap<String, u64>> {
    let mut counters = BTreeMap::new();
    for entry in fs::read_dir(folder(device, port)?)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A setting, not a counter.
        if name == "lifespan" {
            continue;
        }
        if let Ok(Ok(value)) = fs::read_to_string(entry.path()).map(|text| text.trim().parse()) {
            counters.insert(name, value);
        }
    }
    Ok(counters)
}

/// One hardware counter of a port.
///
/// # Errors
///
/// The device, the port or the counter does not exist.
pub fn read(device: &str, port: u8, name: &str) -> io::Result<u64> {
    plain(name)?;
    let text = fs::read_to_string(folder(device, port)?.join(name))?;
    text.trim().parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("counter {name} is not a number"),
        )
    })
}

/// Packets that the port has sent since the device was made (rxe).
///
/// # Errors
///
/// Those of [`read`].
pub fn sent_packets(device: &str, port: u8) -> io::Result<u64> {
    read(device, port, "sent_pkts")
}

fn folder(device: &str, port: u8) -> io::Result<PathBuf> {
    plain(device)?;
    Ok(PathBuf::from(format!(
        "/sys/class/infiniband/{device}/ports/{port}/hw_counters"
    )))
}

/// Refuses names that would lead out of the folder.
fn plain(name: &str) -> io::Result<()> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a name"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_folder() {
        for name in ["", "..", "../x", "a/b"] {
            assert_eq!(
                read("rxe0", 1, name).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            assert_eq!(
                all(name, 1).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
        assert_eq!(
            all("no-such-device", 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
