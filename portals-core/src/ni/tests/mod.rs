//! What no fabric shows on demand of the scenarios of `docs/src/scenarios.md`; the conformance suite (`tests/src/conformance`) plays
//! the others.

mod access;
mod events;
mod export;
mod get;
mod inplace;
mod lifetime;
mod matching;
mod notified;
mod put;
mod threshold;
mod update;
mod world;
