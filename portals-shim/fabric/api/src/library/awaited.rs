//! Puts and gets whose callers wait for them at once, so that neither an event nor a look into a queue is needed.
//!
//! ```text
//!   left by itself? ─no──► an operation as ever
//!        │yes
//!   progress, a few times ─ended──► done: counted, no event
//!        └─ not yet, or failed ──► an operation as ever, that has begun
//! ```
//!
//! # Invariants
//!
//! * The lock of the library is held from the post until the operation is done or has begun: nobody sees it in between,
//!   and what is under way there is one.
//! * Only descriptors without a threshold take part, to which nothing happens by an operation: one that is done leaves no
//!   trace but its counts; and only such with a queue, in which one that is not done will end.

use super::Library;
use crate::nal::{Awaiting, Direction, Nal};
use crate::op::{Get, Mode, Posted, Put};
use portals_core::{AckRequest, Error, NiFail};

impl<N: Nal> Library<N> {
    /// Makes a get for a caller that waits for it: tries `looks` times to end it.
    #[inline]
    pub fn get_awaited(&mut self, get: &Get<'_>, looks: u32) -> Result<Posted, Error> {
        let landing = match get.key {
            None => self.ni.landing(get.md, get.region)?,
            Some(_) => None,
        };
        let (read, from) = (Direction::Read, &get.from);
        let Some(landing) = landing.filter(|l| l.plain && self.nal.transfer(read, l, from)) else {
            return self.get_here(get);
        };
        if self.await_end(looks) {
            self.ni.pass_awaited_get(&landing);
            return Ok(self.done());
        }
        self.ni.pass_get(&landing);
        self.nal.unawait(&mut self.ni);
        Ok(Posted::Begun)
    }

    /// Makes a put for a caller that waits for its ack: tries `looks` times to end it.
    #[inline]
    pub fn put_awaited(&mut self, put: &mut Put<'_>, looks: u32) -> Result<Posted, Error> {
        let usual = put.hdr_data == 0
            && put.key.is_none()
            && put.ack == AckRequest::Ack
            && matches!(put.mode, Mode::Standard);
        let source = match usual {
            true => self.ni.landing(put.md, put.region)?,
            false => None,
        };
        let (write, to) = (Direction::Write, &put.to);
        let Some(source) = source.filter(|s| s.plain && self.nal.transfer(write, s, to)) else {
            return self.put_here(put);
        };
        if self.await_end(looks) {
            self.ni.pass_awaited_put(&source);
            return Ok(self.done());
        }
        self.put_went(put)?;
        self.nal.unawait(&mut self.ni);
        Ok(Posted::Taken)
    }

    #[inline(never)]
    fn put_here(&mut self, put: &mut Put<'_>) -> Result<Posted, Error> {
        self.put(put)
    }

    #[inline(never)]
    fn get_here(&mut self, get: &Get<'_>) -> Result<Posted, Error> {
        self.get(get)
    }

    /// What was sent has begun, as a put whose data was taken.
    #[cold]
    fn put_went(&mut self, put: &Put<'_>) -> Result<(), Error> {
        let ready = self.ready(put)?;
        self.ni.pass_put(&ready, NiFail::OK, true);
        Ok(())
    }

    /// Whether the operation that is waited for ends well within so many looks.
    #[inline]
    fn await_end(&mut self, looks: u32) -> bool {
        for _ in 0..looks {
            let (awaiting, any) = self.nal.await_end(&mut self.ni);
            if any || !self.own.is_empty() {
                self.progressed();
            }
            match awaiting {
                Awaiting::Yet => {}
                Awaiting::Done => return true,
                Awaiting::Failed => return false,
            }
        }
        false
    }

    #[inline]
    fn done(&self) -> Posted {
        Posted::Done {
            events: self.ni.has_events(),
        }
    }
}

#[cfg(test)]
mod tests;
