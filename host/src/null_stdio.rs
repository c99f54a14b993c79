//! Standard streams of a process that reads nothing and that nobody listens to, where there is no `/dev/null` either: the barest root
//! file systems have no `/dev`.

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
/// let output = command.stdin(host::null_stdio::input()?).output()?;
/// assert!(output.stdout.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn input() -> io::Result<Stdio> {
    input_from(NULL)
}

fn input_from(null: &str) -> io::Result<Stdio> {
    match OpenOptions::new().read(true).open(null) {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(io::pipe()?.0.into()),
    }
}

/// Output that nobody sees: to `/dev/null`, or, where there is none, where this process's goes.
#[must_use]
pub fn output() -> Stdio {
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
            let output = cat.stdin(input_from(null).unwrap()).output().unwrap();
            assert!(output.status.success() && output.stdout.is_empty());
        }
    }
}
