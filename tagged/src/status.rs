//! What is known of a message.

/// What is known of a message that was received or found; of one sent, only its length means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who sent it: a rank of the communicator; where an error names it, of the job.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Bytes received; of a message that was only found, bytes it has.
    pub len: usize,
}

impl Status {
    pub(crate) const fn sent(len: usize) -> Self {
        Self {
            source: 0,
            tag: 0,
            len,
        }
    }
}
