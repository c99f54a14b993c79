//! Tagged messages (`tagged`), over the interface of the endpoint.

use portals_shim::Region;
use portals_shim::fabric::Opened;
use portals_shim::job::Job;
use tagged::{Comm, Options, Request, Slice, World};

use super::error::BenchError;
use super::mpi;
use super::name::Name;
use super::portals::Endpoint;
use super::samples::{Measured, Samples, WARM_UP};

/// The tag of what is measured, and of receives that no message matches.
const TAG: i32 = 1;
const OTHER: i32 = 2;
/// Bytes of messages behind posted receives.
const BYTES: u64 = 8;
/// Messages of one window of `tag-bandwidth`.
const WINDOW: u64 = 64;

/// A communicator of all ranks.
#[derive(Debug)]
pub(super) struct Tags {
    comm: Comm,
}

impl Tags {
    /// Opens tag matching beside the endpoint. Collective.
    pub(super) fn open(opened: &Opened, end: &mut Endpoint, job: &Job) -> Result<Self, BenchError> {
        let options = Options {
            requests: 1 << 17,
            ..Options::default()
        };
        let rank =
            u32::try_from(end.rank()).map_err(|_| BenchError::TooLarge(end.rank() as u64))?;
        let world = World::open(opened.clone(), rank, &options, || job.fence())?;
        let comm = world.comm();
        end.barrier()?;
        Ok(Self { comm })
    }

    pub(super) fn measure(
        &self,
        end: &mut Endpoint,
        name: Name,
        point: u64,
        iters: u64,
    ) -> Result<Measured, BenchError> {
        match name {
            Name::TagPosted => self.pingpong(end, BYTES, point, iters),
            Name::TagPingAck => self.until_acked(end, point, 1, iters),
            Name::TagBandwidth => self.until_acked(end, point, WINDOW, iters),
            _ => self.pingpong(end, point, 0, iters),
        }
    }

    /// Measures the conduit over messages; see [`Tags::measure`].
    pub(super) fn as_conduit(
        &self,
        end: &mut Endpoint,
        name: Name,
        point: u64,
        iters: u64,
    ) -> Result<Measured, BenchError> {
        end.barrier()?;
        mpi::measure(&self.comm, end, name, point, iters)
    }

    /// Rows of messages, until an empty one back says that all have come. What an MPI library computes is part of it.
    fn until_acked(
        &self,
        end: &mut Endpoint,
        bytes: u64,
        row: u64,
        iters: u64,
    ) -> Result<Measured, BenchError> {
        let len = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
        let (out, into) = (Region::new(len.max(1))?, Region::new(len.max(1))?);
        let (from, to) = (Slice::new(&out, 0, len)?, Slice::new(&into, 0, len)?);
        let none = Slice::new(&out, 0, 0)?;
        let comm = &self.comm;
        end.barrier()?;
        let mut samples = Samples::new();
        let mut requests = Vec::with_capacity(row as usize);
        for i in 0..WARM_UP + iters {
            let start = end.now();
            match comm.rank() {
                0 => {
                    let ack = comm.irecv(&none, Some(1), Some(OTHER))?;
                    for _ in 0..row {
                        end.before_send()?;
                        requests.push(comm.isend(&from, 1, TAG)?);
                    }
                    comm.wait_all(&mut requests)?;
                    comm.wait(ack)?;
                    end.after_receive()?;
                    if i >= WARM_UP {
                        samples.add(end.since(start));
                    }
                }
                1 => {
                    for _ in 0..row {
                        requests.push(comm.irecv(&to, Some(0), Some(TAG))?);
                    }
                    if end.computes() {
                        for request in requests.drain(..) {
                            comm.wait(request)?;
                            end.after_receive()?;
                        }
                    } else {
                        comm.wait_all(&mut requests)?;
                    }
                    end.before_send()?;
                    comm.send(&none, 0, OTHER)?;
                }
                _ => break,
            }
        }
        end.barrier()?;
        Ok(Measured {
            samples,
            operations: row,
            bytes,
            found: None,
        })
    }

    /// Half of the time that a message there and one back take; `posted` receives of another tag are ahead of the one
    /// that matches.
    fn pingpong(
        &self,
        end: &mut Endpoint,
        bytes: u64,
        posted: u64,
        iters: u64,
    ) -> Result<Measured, BenchError> {
        let len = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
        let (out, into) = (Region::new(len)?, Region::new(len)?);
        out.fill(0, len, 0x5a)?;
        let (from, to) = (Slice::new(&out, 0, len)?, Slice::new(&into, 0, len)?);
        let comm = &self.comm;
        let peer = 1u32.saturating_sub(comm.rank());
        let ahead = if comm.rank() < 2 { posted } else { 0 };
        let ahead =
            (0..ahead).map(|_| comm.irecv(Slice::new(&into, 0, 0)?, Some(peer), Some(OTHER)));
        let ahead: Vec<Request> = ahead.collect::<Result<_, _>>()?;
        end.barrier()?;
        let mut samples = Samples::new();
        for i in 0..WARM_UP + iters {
            match comm.rank() {
                0 => {
                    let start = end.now();
                    let receive = comm.irecv(&to, Some(1), Some(TAG))?;
                    comm.send(&from, 1, TAG)?;
                    comm.wait(receive)?;
                    if i >= WARM_UP {
                        samples.add(end.since(start) / 2);
                    }
                }
                1 => {
                    let receive = comm.irecv(&to, Some(0), Some(TAG))?;
                    comm.wait(receive)?;
                    comm.send(&from, 0, TAG)?;
                }
                _ => break,
            }
        }
        end.barrier()?;
        for request in ahead {
            comm.cancel(&request)?;
            // Its end says that it was cancelled.
            let _ = comm.wait(request);
        }
        if comm.rank() < 2 {
            let mut got = vec![0; len];
            into.read(0, &mut got)?;
            if let Some(at) = got.iter().position(|byte| *byte != 0x5a) {
                return Err(BenchError::Changed {
                    at,
                    len,
                    got: got[at],
                    sent: 0x5a,
                });
            }
        }
        Ok(Measured {
            samples,
            operations: 1,
            bytes,
            found: None,
        })
    }
}
