//! One rank's part of the grid: cells, ghosts, stencil.

use super::file::{FileError, GridFile};
use super::{GHOST, VARIABLES};
use crate::sum::mix;

/// Cells along x, y, z.
pub type Dims = [usize; 3];

/// The grid cannot be divided so that every block is as wide as its ghosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "grid {x}x{y}x{z} is too small for {ranks} ranks: each block needs {GHOST} cells along each axis",
    x = .dims[0], y = .dims[1], z = .dims[2]
)]
pub struct TooSmall {
    dims: Dims,
    ranks: u32,
}

/// A range of cells along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Part `index` of `parts` of `cells`; parts differ by at most one cell.
fn extent(cells: usize, parts: usize, index: usize) -> Extent {
    let start = cells * index / parts;
    Extent {
        start,
        len: cells * (index + 1) / parts - start,
    }
}

/// Blocks along each axis for `ranks`: of all ways, the one with the least face area to exchange.
pub fn decompose(dims: Dims, ranks: u32) -> Result<Dims, TooSmall> {
    let n = ranks as usize;
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let mut best: Option<(usize, Dims)> = None;
    for px in divisors(n) {
        for py in divisors(n / px) {
            let parts = [px, py, n / px / py];
            if (0..3).any(|a| dims[a] / parts[a] < GHOST) {
                continue;
            }
            let len = |a: usize| dims[a].div_ceil(parts[a]);
            let area = len(0) * len(1) + len(1) * len(2) + len(0) * len(2);
            if best.is_none_or(|(least, _)| area < least) {
                best = Some((area, parts));
            }
        }
    }
    best.map(|(_, parts)| parts).ok_or(TooSmall { dims, ranks })
}

/// Weights of the eighth-order second derivative for the cell and its neighbours 1 to 4 away.
const WEIGHTS: [f64; 5] = [
    -205.0 / 72.0,
    8.0 / 5.0,
    -1.0 / 5.0,
    8.0 / 315.0,
    -1.0 / 560.0,
];
/// Diffusion numbers of the variables; the scheme is stable up to 0.1.
const DIFFUSION: [f64; VARIABLES] = [0.01, 0.02, 0.03, 0.04, 0.05];

/// One rank's cells, surrounded by ghosts.
#[derive(Clone, Debug)]
pub struct Block {
    grid: Dims,
    parts: Dims,
    /// Which block along each axis.
    place: Dims,
    extents: [Extent; 3],
    /// Cells with ghosts along each axis.
    outer: Dims,
    cells: Vec<f64>,
    next: Vec<f64>,
}

impl Block {
    /// The block of `rank` in a grid divided into `parts`, all zero.
    pub fn new(grid: Dims, parts: Dims, rank: usize) -> Self {
        let place = [
            rank % parts[0],
            rank / parts[0] % parts[1],
            rank / parts[0] / parts[1] % parts[2],
        ];
        let extents = [0, 1, 2].map(|a| extent(grid[a], parts[a], place[a]));
        let outer = extents.map(|e| e.len + 2 * GHOST);
        let cells = vec![0.0; VARIABLES * outer.iter().product::<usize>()];
        Self {
            grid,
            parts,
            place,
            extents,
            outer,
            next: cells.clone(),
            cells,
        }
    }

    /// The rank next to this block through face 0 (below in x), 1 (above), 2 and 3 (y), 4 and 5 (z).
    pub fn neighbour(&self, face: usize) -> usize {
        let axis = face / 2;
        let mut place = self.place;
        let n = self.parts[axis];
        place[axis] = (place[axis] + if face.is_multiple_of(2) { n - 1 } else { 1 }) % n;
        (place[2] * self.parts[1] + place[1]) * self.parts[0] + place[0]
    }

    /// Reads the block's cells.
    pub fn load(&mut self, file: &GridFile) -> Result<(), FileError> {
        let (outer, cells) = (self.outer, &mut self.cells);
        file.read(&self.extents, |v, y, z, row| {
            let at = index(outer, v, [GHOST, y + GHOST, z + GHOST]);
            cells[at..at + row.len()].copy_from_slice(row);
        })
    }

    /// Values in a face.
    pub fn face_len(&self, face: usize) -> usize {
        let mut len = VARIABLES * GHOST;
        for axis in (0..3).filter(|a| *a != face / 2) {
            len *= self.extents[axis].len;
        }
        len
    }

