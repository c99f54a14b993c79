//! The scenarios of `docs/src/scenarios.md` that concern the state machine alone.

mod access;
mod events;
mod export;
mod get;
mod inplace;
mod lifetime;
mod matching;
mod put;
mod threshold;
mod update;
mod world;
mod written;
