//! The launcher for several hosts: starts an agent on each by ssh, serves PMI-1 to the ranks through
//! them, and ends all when one fails.
//!
//! ```text
//!   ssh a exec portolan agent ──▶ agent ──▶ rank 0, rank 1        on host a
//!   ssh b exec portolan agent ──▶ agent ──▶ rank 2, rank 3        on host b
//!        ▲ output of ranks           │ lines, ends (link, over TCP)
//!        │                           ▼
//!   terminal                    remote (poll) ──▶ job ──▶ pmi_server, policy: as for one host
//! ```
//!
//! Lives are tied: an agent ends its ranks when the connection ends, which the launcher's death ends too;
//! the launcher ends the job when ssh or the connection to a host ends before that host's ranks.

pub(crate) mod agent;
mod door;
mod environment;
mod job;
mod link;
pub(crate) mod list;
mod remote;

use host::secret::Secret;
use std::io;

use list::Place;
pub(crate) use remote::launch;

/// Where the ranks run, and how they are reached.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    pub(crate) places: Vec<Place>,
    /// The command in front of a host's name.
    pub(crate) ssh: Vec<String>,
    /// The path of `portolan` on the hosts.
    pub(crate) remote: String,
    /// Where agents can reach this process, if not where ssh comes from.
    pub(crate) address: Option<String>,
}

/// A secret that nobody guesses.
fn token() -> io::Result<String> {
    Ok(Secret::new()?.to_hex())
}

/// Whether `said` is the secret, in a time that does not tell how much of it is right.
fn is_token(said: &str, token: &str) -> bool {
    let differ = |(a, b): (u8, u8)| usize::from(a ^ b);
    let difference: usize = said.bytes().zip(token.bytes()).map(differ).sum();
    said.len() == token.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = token().unwrap();
        assert_eq!(token.len(), 32);
        assert!(is_token(&token, &token));
        for wrong in ["", &token[1..], &format!("{token}0"), &"0".repeat(32)] {
            assert!(!is_token(wrong, &token), "{wrong}");
        }
    }
}
