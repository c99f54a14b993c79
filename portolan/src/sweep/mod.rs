//! Results over a grid of machine parameters: the points, and their results as a table, CSV, JSON and a plot.
//!
//! ```text
//!   --set NAME=A,B,.. ── grid ──▶ points ── bench, a job for each ──▶ Row ──▶ rows (JSON, CSV), bench/table, bench/plot
//! ```

mod grid;
mod rows;

pub(crate) use grid::{Grid, Point, Wished};
pub(crate) use rows::{Row, read as read_rows, write_csv, write_json};
