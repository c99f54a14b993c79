//! A buffer that combines writes to a process's memory: what packets bring lies one behind the other, 64 bytes each.

/// Runs at one time: messages that arrive interleaved have one each.
const RUNS: usize = 8;
/// Bytes of a run.
const MOST: usize = 64 << 10;
/// A write of so many bytes costs little beside its system call.
const LARGE: usize = 4 << 10;

/// Bytes that belong one behind the other.
#[derive(Debug, Default)]
struct Run {
    start: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Writes that have not been made yet, combined.
///
/// # Invariants
///
/// No run overlaps another one, so that they may be made in any order.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    /// Those in use come first; the others keep their room.
    runs: Vec<Run>,
    used: usize,
}

impl WriteBuffer {
    /// Notes a write, which ends below 2^64; `false`, and nothing changes, if what is noted has to be written before.
    pub(super) fn add(&mut self, addr: u64, data: &[u8]) -> bool {
        if data.len() >= LARGE || self.overlaps(addr, data.len()) {
            return false;
        }
        let used = &mut self.runs[..self.used];
        let before = used
            .iter_mut()
            .find(|run| run.end() == addr && run.bytes.len() + data.len() <= MOST);
        if let Some(run) = before {
            run.bytes.extend_from_slice(data);
            return true;
        }
        if self.used == RUNS {
            return false;
        }
        if self.used == self.runs.len() {
            self.runs.push(Run::default());
        }
        let run = &mut self.runs[self.used];
        run.start = addr;
        run.bytes.clear();
        run.bytes.extend_from_slice(data);
        self.used += 1;
        true
    }

    /// Whether a byte of a range is yet to be written.
    pub(super) fn overlaps(&self, addr: u64, len: usize) -> bool {
        let end = addr.saturating_add(len as u64);
        let mut used = self.runs[..self.used].iter();
        used.any(|run| run.start < end && addr < run.end())
    }

    /// What is noted, run by run; nothing is, afterwards.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, &[u8])> {
        let used = std::mem::take(&mut self.used);
        let runs = self.runs[..used].iter();
        runs.map(|run| (run.start, run.bytes.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buffer: &mut WriteBuffer) -> Vec<(u64, usize)> {
        buffer.take().map(|(at, bytes)| (at, bytes.len())).collect()
    }

    #[test]
    fn packets_of_a_message_are_one_write() {
        let mut buffer = WriteBuffer::default();
        for packet in 0..10 {
            assert!(buffer.add(1000 + packet * 64, &[packet as u8; 64]));
        }
        assert_eq!(taken(&mut buffer), [(1000, 640)]);
        assert_eq!(taken(&mut buffer), []);
    }

    #[test]
    fn interleaved_messages_have_a_run_each() {
        let mut buffer = WriteBuffer::default();
        for packet in 0..5 {
            for message in 0..RUNS as u64 {
                assert!(buffer.add((message << 20) + packet * 64, &[0; 64]));
            }
        }
        assert!(!buffer.add(1 << 40, &[0; 64]), "there is no run left");
        assert!(taken(&mut buffer).iter().all(|(_, len)| *len == 320));
        assert!(buffer.add(1 << 40, &[0; 64]));
    }

    #[test]
    fn a_run_and_a_write_have_an_end() {
        let mut buffer = WriteBuffer::default();
        assert!(!buffer.add(0, &[0; LARGE]));
        let mut at = 0;
        while buffer.used < 2 {
            assert!(buffer.add(at, &[0; 1000]));
            at += 1000;
        }
        assert_eq!(taken(&mut buffer)[0], (0, MOST / 1000 * 1000));
    }

    /// Memory is as if each write had been made at once.
    #[test]
    fn random_writes_leave_the_same_memory() {
        const SIZE: usize = 1 << 10;
        let mut random = fastrand::Rng::with_seed(7);
        let mut buffer = WriteBuffer::default();
        let (mut now, mut later) = (vec![0u8; SIZE], vec![0u8; SIZE]);
        let make = |later: &mut Vec<u8>, buffer: &mut WriteBuffer| {
            for (at, bytes) in buffer.take() {
                later[at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        };
        let mut next = 0;
        let mut noted = 0;
        for step in 0..100_000 {
            // Often behind the last one, as packets are.
            let len = random.usize(1..40);
            let at = if random.u8(..) < 160 {
                next
            } else {
                random.usize(..SIZE)
            };
            let at = at.min(SIZE - len);
            next = at + len;
            let data = vec![step as u8; len];
            now[at..next].copy_from_slice(&data);
            if buffer.add(at as u64, &data) {
                noted += 1;
            } else {
                make(&mut later, &mut buffer);
                assert!(buffer.add(at as u64, &data), "nothing is in its way");
            }
            if random.u8(..) == 0 {
                make(&mut later, &mut buffer);
                assert_eq!(now, later);
            }
        }
        assert!(noted > 60_000, "{noted}");
    }
}
