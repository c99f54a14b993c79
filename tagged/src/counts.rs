//! What a context counts.

/// What a context has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sends with a credit.
    pub short: u64,
    /// Sends that the receiver released.
    pub released: u64,
    /// Receives that were posted.
    pub posted: u64,
    /// Receives of a message that had come before.
    pub unexpected: u64,
    /// Of these, those whose data was got from its sender.
    pub fetched: u64,
    /// Messages moved out of a full overflow buffer.
    pub moved: u64,
    /// Messages that gave credits back and did nothing else.
    pub credit_messages: u64,
    /// Messages that were not from whom they said, dropped.
    pub forged: u64,
    /// Messages that told a sender that there is a note of one of its messages, whose data it keeps.
    pub notes: u64,
}
