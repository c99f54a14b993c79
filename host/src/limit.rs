// UNSAFETY: getrlimit writes through a pointer.
#![expect(
    unsafe_code,
    reason = "asks for a limit by getrlimit, which takes a pointer; the safe calls for it cannot fail, and the system's can"
)]
//! Limits of this process, as far as the system tells them: a filter of system calls may refuse that.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;

/// What a process may have of `resource`.
///
/// # Errors
/// The system does not say, and there may be a limit or none.
pub fn limit(resource: Resource) -> io::Result<Rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // The numbers of rustix are the kernel's, as are the C library's.
    let number = resource as u32;
    // SAFETY: the structure is whole, and may be written while the call lasts.
    if unsafe { libc::getrlimit(number as _, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let known = |value| (value != libc::RLIM_INFINITY).then_some(value);
    Ok(Rlimit {
        current: known(limit.rlim_cur),
        maximum: known(limit.rlim_max),
    })
}

/// Raises the limit of descriptors to the most that this process may ask for; the limit that it had before, to be put back.
///
/// # Errors
/// The limit is not known, or stays as it is.
pub fn raise_descriptors() -> io::Result<Rlimit> {
    let before = limit(Resource::Nofile)?;
    if before.current != before.maximum {
        let raised = Rlimit {
            current: before.maximum,
            ..before
        };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "what it is compared with")]
    #[test]
    fn limits_are_those_of_the_system() {
        use rustix::process::getrlimit;
        for resource in [
            Resource::Nofile,
            Resource::Fsize,
            Resource::As,
            Resource::Data,
            Resource::Memlock,
        ] {
            let (ours, theirs) = (limit(resource).unwrap(), getrlimit(resource));
            assert_eq!(
                (ours.current, ours.maximum),
                (theirs.current, theirs.maximum),
                "{resource:?}"
            );
        }
    }
}