    /// The largest face of any block.
    pub fn largest_face(&self) -> usize {
        let len = |a: usize| self.grid[a].div_ceil(self.parts[a]);
        VARIABLES * GHOST * (len(0) * len(1)).max(len(1) * len(2)).max(len(0) * len(2))
    }

    /// Ranges, with ghosts counted, of a face: its own cells or the ghosts beyond it.
    fn face_ranges(&self, face: usize, ghost: bool) -> [(usize, usize); 3] {
        let axis = face / 2;
        let mut ranges = [0, 1, 2].map(|a| (GHOST, GHOST + self.extents[a].len));
        let len = self.extents[axis].len;
        let start = match (face.is_multiple_of(2), ghost) {
            (true, true) => 0,
            (true, false) => GHOST,
            (false, false) => len,
            (false, true) => GHOST + len,
        };
        ranges[axis] = (start, start + GHOST);
        ranges
    }

    /// The cells of a face, four deep.
    pub fn face(&self, face: usize) -> Vec<f64> {
        let mut out = Vec::with_capacity(self.face_len(face));
        let [(x0, x1), y, z] = self.face_ranges(face, false);
        for v in 0..VARIABLES {
            for k in z.0..z.1 {
                for j in y.0..y.1 {
                    let at = index(self.outer, v, [x0, j, k]);
                    out.extend_from_slice(&self.cells[at..at + x1 - x0]);
                }
            }
        }
        out
    }

    /// Fills the ghosts beyond a face; `from` is the neighbour's opposite face.
    pub fn set_ghost(&mut self, face: usize, from: &[f64]) {
        let [(x0, x1), y, z] = self.face_ranges(face, true);
        let mut rows = from.chunks_exact(x1 - x0);
        for v in 0..VARIABLES {
            for k in z.0..z.1 {
                for j in y.0..y.1 {
                    let at = index(self.outer, v, [x0, j, k]);
                    if let Some(row) = rows.next() {
                        self.cells[at..at + row.len()].copy_from_slice(row);
                    }
                }
            }
        }
    }

    /// One step; all ghosts are filled.
    pub fn step(&mut self) {
        let strides = [1, self.outer[0], self.outer[0] * self.outer[1]];
        let [ex, ey, ez] = self.extents;
        for (v, diffusion) in DIFFUSION.iter().enumerate() {
            for k in 0..ez.len {
                for j in 0..ey.len {
                    let row = index(self.outer, v, [GHOST, j + GHOST, k + GHOST]);
                    for i in row..row + ex.len {
                        let c = &self.cells;
                        let mut sum = 0.0;
                        for s in strides {
                            let mut axis = WEIGHTS[0] * c[i];
                            axis += WEIGHTS[1] * (c[i - s] + c[i + s]);
                            axis += WEIGHTS[2] * (c[i - 2 * s] + c[i + 2 * s]);
                            axis += WEIGHTS[3] * (c[i - 3 * s] + c[i + 3 * s]);
                            axis += WEIGHTS[4] * (c[i - 4 * s] + c[i + 4 * s]);
                            sum += axis;
                        }
                        self.next[i] = c[i] + diffusion * sum;
                    }
                }
            }
        }
        std::mem::swap(&mut self.cells, &mut self.next);
    }

    /// This block's share of the checksum of the grid; shares are added with wrap-around.
    pub fn checksum(&self) -> u64 {
        let [nx, ny, nz] = self.grid;
        let [ex, ey, ez] = self.extents;
        let mut sum = 0u64;
        for v in 0..VARIABLES {
            for k in 0..ez.len {
                for j in 0..ey.len {
                    let row = index(self.outer, v, [GHOST, j + GHOST, k + GHOST]);
                    let cell = ((v * nz + ez.start + k) * ny + ey.start + j) * nx + ex.start;
                    for i in 0..ex.len {
                        sum =
                            sum.wrapping_add(mix((cell + i) as u64, self.cells[row + i].to_bits()));
                    }
                }
            }
        }
        sum
    }
}

fn index(outer: Dims, v: usize, [x, y, z]: Dims) -> usize {
    ((v * outer[2] + z) * outer[1] + y) * outer[0] + x
}
