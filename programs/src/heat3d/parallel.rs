//! The same steps on many ranks.
//!
//! Each rank's segment, or memory of its heap, has, for each of the six faces, room for one to send and for two to receive:
//! a neighbour can be one step ahead, never two, because its second step needs a face of ours.
//!
//! ```text
//!  send 0 … send 5 │ even steps: receive 0 … 5 │ odd steps: receive 0 … 5
//! ```

use super::block::{Block, decompose};
use super::{GridFile, HeatError, Report};
use crate::job::Failed;
use crate::memory::{Addresses, Memory};
use crate::sum::Reduction;
use conduit::{BarrierName, Conduit, HandlerEntry, Payload, Region};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// How faces travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A Long for each face; its handler counts.
    Am,
    /// A put for each face, then a barrier.
    Put,
}

const FACE: u8 = 128;
const SUM: u8 = 129;
const ADDRESS: u8 = 130;

/// Collective: reads `file`, makes `steps` steps; rank 0 gets the report. The file is looked at by
/// every rank after the job has started, so that all end together if it is bad.
pub fn run(
    conduit: &Conduit,
    file: impl FnOnce() -> Result<GridFile, HeatError>,
    steps: u32,
    exchange: Exchange,
    memory: Memory,
) -> Result<Option<Report>, HeatError> {
    let prepared = prepare(conduit, file);
    if conduit.mynode() == 0 && prepared.is_err() {
        return prepared.map(|_| None);
    }
    // A rank whose view of the file differs from rank 0's must not stop rank 0's error; it fails at
    // the barrier below, once rank 0 is known to be well.
    let len = prepared
        .as_ref()
        .map_or(0, |(_, b)| 18 * 8 * b.largest_face());
    let arrived = Rc::new([const { Cell::new(0u32) }; 2]);
    let counts = arrived.clone();
    let face_handler = HandlerEntry::new(FACE, move |_, payload, args| {
        if let (Payload::Long { .. }, Some(step)) = (payload, args.first()) {
            let count = &counts[(step & 1) as usize];
            count.set(count.get() + 1);
        }
    });
    let (reduction, sum_handler) = Reduction::new(SUM);
    let (addresses, address_handler) = Addresses::new(conduit, ADDRESS);
    let handlers = vec![face_handler, sum_handler, address_handler];
    match memory {
        Memory::Segment => conduit.attach(handlers, len),
        Memory::Everything => conduit.attach_open(handlers),
    }
    .map_err(Failed::from)?;
    conduit
        .barrier(BarrierName::Anonymous)
        .map_err(Failed::from)?;
    let (file, mut block) = prepared?;
    block.load(&file)?;
    conduit
        .barrier(BarrierName::Anonymous)
        .map_err(Failed::from)?;

    let memory = match (memory, conduit.local_segment()) {
        (Memory::Segment, Some(region)) => Slots::Segment(region),
        _ => {
            let words: Arc<[AtomicU64]> = (0..len / 8).map(|_| AtomicU64::new(0)).collect();
            let all = addresses.tell(conduit, &words)?;
            Slots::Heap { words, all }
        }
    };
    let faces = Faces {
        conduit,
        memory,
        slot: 8 * block.largest_face(),
    };
    for step in 0..steps {
        let parity = (step & 1) as usize;
        for face in 0..6 {
            faces.send(&block, face, step, exchange)?;
        }
        match exchange {
            Exchange::Am => {
                conduit.block_until(|| arrived[parity].get() == 6);
                arrived[parity].set(0);
            }
            Exchange::Put => {
                conduit.wait_nbi_puts();
                conduit
                    .barrier(BarrierName::Named(step.cast_signed()))
                    .map_err(Failed::from)?;
            }
        }
        for face in 0..6 {
            let cells = faces.received(&block, face, parity)?;
            block.set_ghost(face, &cells);
        }
        block.step();
    }
    let checksum = reduction.run(conduit, block.checksum())?;
    Ok(checksum.map(|checksum| Report {
        dims: file.dims(),
        steps,
        checksum,
    }))
}

fn prepare(
    conduit: &Conduit,
    file: impl FnOnce() -> Result<GridFile, HeatError>,
) -> Result<(GridFile, Block), HeatError> {
    let file = file()?;
    let dims = file.dims();
    let parts = decompose(dims, conduit.nodes())?;
    Ok((file, Block::new(dims, parts, conduit.mynode() as usize)))
}

/// Where faces travel from and to.
enum Slots {
    Segment(Region),
    /// And where it is of every rank.
    Heap {
        words: Arc<[AtomicU64]>,
        all: Vec<u64>,
    },
}

/// The exchange buffers.
struct Faces<'c> {
    conduit: &'c Conduit,
    memory: Slots,
    /// Bytes of one buffer; the same on every rank.
    slot: usize,
}

impl Faces<'_> {
    fn receive_slot(&self, face: usize, parity: usize) -> usize {
        (6 + 6 * parity + face) * self.slot
    }

    fn send(
        &self,
        block: &Block,
        face: usize,
        step: u32,
        exchange: Exchange,
    ) -> Result<(), HeatError> {
        let cells = block.face(face);
        let (at, len) = (face * self.slot, 8 * cells.len());
        let to = block.neighbour(face) as u32;
        // What leaves through one face arrives through the opposite one.
        let there = self.receive_slot(face ^ 1, (step & 1) as usize) as u64;
        let memory = match &self.memory {
            Slots::Segment(memory) => memory,
            Slots::Heap { all, .. } => {
                let dest = all.get(to as usize).map_or(0, |a| a + there);
                return self.send_from_heap(to, dest, cells.as_bytes(), step, exchange);
            }
        };
        memory.write(at, cells.as_bytes())?;
        let dest = self.conduit.segment(to).addr + there;
        match exchange {
            Exchange::Am => self
                .conduit
                .am_request_long_from_segment(to, FACE, at, len, dest, &[step.cast_signed()])
                .map_err(Failed::from)?,
            Exchange::Put => {
                self.conduit
                    .put_from_segment_nbi(to, dest, at, len)
                    .map_err(Failed::from)?;
            }
        }
        Ok(())
    }

    fn send_from_heap(
        &self,
        to: u32,
        dest: u64,
        cells: &[u8],
        step: u32,
        exchange: Exchange,
    ) -> Result<(), HeatError> {
        match exchange {
            Exchange::Am => self
                .conduit
                .am_request_long(to, FACE, cells, dest, &[step.cast_signed()])
                .map_err(Failed::from)?,
            Exchange::Put => self
                .conduit
                .put_nbi(to, dest, cells)
                .map_err(Failed::from)?,
        }
        Ok(())
    }

    fn received(&self, block: &Block, face: usize, parity: usize) -> Result<Vec<f64>, HeatError> {
        let mut cells = vec![0.0; block.face_len(face)];
        let at = self.receive_slot(face, parity);
        match &self.memory {
            Slots::Segment(memory) => memory.read(at, cells.as_mut_bytes())?,
            Slots::Heap { words, .. } => {
                for (cell, word) in cells.iter_mut().zip(words.iter().skip(at / 8)) {
                    *cell = f64::from_bits(word.load(Ordering::Relaxed));
                }
            }
        }
        Ok(cells)
    }
}
