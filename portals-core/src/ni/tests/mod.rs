//! The scenarios of facts `portals33.md` section 7 that concern the state machine alone.

mod access;
mod events;
mod get;
mod iovec;
mod lifetime;
mod matching;
mod patterns;
mod put;
mod threshold;
mod update;
mod world;
