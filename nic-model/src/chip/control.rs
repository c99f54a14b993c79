//! Words between firmwares: single packets that the processor puts into the network itself, past
//! the transmit engine, and that take no CAM entry at the other end.

use crate::defs::packet::{Control, PacketHeader, control, kind, vc};
use crate::fabric::Fabric;
use crate::time::SimTime;
use crate::topology::NodeId;

/// The header of a control packet. Answers have a channel of their own, so that they pass the
/// messages they are about; questions follow the messages.
fn header(source: NodeId, destination: NodeId, word: Control) -> PacketHeader {
    let channel = match word.what() {
        control::ACK | control::NACK => vc::RESPONSE,
        _ => vc::REQUEST,
    };
    let mut header = PacketHeader(0);
    header.set_destination(destination.0);
    header.set_source(source.0);
    header.set_kind(kind::CONTROL);
    header.set_vc(channel);
    header.set_last(true);
    header.set_tail(true);
    header.set_sequence(word.sequence());
    header
}

impl Fabric {
    /// Sends `word` from `node` at `at`.
    pub(crate) fn send_control(&mut self, node: NodeId, at: SimTime, to: NodeId, word: Control) {
        let header = header(node, to, word);
        // A word without a way is counted by the network; the peer's silence is what tells.
        let _ = self
            .network
            .inject(&mut self.queue, at, header, false, &word.0.to_le_bytes());
    }
}

/// The word in the bytes of a control packet; `None` when they are too few.
pub(crate) fn word(bytes: &[u8]) -> Option<Control> {
    Some(Control(u64::from_le_bytes(*bytes.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defs::packet::reason;

    #[test]
    fn words_survive_and_answers_pass_messages() {
        let nack = Control::new(control::NACK, reason::CAM, 0xFFFE);
        assert_eq!(word(&nack.0.to_le_bytes()), Some(nack));
        assert_eq!(word(&[0; 7]), None);
        assert_eq!(header(NodeId(1), NodeId(2), nack).vc(), vc::RESPONSE);
        let probe = Control::new(control::PROBE, 0, 3);
        let header = header(NodeId(1), NodeId(2), probe);
        assert_eq!((header.vc(), header.kind()), (vc::REQUEST, kind::CONTROL));
        assert_eq!((header.source(), header.destination()), (1, 2));
    }
}
