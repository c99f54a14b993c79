//! Puts and gets: what is decided of them without the state of a rank.

pub(crate) mod segments;
