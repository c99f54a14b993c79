//! The initial state on disk.
//!
//! ```text
//!  0 "HEAT3D\0\1"   8 variables u64   16 nx u64   24 ny u64   32 nz u64   40 cells f64 …
//! ```
//! All little-endian; cells run along x fastest, then y, z, variable.

use super::block::{Dims, Extent};
use super::{GHOST, VARIABLES};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"HEAT3D\0\x01";
const HEADER: u64 = 40;

/// Why a file is not an initial state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused it.
    #[error("{path}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// There is none to read.
    #[error("{path}: No such file or directory; `heat3d --generate 32 32 32 7 {path}` makes a grid", path = .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path}: not a heat3d grid (wrong magic)", path = .path.display())]
    Magic {
        /// The file.
        path: PathBuf,
    },
    /// Its header makes no sense here.
    #[error("{path}: a grid of {dims:?} cells with {variables} variables is not supported", path = .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Cells along each axis.
        dims: [u64; 3],
        /// Variables of a cell.
        variables: u64,
    },
    /// It ends early, or goes on.
    #[error("{path}: {actual} bytes long, a grid of this shape has {expected}", path = .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        actual: u64,
        /// Bytes it should have.
        expected: u64,
    },
}

/// A checked file.
#[derive(Clone, Debug)]
pub struct GridFile {
    path: PathBuf,
    dims: Dims,
}

/// Cells of a grid that fits in memory and in a file offset.
fn cells(dims: [u64; 3]) -> Option<u64> {
    let cells = dims
        .iter()
        .try_fold(VARIABLES as u64, |n, d| n.checked_mul(*d))?;
    (cells > 0 && cells < 1 << 48).then_some(cells)
}

impl GridFile {
    /// Checks header and length.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let io = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => FileError::Missing {
                path: path.to_owned(),
            },
            _ => io(error),
        })?;
        let actual = file.metadata().map_err(io)?.len();
        let mut magic = [0; 8];
        let expected = HEADER;
        let short = || FileError::Length {
            path: path.to_owned(),
            actual,
            expected,
        };
        if actual >= 8 {
            file.read_exact(&mut magic).map_err(io)?;
            if magic != MAGIC {
                return Err(FileError::Magic {
                    path: path.to_owned(),
                });
            }
        }
        if actual < HEADER {
            return Err(short());
        }
        let mut numbers = [0u64; 4];
        for n in &mut numbers {
            let mut b = [0; 8];
            file.read_exact(&mut b).map_err(io)?;
            *n = u64::from_le_bytes(b);
        }
        let [variables, x, y, z] = numbers;
        let dims = [x, y, z];
        let shape = || FileError::Shape {
            path: path.to_owned(),
            dims,
            variables,
        };
        let cells = cells(dims)
            .filter(|_| variables == VARIABLES as u64)
            .ok_or_else(shape)?;
        let expected = HEADER + 8 * cells;
        if actual != expected {
            return Err(FileError::Length {
                path: path.to_owned(),
                actual,
                expected,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            dims: dims.map(|d| d as usize),
        })
    }

    /// Cells along each axis.
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// Calls `row` with each row of cells along x of the part `extents`: variable, and y and z
    /// within the part.
    pub(super) fn read(
        &self,
        extents: &[Extent; 3],
        mut row: impl FnMut(usize, usize, usize, &[f64]),
    ) -> Result<(), FileError> {
        let io = |source| FileError::Io {
            path: self.path.clone(),
            source,
        };
        let mut file = File::open(&self.path).map_err(io)?;
        let [nx, ny, nz] = self.dims;
        let [ex, ey, ez] = *extents;
        let mut bytes = vec![0; 8 * ex.len];
        let mut values = vec![0.0; ex.len];
        for v in 0..VARIABLES {
            for z in 0..ez.len {
                for y in 0..ey.len {
                    let cell = ((v * nz + ez.start + z) * ny + ey.start + y) * nx + ex.start;
                    file.seek(SeekFrom::Start(HEADER + 8 * cell as u64))
                        .map_err(io)?;
                    file.read_exact(&mut bytes).map_err(io)?;
                    for (value, b) in values.iter_mut().zip(bytes.as_chunks::<8>().0) {
                        *value = f64::from_le_bytes(*b);
                    }
                    row(v, y, z, &values);
                }
            }
        }
        Ok(())
    }
}

/// Writes a grid of values from 0 to 1 that depend on the seed alone.
pub fn generate(dims: Dims, seed: u64, path: &Path) -> Result<(), FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let wide = dims.map(|d| d as u64);
    let count = cells(wide)
        .filter(|_| dims.iter().all(|d| *d >= GHOST))
        .ok_or_else(|| FileError::Shape {
            path: path.to_owned(),
            dims: wide,
            variables: VARIABLES as u64,
        })?;
    let mut out = BufWriter::new(File::create(path).map_err(io)?);
    out.write_all(&MAGIC).map_err(io)?;
    for n in [VARIABLES as u64, wide[0], wide[1], wide[2]] {
        out.write_all(&n.to_le_bytes()).map_err(io)?;
    }
    for i in 0..count {
        let bits = crate::sum::mix(i, seed) >> 11;
        let value = bits as f64 / (1u64 << 53) as f64;
        out.write_all(&value.to_le_bytes()).map_err(io)?;
    }
    out.flush().map_err(io)
}
