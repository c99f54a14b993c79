//! The handling of many completions at once.
//!
//! ```text
//!   wait:  one event of SAFE_EQ by a poll ─► those behind it that end own messages, where they lie
//! ```

use crate::core::Core;
use crate::descriptors::Md;
use crate::fault::Fault;
use portals_shim::{Brief, Event, EventKind, NiFail};

impl Core {
    /// Whether the end of a message of this descriptor asks nothing of the interface.
    #[inline]
    fn is_plain(&self, md: Md) -> bool {
        match md {
            Md::RarSrc | Md::ReqSb | Md::RplSb => true,
            Md::Lane(index) => self.lane_is_plain(index),
            _ => false,
        }
    }

    /// Handles completions of own messages that are in SAFE_EQ, from the oldest on and as many as `left` says, which it
    /// counts down if it is no `u32::MAX`.
    pub(crate) fn settle(&mut self, left: &mut u32) -> Result<(), Fault> {
        let (ni, safe) = (self.ni.clone(), self.descriptors.queues.safe);
        let mut handled = Ok(());
        let taken = ni.eq_take_while(safe, &mut |event| {
            let more = *left > 0 && handled.is_ok();
            let Some(md) = settled(event).filter(|md| more && self.is_plain(*md)) else {
                return false;
            };
            if *left != u32::MAX {
                *left -= 1;
            }
            handled = self.handle_own(md, &Brief::new(event, false, 0));
            true
        });
        let call = "PtlEQGet";
        taken.map_err(|error| Fault::Portals { call, error })?;
        handled
    }
}

/// The descriptor of an event that says that an own message is over in part or as a whole.
#[inline]
fn settled(event: &Event) -> Option<Md> {
    let ends = matches!(
        event.kind,
        EventKind::SendEnd | EventKind::Ack | EventKind::ReplyEnd
    );
    Md::decode(event.md.user_ptr).filter(|_| ends && event.ni_fail == NiFail::OK)
}
