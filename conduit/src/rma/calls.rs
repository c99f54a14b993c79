//! Puts and gets of slices and of the own segment.

use super::op::{Completion, Rma};
use crate::conduit::Conduit;
use crate::error::RmaError;
use crate::memory::Source;
use crate::ops::Handle;
use crate::trace::Transfer;

impl Conduit {
    /// Puts `data` at address `dest` of the segment of `node`; returns when it is there.
    #[track_caller]
    pub fn put(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        self.trace_put("PUT", node, dest, data);
        self.put_slice(node, dest, data, Completion::Blocking)
            .map(drop)
    }

    /// Starts a put; `data` is free again on return. Where memory is pinned by units, data longer than a chunk (2048 bytes) waits
    /// for a unit that this rank does not hold; shorter data waits for no peer.
    #[track_caller]
    pub fn put_nb(&self, node: u32, dest: u64, data: &[u8]) -> Result<Handle, RmaError> {
        self.trace_put("PUT_NB", node, dest, data);
        self.put_slice(node, dest, data, Completion::Explicit)
    }

    /// Starts a put of a slice that is counted with the implicit operations.
    #[track_caller]
    pub fn put_nbi(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        self.trace_put("PUT_NBI", node, dest, data);
        self.put_slice(node, dest, data, Completion::Implicit)
            .map(drop)
    }

    /// The lines of a put of a slice.
    #[track_caller]
    #[inline]
    fn trace_put(&self, name: &'static str, node: u32, remote: u64, data: &[u8]) {
        if let Some(t) = &self.tracer {
            t.transfer(&Transfer {
                name,
                node,
                remote,
                local: data.as_ptr().addr() as u64,
                len: data.len(),
                data,
            });
        }
    }

    /// The lines of an operation between segments.
    #[track_caller]
    #[inline]
    fn trace_segment(
        &self,
        name: &'static str,
        node: u32,
        remote: u64,
        (offset, len): (usize, usize),
    ) {
        if let Some(t) = &self.tracer {
            t.transfer(&Transfer {
                name,
                node,
                remote,
                local: self.segment(self.mynode()).addr + offset as u64,
                len,
                data: &[],
            });
        }
    }

    /// Puts `len` bytes at `offset` of the own segment to address `dest` of `node`'s, without a
    /// copy; returns when they are there.
    #[track_caller]
    pub fn put_from_segment(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("PUT_BULK", node, dest, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::put(node, dest, own, Completion::Blocking))
            .map(|handle| self.wait_done(handle))
    }

    /// Starts a put from the own segment, whose bytes must not change until the handle is
    /// synchronised.
    #[track_caller]
    pub fn put_from_segment_nb(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<Handle, RmaError> {
        self.trace_segment("PUT_NB_BULK", node, dest, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::put(node, dest, own, Completion::Explicit))
    }

    /// Starts a put from the own segment that is counted with the implicit operations.
    #[track_caller]
    pub fn put_from_segment_nbi(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("PUT_NBI_BULK", node, dest, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::put(node, dest, own, Completion::Implicit))
            .map(drop)
    }

    /// Gets `len` bytes at address `src` of `node`'s segment to `offset` of the own; returns when
    /// they are there.
    #[track_caller]
    pub fn get_to_segment(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("GET_BULK", node, src, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::get(node, src, own, Completion::Blocking))
            .map(|handle| self.wait_done(handle))
    }

    /// Starts a get to the own segment.
    #[track_caller]
    pub fn get_to_segment_nb(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<Handle, RmaError> {
        self.trace_segment("GET_NB_BULK", node, src, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::get(node, src, own, Completion::Explicit))
    }

    /// Starts a get to the own segment that is counted with the implicit operations.
    #[track_caller]
    pub fn get_to_segment_nbi(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("GET_NBI_BULK", node, src, (offset, len));
        let own = Source::Segment { offset, len };
        self.rma(&Rma::get(node, src, own, Completion::Implicit))
            .map(drop)
    }
}
