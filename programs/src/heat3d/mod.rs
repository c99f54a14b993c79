//! Explicit diffusion of five variables on a periodic 3-D grid.
//!
//! The stencil reaches four cells along each axis, so a block needs ghost zones four cells wide on
//! its six faces, and no edges or corners. Each step sends six faces and receives six:
//!
//! ```text
//!         ┌────┬────────────────┬────┐
//!  from ─►│ghst│ face ···· face │ghst│◄─ from        face: 4 cells deep, 5 variables
//!  below  └────┴──│──────────│──┴────┘  above
//!        to below ◄┘          └► to above
//! ```
//!
//! A cell's new value is computed by the same operations in the same order whatever block it is in,
//! so the final bits do not depend on the ranks; the checksum is a wrapping sum over all of them.

mod block;
mod file;
mod parallel;

#[cfg(test)]
mod tests;

pub use block::{Block, Dims, TooSmall, decompose};
pub use file::{FileError, GridFile, generate};
pub use parallel::{Exchange, run};

use std::fmt;

/// Variables of a cell.
pub const VARIABLES: usize = 5;
/// Cells the stencil reaches, and the ghost zones are wide.
pub const GHOST: usize = 4;

/// What a run found; its text is the line that the program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Cells along each axis.
    pub dims: Dims,
    /// Steps made.
    pub steps: u32,
    /// Over all bits of the final grid.
    pub checksum: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.dims;
        write!(
            f,
            "heat3d: grid {x}x{y}x{z} steps {} checksum {:#018x}",
            self.steps, self.checksum
        )
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeatError {
    /// The initial state.
    #[error(transparent)]
    File(#[from] FileError),
    /// The grid does not divide.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// The conduit.
    #[error(transparent)]
    Job(#[from] crate::job::Failed),
}

impl From<conduit::RegionError> for HeatError {
    fn from(e: conduit::RegionError) -> Self {
        Self::Job(e.into())
    }
}

/// One rank and no conduit.
pub fn serial(file: &GridFile, steps: u32) -> Result<Report, HeatError> {
    let dims = file.dims();
    let parts = decompose(dims, 1)?;
    let mut block = Block::new(dims, parts, 0);
    block.load(file)?;
    for _ in 0..steps {
        for face in 0..6 {
            let cells = block.face(face);
            block.set_ghost(face ^ 1, &cells);
        }
        block.step();
    }
    Ok(Report {
        dims,
        steps,
        checksum: block.checksum(),
    })
}
