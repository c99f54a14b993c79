//! Who is at the other end of a socket, and whether it still lives.
//!
//! A process id is a number that the next process may get, and it means something in one PID namespace only. So nothing here
//! gives a number to act upon: a process is held by a descriptor (a pidfd, its memory, its socket), and who it is is proven
//! by what the kernel says of its socket ([`peer::Credentials`]) and by a [`secret::Secret`] that only the ranks of one job have.

#![allow(dead_code, reason = "what the fabrics share; each uses a part")]

pub(crate) mod life;
pub(crate) mod peer;
pub(crate) mod secret;
