//! What looks into queues do besides.

use super::*;
use crate::call::Brief;
use crate::identity::rank_config;
use crate::place::Placement;
use crate::region::tests::TRUST;
use portals_core::{MdDesc, MdOptions, Memory, Unlink};

/// A fabric that takes what is sent, and counts how often it is to make progress.
#[derive(Debug, Default)]
struct Counts {
    progress: u32,
}

impl Nal for Counts {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        if let Some(op) = tx.op {
            ni.send_end(op, NiFail::OK);
        }
    }

    fn progress(&mut self, _: &mut Ni, _: Look) -> bool {
        self.progress += 1;
        false
    }

    fn distance(&self, _: ProcessId) -> Option<u64> {
        None
    }
}

struct World {
    library: Library<Counts>,
    md: MdHandle,
    eq: EqHandle,
}

impl World {
    fn new() -> Self {
        let mut ni = Ni::new(rank_config(Placement::ONE, 0, 1));
        let eq = ni.eq_alloc(16).unwrap();
        let desc = MdDesc {
            memory: Memory::contiguous(4096, 0),
            threshold: -1,
            max_size: 0,
            options: MdOptions::EVENT_START_DISABLE,
            user_ptr: 0,
            eq: Some(eq),
        };
        let md = ni.md_bind(desc, Unlink::Retain).unwrap();
        let library = Library::new(ni, Counts::default(), TRUST);
        Self { library, md, eq }
    }

    /// Puts, and takes the event that says that it has left.
    fn put(&mut self, process: ProcessId) {
        let to = Target {
            process,
            pt_index: 4,
            ac_index: 0,
            match_bits: 3,
            remote_offset: 0,
        };
        let library = &mut self.library;
        let posted = library.put(&mut Put::new(self.md, to));
        assert_eq!(posted, Ok(Posted::Begun));
        let found = library.poll(&[self.eq], &mut Brief::default());
        assert!(!matches!(found, Ok(Taken::Nothing) | Err(_)));
    }
}

#[test]
fn of_looks_that_find_events_one_in_64_makes_progress() {
    let mut w = World::new();
    for looks in 1..=1000 {
        w.put(ProcessId::new(7, 7));
        assert_eq!(w.library.nal.progress, looks / 64, "{looks} looks");
    }
}

#[test]
fn no_more_than_16_messages_to_the_own_process_wait() {
    let mut w = World::new();
    let own = w.library.ni.config().id;
    for puts in 1..=1000 {
        w.put(own);
        // Nothing admits them.
        let (waiting, dropped) = (w.library.own.len(), w.library.ni.status().drop_count);
        assert!(waiting < 16, "{waiting} wait");
        assert_eq!(waiting as u64 + dropped, puts);
    }
}
