//! What a word of an endpoint says besides what those of ranks do (`handshake.rs`), and whether it belongs to what its target
//! knows of the sender.
//!
//! The word's `from` and `to` are node ids here; this follows it. A session begins when a side first needs the other
//! one, and ends when one of the two disconnects. Each side numbers its sessions with ascending numbers, so that a
//! peer that has begun anew is not mistaken for one whose connection broke: frames are sent again to the latter alone.

use super::super::handshake::{self, Word, later};
use portals_core::ProcessId;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    from_pid: U32,
    to_pid: U32,
    own: U32,
    theirs: U32,
}

/// Bytes after the word.
const TAIL: usize = 16;
const _: () = assert!(size_of::<Wire>() == TAIL);

/// Bytes of a word of an endpoint.
pub(crate) const BYTES: usize = handshake::BYTES + TAIL;

/// The numbers that two sides give their session; 0: not known, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Of the side that says or keeps it.
    pub(crate) own: u32,
    /// Of the other one.
    pub(crate) theirs: u32,
}

/// What follows a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) from_pid: u32,
    pub(super) to_pid: u32,
    pub(super) session: Session,
}

impl Tail {
    pub(super) fn between(from: ProcessId, to: ProcessId, session: Session) -> Self {
        Self {
            from_pid: from.pid,
            to_pid: to.pid,
            session,
        }
    }

    /// The word with this after it.
    pub(super) fn after(self, word: &[u8; handshake::BYTES]) -> [u8; BYTES] {
        let wire = Wire {
            from_pid: self.from_pid.into(),
            to_pid: self.to_pid.into(),
            own: self.session.own.into(),
            theirs: self.session.theirs.into(),
        };
        let mut bytes = [0; BYTES];
        let (head, tail) = bytes.split_at_mut(handshake::BYTES);
        head.copy_from_slice(word);
        tail.copy_from_slice(wire.as_bytes());
        bytes
    }

    /// What follows the word in these bytes.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let (wire, _) = Wire::read_from_prefix(bytes.get(handshake::BYTES..)?).ok()?;
        Some(Self {
            from_pid: wire.from_pid.get(),
            to_pid: wire.to_pid.get(),
            session: Session {
                own: wire.own.get(),
                theirs: wire.theirs.get(),
            },
        })
    }
}

/// Whose word it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// That of a peer, and the number that it gives the session; 0 in a job.
    Peer(usize, u32),
    /// That of somebody who was answered, or needs no answer.
    Done,
    /// It counts for nothing.
    Nobody,
}

/// What a word is in the light of what is known of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To this session.
    Here,
    /// Its sender begins anew: what was under way to it is lost.
    Anew,
    /// Its sender believes in a session that is over; the answer says so.
    Over,
    /// It is late.
    Nowhere,
}

/// Whether a word with `said` belongs to what this side `knows`; `failed` if it has given the sender up.
pub(super) fn belongs(word: Word, said: Session, knows: Session, failed: bool) -> Belongs {
    let connect = word == Word::Connect;
    // The number of the attempt says which request is refused; who refuses may know nothing else.
    if matches!(word, Word::Refuse(_)) {
        return Belongs::Here;
    }
    if said.own == 0 {
        return Belongs::Nowhere;
    }
    let new = knows.theirs == 0 || later(said.own, knows.theirs);
    if said.theirs != 0 && said.theirs != knows.own {
        return match connect && (new || said.own == knows.theirs) {
            true => Belongs::Over,
            false => Belongs::Nowhere,
        };
    }
    if said.own == knows.theirs {
        return Belongs::Here;
    }
    match (connect, new, knows.theirs == 0) {
        // Nothing of the sender was taken yet.
        (true, _, true) if !failed || said.theirs != 0 => Belongs::Here,
        (true, true, _) if said.theirs == 0 => Belongs::Anew,
        // The first answer.
        (false, _, true) if word == Word::Accept && said.theirs == knows.own => Belongs::Here,
        _ => Belongs::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::handshake::Refusal;
    use super::*;

    const fn session(own: u32, theirs: u32) -> Session {
        Session { own, theirs }
    }

    #[test]
    fn what_follows_a_word_survives_the_wire() {
        let (from, to) = (ProcessId::new(9, 0xfffe), ProcessId::new(8, 1));
        let tail = Tail::between(from, to, session(u32::MAX, 7));
        let bytes = tail.after(&[5; handshake::BYTES]);
        assert_eq!(bytes[..handshake::BYTES], [5; handshake::BYTES]);
        assert_eq!(Tail::of(&bytes), Some(tail));
        for end in 0..BYTES {
            assert_eq!(Tail::of(&bytes[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn a_word_belongs_to_the_session_that_it_names() {
        use Belongs::{Anew, Here, Nowhere, Over};
        let judge = |word, said, knows| belongs(word, said, knows, false);
        let connect = Word::Connect;
        // Who was not heard yet, who is known, and who mends a connection.
        assert_eq!(judge(connect, session(5, 0), session(3, 0)), Here);
        assert_eq!(judge(connect, session(5, 0), session(3, 5)), Here);
        assert_eq!(judge(connect, session(5, 3), session(3, 5)), Here);
        // One that has begun anew, and a word from before that, which is late.
        assert_eq!(judge(connect, session(6, 0), session(3, 5)), Anew);
        assert_eq!(judge(connect, session(4, 0), session(3, 5)), Nowhere);
        assert_eq!(judge(connect, session(1, 0), session(3, u32::MAX)), Anew);
        // One that does not know that this side has.
        assert_eq!(judge(connect, session(5, 2), session(3, 0)), Over);
        assert_eq!(judge(connect, session(5, 2), session(3, 5)), Over);
        assert_eq!(judge(connect, session(4, 2), session(3, 5)), Nowhere);
        // Without a number there is none.
        assert_eq!(judge(connect, session(0, 0), session(3, 0)), Nowhere);
    }

    #[test]
    fn no_other_word_begins_anything() {
        use Belongs::{Here, Nowhere};
        let judge = |word, said, knows| belongs(word, said, knows, false);
        for word in [
            Word::Ready,
            Word::Bye { done: None },
            Word::Look,
            Word::Disconnect,
        ] {
            assert_eq!(judge(word, session(5, 3), session(3, 5)), Here);
            assert_eq!(judge(word, session(6, 0), session(3, 5)), Nowhere);
            assert_eq!(judge(word, session(5, 2), session(3, 5)), Nowhere);
            assert_eq!(judge(word, session(5, 3), session(3, 0)), Nowhere);
        }
        assert_eq!(judge(Word::Accept, session(5, 3), session(3, 0)), Here);
        assert_eq!(judge(Word::Accept, session(5, 2), session(3, 0)), Nowhere);
        assert_eq!(judge(Word::Accept, session(6, 3), session(3, 5)), Nowhere);
        let refuse = Word::Refuse(Refusal::Full);
        assert_eq!(judge(refuse, session(0, 0), session(3, 5)), Here);
    }

    #[test]
    fn who_was_given_up_begins_anew_unless_it_knows_of_a_connection() {
        let judge = |said, knows| belongs(Word::Connect, said, knows, true);
        assert_eq!(judge(session(5, 0), session(3, 0)), Belongs::Anew);
        assert_eq!(judge(session(6, 0), session(3, 5)), Belongs::Anew);
        // The refusal follows from the stage.
        assert_eq!(judge(session(5, 3), session(3, 5)), Belongs::Here);
        assert_eq!(judge(session(5, 3), session(3, 0)), Belongs::Here);
    }
}
