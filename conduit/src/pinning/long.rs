//! Longs where memory is pinned when it is needed.
//!
//! | a Long | its payload |
//! |---|---|
//! | that fits a chunk, up to `GASNET_PACKEDLONG_LIMIT` | travels with the header, and is copied to its place by the target |
//! | that does not | is put, and the header follows when it is there |
//! | reply | travels with the header, whatever the limit: a handler cannot wait for memory to be pinned, so it is at most [`MAX_PACKED`] bytes |
//!
//! [`MAX_PACKED`]: crate::MAX_PACKED

use super::edge::store;
use crate::am::delivery::Content;
use crate::am::limits::MAX_ARGS;
use crate::am::longs::Landed;
use crate::am::message::Message;
use crate::chunks::CHUNK;
use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::error::{AmError, RmaError};
use crate::fault::Fault;
use crate::matchbits::Category;
use crate::memory::{Source, UserMem};
use crate::rma::{Completion, Rma};

impl Core {
    /// Copies what came with a message to memory of this rank; `false`: there is none.
    pub(crate) fn store_anywhere(&mut self, addr: u64, data: &[u8]) -> bool {
        let there = match &mut self.pinning.home {
            Some(home) => home.maps.holds(addr, data.len() as u64),
            None => false,
        };
        if there {
            store(addr, data);
        }
        there
    }
}

impl Conduit {
    /// Sends a checked Long whose payload is `memory` to address and offset `dest` of `node`; the memory is free on
    /// return.
    pub(crate) fn long_anywhere(
        &self,
        node: u32,
        handler: u8,
        memory: UserMem,
        dest: (u64, u64),
        args: &[i32],
    ) -> Result<(), AmError> {
        if args.len() > MAX_ARGS {
            return Err(AmError::Args { count: args.len() });
        }
        let len = memory.len();
        let fits = node != self.mynode()
            && 4 * args.len() + 8 + len <= CHUNK
            && self.core.borrow().env.packs(len);
        let source = if len == 0 || fits {
            Source::User(memory)
        } else {
            let missing = |_: RmaError| AmError::Destination {
                node,
                addr: dest.0,
                len,
            };
            self.put_payload(node, dest.0, memory).map_err(missing)?;
            Source::Placed { len }
        };
        let m = self.message(Category::Long, handler, args, source, dest)?;
        self.request(node, &m, true);
        Ok(())
    }

    /// Puts a payload and waits until it is there.
    fn put_payload(&self, node: u32, addr: u64, memory: UserMem) -> Result<(), RmaError> {
        let longs = self
            .core
            .borrow()
            .pinning
            .firehoses
            .as_ref()
            .map(|f| f.longs);
        let Some(op) = longs else {
            return Ok(());
        };
        let part = Completion::Part(op);
        let put = self.rma(&Rma::put(node, addr, Source::User(memory), part));
        self.wait_in("a Long", Scope::Full, |c| {
            c.ops.base_done(op.index, true, false).then_some(())
        });
        put.map(drop)
    }

    /// The payload of a Long to this rank, at its place.
    pub(crate) fn place_here(&self, m: &Message<'_>) -> Content {
        let len = m.source.len() as u64;
        let own = self.core.borrow().own_memory(&m.source);
        let stored = match own {
            Some(memory) => self.transfer_here(m.dest.0, memory, false),
            None => Some(()),
        };
        let missing = Fault::Malformed {
            node: self.mynode(),
            what: "its destination is no memory",
        };
        self.check("a Long to this rank", stored.ok_or(missing));
        let offset = m.dest.1;
        Content::Long(Landed { offset, len })
    }
}
