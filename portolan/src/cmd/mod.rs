//! One file for each subcommand: its options and what it does with them.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod info;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod seastar_sim;
