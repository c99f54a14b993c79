//! Streams of processes that have nothing to read, and to whom nobody listens, also where there is no `/dev`, as in the barest
//! of root file systems.

use std::fs::OpenOptions;
use std::io;
use std::process::Stdio;

/// `/dev/null`.
const NULL: &str = "/dev/null";

/// Input that is at its end: `/dev/null`, or a pipe that nobody writes to.
///
/// # Errors
/// The process has no descriptor left.
///
/// ```
/// let mut command = std::process::Command::new("cat");
/// let output = command.stdin(host::nothing::to_read()?).output()?;
/// assert!(output.stdout.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn to_read() -> io::Result<Stdio> {
    input(NULL)
}

fn input(null: &str) -> io::Result<Stdio> {
    match OpenOptions::new().read(true).open(null) {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(io::pipe()?.0.into()),
    }
}

/// Output that nobody sees: to `/dev/null`, or, where there is none, where this process's goes.
#[must_use]
pub fn to_write() -> Stdio {
    let null = OpenOptions::new().write(true).open(NULL);
    null.map_or_else(|_| Stdio::inherit(), Stdio::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn input_is_at_its_end_with_and_without_a_file_for_it() {
        for null in [NULL, "/no/such/null"] {
            let mut cat = Command::new("cat");
            let output = cat.stdin(input(null).unwrap()).output().unwrap();
            assert!(output.status.success() && output.stdout.is_empty());
        }
    }
}
