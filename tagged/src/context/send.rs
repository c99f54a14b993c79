//! Sending.

use super::{Context, MOST_SOURCES, owner, user};
use crate::error::CallError;
use crate::flow::Way;
use crate::header::{HeaderData, MOST_CREDITS};
use crate::request::{Kind, Request};
use crate::{Slice, Status};
use portals_shim::{
    AckRequest, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeSpec, THRESHOLD_INFINITE,
    Unlink,
};

impl Context {
    /// Begins a send; `bits` are without the sync bit.
    pub(crate) fn send(
        &mut self,
        to: u32,
        bits: u64,
        data: Slice,
        sync: bool,
    ) -> Result<Request, CallError> {
        let queued = Kind::Queued {
            to,
            bits,
            data,
            sync,
        };
        let Some((slot, generation)) = self.requests.open(queued) else {
            return Err(CallError::NoRequest {
                max: crate::header::OPERATIONS,
            });
        };
        let behind = !self.waiting.is_empty() && self.waiting.contains_key(&to);
        if behind {
            self.waiting.entry(to).or_default().push_back(slot);
        } else {
            match self.start(slot) {
                Ok(true) => {}
                Ok(false) => self.waiting.entry(to).or_default().push_back(slot),
                Err(error) => {
                    self.requests.forget(slot);
                    return Err(error);
                }
            }
        }
        Ok(Request {
            context: self.number,
            slot,
            generation,
        })
    }

    /// Hands a send to Portals unless it must wait.
    fn start(&mut self, slot: u32) -> Result<bool, CallError> {
        let Some(kind @ Kind::Queued { .. }) = self.requests.active(slot) else {
            return Ok(true);
        };
        let Kind::Queued {
            to,
            bits,
            data,
            sync,
        } = std::mem::replace(kind, Kind::Short)
        else {
            return Ok(true);
        };
        let short = !sync && data.len as u64 <= self.short;
        let source = self.place.me;
        let header = |credits| HeaderData {
            source,
            operation: slot,
            credits,
        };
        match self.flow.take(to, short) {
            Way::Wait => {
                if let Some(kind) = self.requests.active(slot) {
                    *kind = Kind::Queued {
                        to,
                        bits,
                        data,
                        sync,
                    };
                }
                Ok(false)
            }
            Way::Short => {
                let target = self.target(to, 0, bits)?;
                let md = self.source(&data)?;
                let header = header(self.flow.give_back(to, MOST_CREDITS)).pack();
                let region = (data.offset as u64, data.len as u64);
                self.counts.short += 1;
                if self
                    .place
                    .ni
                    .put_region_silent(md, region, target, header)?
                {
                    self.requests.end(slot, Ok(Status::sent(data.len)));
                }
                Ok(true)
            }
            Way::Released => {
                let bits = bits | self.place.layout.sync_bit();
                let target = self.target(to, 0, bits)?;
                let ni = &self.place.ni;
                let entry = MeSpec {
                    match_id: target.process,
                    match_bits: u64::from(slot),
                    ignore_bits: 0,
                    unlink: Unlink::Unlink,
                };
                let me = ni.me_attach(self.portal(1), entry, InsertPosition::After)?;
                let md = MdSpec {
                    memory: data.memory(),
                    threshold: THRESHOLD_INFINITE,
                    max_size: 0,
                    options: MdOptions::OP_GET
                        | MdOptions::MANAGE_REMOTE
                        | MdOptions::EVENT_START_DISABLE,
                    user_ptr: user(owner::RELEASED, slot),
                    eq: Some(self.queues[1]),
                };
                let md = ni.md_attach(me, md, Unlink::Unlink)?;
                if let Some(kind) = self.requests.active(slot) {
                    *kind = Kind::Released {
                        to,
                        me,
                        sent: false,
                        released: false,
                    };
                }
                let header = header(self.flow.give_back(to, MOST_CREDITS)).pack();
                self.counts.released += 1;
                self.place.ni.put(md, AckRequest::Ack, target, header)?;
                Ok(true)
            }
        }
    }

    /// Starts the sends that waited and may go.
    pub(super) fn send_waiting(&mut self) -> Result<(), CallError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let peers: Vec<u32> = self.waiting.keys().copied().collect();
        for peer in peers {
            while let Some(&slot) = self.waiting.get(&peer).and_then(|queue| queue.front()) {
                if !self.start(slot)? {
                    break;
                }
                if let Some(queue) = self.waiting.get_mut(&peer) {
                    queue.pop_front();
                }
            }
            if self
                .waiting
                .get(&peer)
                .is_some_and(|queue| queue.is_empty())
            {
                self.waiting.remove(&peer);
            }
        }
        Ok(())
    }

    /// Gives credits back in a message of their own.
    pub(super) fn send_credits(&mut self, to: u32) -> Result<(), CallError> {
        let credits = self.flow.give_back(to, MOST_CREDITS);
        let target = self.target(to, 2, 0)?;
        let header = HeaderData {
            source: self.place.me,
            operation: 0,
            credits,
        };
        self.counts.credit_messages += 1;
        self.place
            .ni
            .put(self.silent, AckRequest::NoAck, target, header.pack())?;
        Ok(())
    }

    /// The descriptor of the region that data lies in.
    fn source(&mut self, data: &Slice) -> Result<MdHandle, CallError> {
        if data.len == 0 {
            return Ok(self.empty);
        }
        let addr = data.region.addr();
        if let Some((last, md)) = self.last_source
            && last == addr
        {
            return Ok(md);
        }
        let md = match self.sources.get(&addr) {
            Some(md) => *md,
            None => {
                if self.sources.len() >= MOST_SOURCES {
                    self.let_a_source_go();
                }
                let spec = MdSpec {
                    memory: MdMemory::whole(&data.region),
                    threshold: THRESHOLD_INFINITE,
                    max_size: 0,
                    options: MdOptions::EVENT_START_DISABLE,
                    user_ptr: user(owner::SOURCE, 0),
                    eq: Some(self.queues[1]),
                };
                let md = self.place.ni.md_bind(spec, Unlink::Retain)?;
                self.sources.insert(addr, md);
                md
            }
        };
        self.last_source = Some((addr, md));
        Ok(md)
    }

    /// Gives up the descriptor of a region that nothing is under way from.
    fn let_a_source_go(&mut self) {
        let ni = &self.place.ni;
        let idle = self
            .sources
            .iter()
            .find(|(_, md)| ni.md_unlink(**md).is_ok());
        if let Some(addr) = idle.map(|(addr, _)| *addr) {
            self.sources.remove(&addr);
            self.last_source = None;
        }
    }
}
