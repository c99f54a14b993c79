//! Bytes that are used again: what is kept of messages costs no allocation once others like them have come and gone.

/// Memory that is kept at most, with what a vector itself takes: as much as a peer's messages that nobody has asked for.
const MOST: usize = 1 << 20;

/// Vectors that nobody uses now, all of them empty.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Vec<Vec<u8>>,
    /// Bytes of all of them; at most [`MOST`].
    kept: usize,
}

const fn cost(bytes: &Vec<u8>) -> usize {
    bytes.capacity() + size_of::<Vec<u8>>()
}

impl BufferPool {
    /// An empty vector, of the one that was given back last.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let bytes = self.free.pop().unwrap_or_default();
        if bytes.capacity() > 0 {
            self.kept -= cost(&bytes);
        }
        bytes
    }

    /// Keeps a vector for the next that is taken, while there is room for it.
    pub(crate) fn give_back(&mut self, mut bytes: Vec<u8>) {
        let kept = self.kept + cost(&bytes);
        if bytes.capacity() == 0 || kept > MOST {
            return;
        }
        bytes.clear();
        self.kept = kept;
        self.free.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_taken_again_and_empty() {
        let mut pool = BufferPool::default();
        assert_eq!(pool.take().capacity(), 0);
        pool.give_back(vec![1; 100]);
        pool.give_back(Vec::new());
        let again = pool.take();
        assert!(again.is_empty() && again.capacity() >= 100);
        assert_eq!((pool.take().capacity(), pool.kept), (0, 0));
    }

    #[test]
    fn no_more_is_kept_than_has_room() {
        let mut pool = BufferPool::default();
        for len in [MOST, MOST / 2, 1, MOST / 2] {
            pool.give_back(Vec::with_capacity(len));
        }
        assert!(pool.kept <= MOST && pool.free.len() == 2);
        (0..MOST).for_each(|_| pool.give_back(Vec::with_capacity(1)));
        assert!(pool.kept <= MOST);
        while pool.take().capacity() > 0 {}
        assert_eq!(pool.kept, 0);
    }
}
