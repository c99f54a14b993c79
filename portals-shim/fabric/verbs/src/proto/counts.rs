//! Operations by the protocol that carried them.

use fabric_api::call::Paths;
use std::fmt;

/// How many operations each protocol has carried; of two that were chosen for one after the other, the one that did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By `eager send` or `eager ring`: which, is known when a frame is posted. Over datagrams, by those.
    pub(crate) eager: u64,
    pub(crate) rndv_read: u64,
    pub(crate) rma_write: u64,
    pub(crate) rma_write_send: u64,
    pub(crate) rma_read: u64,
    pub(crate) get_by_am: u64,
}

impl Counts {
    /// The same in the words that every fabric has.
    pub(crate) fn paths(&self) -> Paths {
        Paths {
            one_sided: self.rma_write + self.rma_read,
            two_sided: self.eager + self.rndv_read,
            notified: self.rma_write_send,
            get_by_am: self.get_by_am,
            ..Paths::default()
        }
    }

    /// Name and count of each.
    pub(crate) fn each(&self) -> [(&'static str, u64); 6] {
        [
            ("eager", self.eager),
            ("rndv read", self.rndv_read),
            ("rma write", self.rma_write),
            ("rma write, send", self.rma_write_send),
            ("rma read", self.rma_read),
            ("get by active message", self.get_by_am),
        ]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.each().iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            write!(f, "{comma}{name} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_counted_by_itself_and_on_one_path() {
        let counts = Counts {
            eager: 1,
            rndv_read: 2,
            rma_write: 4,
            rma_write_send: 8,
            rma_read: 16,
            get_by_am: 32,
        };
        let paths = counts.paths();
        assert_eq!((paths.two_sided, paths.one_sided), (1 + 2, 4 + 16));
        assert_eq!((paths.notified, paths.get_by_am), (8, 32));
        assert_eq!(
            counts.to_string(),
            "eager 1; rndv read 2; rma write 4; rma write, send 8; rma read 16; get by active message 32"
        );
    }
}
