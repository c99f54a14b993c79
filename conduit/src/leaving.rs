//! What a rank hears of an exit.

/// In what ranks tell each other: the low byte is the code of a rank that exited. Without it the
/// ranks known of have finished.
pub(crate) const EXITED: u32 = 0x100;

/// The code in what ranks told each other.
pub(crate) fn code_of(end: u32) -> i32 {
    i32::try_from(end & 0xff).unwrap_or(1)
}

/// What was heard of an exit.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// Some rank leaves.
    heard: bool,
    /// Largest end known: a code with [`EXITED`], or 0.
    end: u32,
    /// Distances heard from; each is a power of two.
    from: u32,
    /// This rank leaves too.
    telling: bool,
}

impl Leaving {
    pub(crate) fn handle(&mut self, distance: u32, end: u32) {
        self.heard = true;
        self.end = self.end.max(end & (EXITED | 0xff));
        self.from |= distance;
    }

    /// From here on this rank is leaving, with this end.
    pub(crate) fn tell(&mut self, end: u32) {
        self.telling = true;
        self.end = self.end.max(end);
    }

    /// Whether this rank is leaving.
    pub(crate) fn is_telling(&self) -> bool {
        self.telling
    }

    /// The end of a rank that leaves, once one was heard of.
    pub(crate) fn heard(&self) -> Option<u32> {
        self.heard.then_some(self.end)
    }

    /// The largest end known.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Whether all ranks at these distances were heard from.
    pub(crate) fn heard_from(&self, distances: u32) -> bool {
        self.from & distances == distances
    }
}
