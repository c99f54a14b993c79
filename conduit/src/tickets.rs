//! Counted resources: permission to have a message in flight, permission to have a temporary
//! descriptor.

/// So many may be out at one time.
#[derive(Debug)]
pub(crate) struct Tickets {
    limit: u32,
    free: u32,
}

impl Tickets {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, free: limit }
    }

    /// Takes `n` or none.
    pub(crate) fn take(&mut self, n: u32) -> bool {
        match self.free.checked_sub(n) {
            Some(rest) => {
                self.free = rest;
                true
            }
            None => false,
        }
    }

    /// Whether there is one.
    pub(crate) fn any(&self) -> bool {
        self.free > 0
    }

    /// Gives back; more than were taken is our bug and shows in debug builds.
    pub(crate) fn give(&mut self, n: u32) {
        debug_assert!(
            self.free + n <= self.limit,
            "more tickets returned than taken"
        );
        self.free = (self.free + n).min(self.limit);
    }

    /// Tickets that are out.
    #[cfg(test)]
    pub(crate) fn out(&self) -> u32 {
        self.limit - self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_nothing() {
        let mut t = Tickets::new(3);
        assert!(t.take(2));
        assert!(!t.take(2));
        assert!(t.take(1));
        t.give(3);
        assert_eq!(t.out(), 0);
    }
}
