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
use crate::call::{Awaited, Target};
use crate::nal::{Awaiting, Nal};
use portals_core::{AckRequest, Error, MdHandle, NiFail};

impl<N: Nal> Library<N> {
    /// Makes a get for a caller that waits for it: tries `looks` times to end it.
    #[inline]
    pub fn get_awaited(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        from: &Target,
        looks: u32,
    ) -> Result<Awaited, Error> {
        let landing = self.ni.landing(md, Some(region))?;
        let Some(landing) = landing.filter(|l| l.plain && self.nal.fetch_awaited(l, from)) else {
            self.get(md, Some(region), from)?;
            return Ok(Awaited::Begun);
        };
        if self.await_end(looks) {
            self.ni.pass_awaited_get(&landing);
            return Ok(self.awaited());
        }
        self.ni.pass_get(&landing);
        self.nal.unawait(&mut self.ni);
        Ok(Awaited::Begun)
    }

    /// Makes a silent put with an ack for a caller that waits for that: tries `looks` times to end it.
    #[inline]
    pub fn put_awaited(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
        looks: u32,
    ) -> Result<Awaited, Error> {
        let source = self.ni.landing(md, Some(region))?;
        let Some(source) = source.filter(|s| s.plain && self.nal.send_awaited(s, to)) else {
            let taken = self.put(md, Some(region), AckRequest::Ack, to, 0, true)?;
            return Ok(match taken {
                true => Awaited::Taken,
                false => Awaited::Begun,
            });
        };
        if self.await_end(looks) {
            self.ni.pass_awaited_put(&source);
            return Ok(self.awaited());
        }
        self.put_went(md, region, to)?;
        self.nal.unawait(&mut self.ni);
        Ok(Awaited::Taken)
    }

    /// What was sent has begun, as a put whose data was taken.
    #[cold]
    fn put_went(&mut self, md: MdHandle, region: (u64, u64), to: &Target) -> Result<(), Error> {
        let ready = self.ni.ready_put(
            md,
            Some(region),
            AckRequest::Ack,
            to.process,
            to.pt_index,
            to.ac_index,
            to.match_bits,
            to.remote_offset,
            0,
        )?;
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
    fn awaited(&self) -> Awaited {
        Awaited::Done {
            events: self.ni.has_events(),
        }
    }
}

#[cfg(test)]
mod tests;
