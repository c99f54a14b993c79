//! Measurements: what they are, how they are reported, and the bodies that run in ranks.
//!
//! ```text
//!   name ── which ──▶ portals, tags, am, mpi, random (bodies, in ranks) ──▶ samples ──▶ record ──▶ table, plot, JSON lines
//!                                                                        ▲
//!                                        published, bounds (of the model) ───┘
//! ```

mod am;
mod bounds;
mod error;
mod mpi;
mod name;
mod origin;
mod plot;
mod portals;
mod published;
mod random;
mod rank;
mod record;
mod samples;
pub(crate) mod sensitivity;
mod sizes;
mod table;
mod tags;
mod threads;
mod which;

pub(crate) use bounds::Model;
pub(crate) use error::BenchError;
pub(crate) use name::{Axis, Name, Unit};
pub(crate) use origin::Origin;
pub(crate) use plot::{Frame, draw_curves, draw_swept, write as write_plots};
pub(crate) use portals::Software;
pub(crate) use published::Curve;
pub(crate) use random::{Numbers, Pinning};
pub(crate) use rank::{Above, Rank, measure_on};
pub(crate) use record::{Record, Setting, read as read_records, write as write_records};
pub(crate) use sizes::{parse as parse_size, show as show_size};
pub(crate) use table::{swept as swept_table, table};
pub(crate) use which::Which;
