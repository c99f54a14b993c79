//! The game of life on a torus: rows in bands over the ranks, the outer rows of each band sent to the neighbours in every
//! generation as tagged messages.
//!
//! A row travels with the tag of its direction, so two ranks that are each other's neighbour on both sides keep the
//! two apart.

use crate::sum::mix;
use portals_shim::fabric::{self, FabricConfig, FabricError};
use portals_shim::job::{Job, JobError};
use portals_shim::{Region, RegionError};
use std::fmt;
use std::ops::Range;
use tagged::{CallError, Comm, CommError, OpenError, Options, Slice, TagError, World};

/// Towards lower rows, and towards higher ones.
const UP: i32 = 0;
const DOWN: i32 = 1;
const SUM: i32 = 2;

/// What to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Rows of the field.
    pub rows: usize,
    /// Cells of a row.
    pub columns: usize,
    /// Generations.
    pub generations: u32,
}

/// What does not depend on the ranks; its text is the line that the program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was computed.
    pub params: Params,
    /// Cells that live at the end.
    pub living: u64,
    /// Over the field at the end.
    pub checksum: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Params {
            rows,
            columns,
            generations,
        } = self.params;
        let Self {
            living, checksum, ..
        } = self;
        write!(
            f,
            "life: field {rows}x{columns} generations {generations} living {living} checksum {checksum:#018x}"
        )
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LifeError {
    /// The job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Tag matching could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A message.
    #[error(transparent)]
    Message(#[from] TagError),
    /// A barrier.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// More ranks than rows.
    #[error("{rows} rows for {ranks} ranks")]
    Rows {
        /// Rows of the field.
        rows: usize,
        /// Ranks.
        ranks: u32,
    },
}

impl From<CallError> for LifeError {
    fn from(error: CallError) -> Self {
        Self::Message(error.into())
    }
}

/// A third of the cells live, the same for every number of ranks.
fn first(params: Params, row: usize, column: usize) -> u8 {
    u8::from(mix((row * params.columns + column) as u64, 1).is_multiple_of(3))
}

/// A band of rows, with the row before and the one after it.
struct Band {
    params: Params,
    rows: Range<usize>,
    now: Vec<u8>,
    next: Vec<u8>,
}

impl Band {
    fn new(params: Params, rows: Range<usize>) -> Self {
        let columns = params.columns;
        let mut now = vec![0; (rows.len() + 2) * columns];
        for (at, row) in (1..).zip(rows.clone()) {
            for column in 0..columns {
                now[at * columns + column] = first(params, row, column);
            }
        }
        Self {
            params,
            rows,
            next: now.clone(),
            now,
        }
    }

    /// A row of the band, from 1; 0 and one beyond are the neighbours'.
    fn row(&mut self, at: usize) -> &mut [u8] {
        let columns = self.params.columns;
        &mut self.now[at * columns..(at + 1) * columns]
    }

    fn step(&mut self) {
        let columns = self.params.columns;
        for at in 1..=self.rows.len() {
            for column in 0..columns {
                let (west, east) = ((column + columns - 1) % columns, (column + 1) % columns);
                let three = |row: usize| [west, column, east].map(|c| self.now[row * columns + c]);
                let all: u8 = [at - 1, at, at + 1].into_iter().flat_map(three).sum();
                let lives = self.now[at * columns + column];
                self.next[at * columns + column] = u8::from(all == 3 || (all == 4 && lives == 1));
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    /// Living cells and the checksum of the band.
    fn sums(&self) -> (u64, u64) {
        let columns = self.params.columns;
        let cells = &self.now[columns..(self.rows.len() + 1) * columns];
        let before = self.rows.start * columns;
        let each = cells.iter().enumerate();
        each.fold((0, 0), |(living, sum), (at, cell)| {
            let mixed = mix((before + at) as u64, u64::from(*cell));
            (living + u64::from(*cell), sum.wrapping_add(mixed))
        })
    }
}

/// In this process alone.
pub fn serial(params: Params) -> Report {
    let mut band = Band::new(params, 0..params.rows);
    for _ in 0..params.generations {
        let (low, high) = (band.row(1).to_vec(), band.row(params.rows).to_vec());
        band.row(0).copy_from_slice(&high);
        band.row(params.rows + 1).copy_from_slice(&low);
        band.step();
    }
    let (living, checksum) = band.sums();
    Report {
        params,
        living,
        checksum,
    }
}

/// Plays as one rank of a communicator; rank 0 has the report.
pub fn run(comm: &Comm, params: Params) -> Result<Option<Report>, LifeError> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let (rows, columns) = (params.rows, params.columns);
    if rows < ranks as usize {
        return Err(LifeError::Rows { rows, ranks });
    }
    let from = |rank: u32| rank as usize * rows / ranks as usize;
    let mut band = Band::new(params, from(rank)..from(rank + 1));
    let height = band.rows.len();
    let (above, below) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
    // Rows on their way: out up, out down, in from above, in from below.
    let halo = Region::new(4 * columns)?;
    let part = |n: usize| Slice::new(&halo, n * columns, columns);
    for _ in 0..params.generations {
        let receives = [
            comm.irecv(part(2)?, Some(above), Some(DOWN))?,
            comm.irecv(part(3)?, Some(below), Some(UP))?,
        ];
        halo.write(0, band.row(1))?;
        halo.write(columns, band.row(height))?;
        let sends = [
            comm.isend(part(0)?, above, UP)?,
            comm.isend(part(1)?, below, DOWN)?,
        ];
        for request in receives.into_iter().chain(sends) {
            comm.wait(request)?;
        }
        halo.read(2 * columns, band.row(0))?;
        halo.read(3 * columns, band.row(height + 1))?;
        band.step();
    }
    let (mut living, mut checksum) = band.sums();
    let sums = Region::new(16)?;
    if rank != 0 {
        sums.write(0, &living.to_le_bytes())?;
        sums.write(8, &checksum.to_le_bytes())?;
        comm.send(Slice::new(&sums, 0, 16)?, 0, SUM)?;
        return Ok(None);
    }
    for _ in 1..ranks {
        comm.recv(Slice::new(&sums, 0, 16)?, None, Some(SUM))?;
        let mut word = [0; 8];
        sums.read(0, &mut word)?;
        living += u64::from_le_bytes(word);
        sums.read(8, &mut word)?;
        checksum = checksum.wrapping_add(u64::from_le_bytes(word));
    }
    Ok(Some(Report {
        params,
        living,
        checksum,
    }))
}

/// Joins the job that this process was started in, runs, and leaves it.
pub fn join(params: Params, options: &Options) -> Result<Option<Report>, LifeError> {
    let job = Job::from_env()?;
    let opened = fabric::open(&job, &FabricConfig::from_env()?)?;
    let world = World::open(opened, job.rank(), options, || job.fence())?;
    let comm = world.comm();
    let report = run(&comm, params)?;
    // Nobody leaves while another one waits for it.
    comm.barrier()?;
    world
        .interface()
        .outside(|| job.fence())
        .map_err(CallError::Portals)??;
    world.interface().close().map_err(CallError::Portals)?;
    job.finalize()?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::thread;

    #[test]
    fn any_number_of_ranks_gives_the_field_of_one() {
        let params = Params {
            rows: 13,
            columns: 17,
            generations: 20,
        };
        let alone = serial(params);
        assert!(alone.living > 0);
        for ranks in [1, 2, 3, 5, 13] {
            let opened = fabric::in_process(ranks);
            let reports: Vec<_> = thread::scope(|scope| {
                let ranks = (0..).zip(opened).map(|(rank, opened)| {
                    let none = || Ok::<(), Infallible>(());
                    let world = World::open(opened, rank, &Options::default(), none).unwrap();
                    let comm = world.comm();
                    (world, comm)
                });
                let ranks: Vec<_> = ranks.collect();
                let threads = ranks
                    .into_iter()
                    .map(|(_world, comm)| scope.spawn(move || run(&comm, params).unwrap()));
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            assert_eq!(reports[0], Some(alone), "{ranks} ranks");
        }
    }

    #[test]
    fn more_ranks_than_rows_are_refused() {
        let opened = fabric::in_process(1).remove(0);
        let world =
            World::open(opened, 0, &Options::default(), || Ok::<(), Infallible>(())).unwrap();
        let params = Params {
            rows: 0,
            columns: 4,
            generations: 1,
        };
        let error = run(&world.comm(), params).unwrap_err();
        assert_eq!(error.to_string(), "0 rows for 1 ranks");
    }
}
