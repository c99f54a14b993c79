//! Memory does not grow with the number of operations: resident memory before and after many of each kind, on fabrics that
//! are there within a process.
//!
//! `PORTOLAN_GROWTH_OPERATIONS` says how many; `cargo xtask growth` prints the table of a million.

use conduit::{BarrierName, Conduit, HandlerEntry, threads};
use portals_shim::fabric::{self, Opened};
use portals_shim::nal::shm;
use portals_shim::{
    AckRequest, EqHandle, EventKind, InsertPosition, Interface, MdHandle, MdMemory, MdOptions,
    MdSpec, MeSpec, ProcessId, Region, Target, Unlink,
};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Barrier, Mutex, PoisonError};
use tagged::{Comm, Options, Slice, World};

/// What memory may grow by, KiB, after the warm-up, however many operations follow: the allocator's own.
const BOUND: u64 = 2048;
/// Operations of the warm-up, of one thread.
const WARM: u64 = 3000;
/// Of so many operations of one thread one of ranks that wait for each other, on a machine that may have other work.
const RATIO: u64 = 30;

/// Resident memory, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.unwrap().trim().trim_end_matches("kB");
    words.trim().parse().unwrap()
}

/// As many as were asked for.
fn given() -> Option<u64> {
    let given = std::env::var("PORTOLAN_GROWTH_OPERATIONS").ok();
    given.map(|n| n.parse().unwrap())
}

/// Of one thread.
fn operations() -> u64 {
    given().unwrap_or(10_000)
}

/// Of ranks that wait for each other.
fn exchanges() -> u64 {
    given().unwrap_or(10_000 / RATIO)
}

/// Rows of the table: what, fabric, growth in KiB.
#[derive(Default)]
struct Table(Mutex<Vec<(String, &'static str, u64)>>);

impl Table {
    /// The growth by many calls of `operation`, after the warm-up.
    fn measure(&self, what: &str, fabric: &'static str, operation: impl FnMut()) {
        self.measure_of(what, fabric, (WARM, operations()), operation);
    }

    /// The growth by many calls that wait for the other rank.
    fn exchange(&self, what: &str, fabric: &'static str, operation: impl FnMut()) {
        self.measure_of(what, fabric, (WARM / RATIO, exchanges()), operation);
    }

    fn measure_of(
        &self,
        what: &str,
        fabric: &'static str,
        (warm, count): (u64, u64),
        mut operation: impl FnMut(),
    ) {
        (0..warm).for_each(|_| operation());
        let before = resident();
        (0..count).for_each(|_| operation());
        let growth = resident().saturating_sub(before);
        let row = (what.to_owned(), fabric, growth);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(row);
    }
}

/// Memory that has been written, and so is resident.
fn touched(len: usize) -> Region {
    let region = Region::new(len).unwrap();
    region.fill(0, len, 1).unwrap();
    region
}

/// Two interfaces, driven by one thread.
struct Two {
    from: Interface,
    to: Interface,
    queues: [EqHandle; 2],
    source: MdHandle,
    target: Target,
}

fn spec(region: &Region, threshold: i32, eq: EqHandle) -> MdSpec {
    MdSpec {
        memory: MdMemory::whole(region),
        threshold,
        max_size: 0,
        options: MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq: Some(eq),
    }
}

fn entry(match_bits: u64) -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits,
        ignore_bits: 0,
        unlink: Unlink::Unlink,
    }
}

impl Two {
    fn new(mut opened: Vec<Opened>) -> Self {
        let (to, from) = (opened.pop().unwrap(), opened.pop().unwrap());
        let (to, from) = (to.interface, from.interface);
        let queues = [&from, &to].map(|ni| ni.eq_alloc(64).unwrap());
        let source = from
            .md_bind(spec(&touched(4096), -1, queues[0]), Unlink::Retain)
            .unwrap();
        let target = Target {
            process: to.id(),
            pt_index: 4,
            ac_index: 0,
            match_bits: 7,
            remote_offset: 0,
        };
        let two = Self {
            from,
            to,
            queues,
            source,
            target,
        };
        two.attach(7, &touched(4096), -1);
        two
    }

    fn attach(&self, bits: u64, region: &Region, threshold: i32) -> portals_shim::MeHandle {
        let after = InsertPosition::After;
        let me = self.to.me_attach(4, entry(bits), after).unwrap();
        let spec = spec(region, threshold, self.queues[1]);
        self.to.md_attach(me, spec, Unlink::Unlink).unwrap();
        me
    }

    /// Takes events of both until each has had one of this kind, or has none to get.
    fn until(&self, here: Option<EventKind>, there: Option<EventKind>) {
        let (mut here, mut there) = (here, there);
        while here.is_some() || there.is_some() {
            for (ni, eq, wanted) in [
                (&self.from, self.queues[0], &mut here),
                (&self.to, self.queues[1], &mut there),
            ] {
                while let Some(polled) = ni.eq_get(eq).unwrap() {
                    wanted.take_if(|kind| *kind == polled.event.kind);
                }
            }
        }
    }
}

fn portals(table: &Table, fabric: &'static str, opened: Vec<Opened>) {
    let two = Two::new(opened);
    let (from, [eq, _]) = (&two.from, two.queues);
    table.measure("MD bind, unlink", fabric, || {
        let md = from.md_bind(spec(&touched(4096), -1, eq), Unlink::Retain);
        from.md_unlink(md.unwrap()).unwrap();
    });
    table.measure("MD update", fabric, || {
        let md = from.md_bind(spec(&touched(4096), -1, eq), Unlink::Retain);
        let md = md.unwrap();
        let new = spec(&touched(4096), -1, eq);
        from.md_update(md, new, Some(eq)).unwrap();
        from.md_unlink(md).unwrap();
    });
    table.measure("ME attach, MD attach, ME unlink", fabric, || {
        let me = two.attach(8, &touched(4096), -1);
        two.to.me_unlink(me).unwrap();
    });
    table.measure("EQ alloc, free", fabric, || {
        let eq = from.eq_alloc(16).unwrap();
        from.eq_free(eq).unwrap();
    });
    table.measure("put", fabric, || {
        from.put_region(two.source, (0, 64), AckRequest::Ack, two.target, 0)
            .unwrap();
        two.until(Some(EventKind::Ack), Some(EventKind::PutEnd));
    });
    table.measure("get", fabric, || {
        from.get_region(two.source, (0, 64), two.target).unwrap();
        two.until(Some(EventKind::ReplyEnd), Some(EventKind::GetEnd));
    });
    table.measure("getput", fabric, || {
        from.get_put_region(two.source, two.source, (64, 0, 8), two.target, 0)
            .unwrap();
        two.until(Some(EventKind::ReplyEnd), Some(EventKind::GetPutEnd));
    });
    table.measure("put, both descriptors for one", fabric, || {
        two.attach(9, &touched(4096), 1);
        let md = from.md_bind(spec(&touched(4096), 1, eq), Unlink::Unlink);
        let target = Target {
            match_bits: 9,
            ..two.target
        };
        from.put(md.unwrap(), AckRequest::NoAck, target, 0).unwrap();
        two.until(Some(EventKind::Unlink), Some(EventKind::Unlink));
    });
}

/// Both ranks do the same, each on a thread of its own, and rank 0 measures.
fn tags(table: &Table, fabric: &'static str, opened: Vec<Opened>) {
    let options = Options::default();
    let open =
        |(rank, opened)| World::open(opened, rank, &options, || Ok::<(), Infallible>(())).unwrap();
    let worlds: Vec<World> = (0..).zip(opened).map(open).collect();
    let meeting = Barrier::new(2);
    let both = |what: &str, run: &(dyn Fn(&Comm) + Sync)| {
        std::thread::scope(|s| {
            for world in &worlds {
                let meeting = &meeting;
                s.spawn(move || {
                    let comm = world.comm();
                    if comm.rank() == 0 {
                        table.exchange(what, fabric, || run(&comm));
                    } else {
                        (0..WARM / RATIO + exchanges()).for_each(|_| run(&comm));
                    }
                    meeting.wait();
                });
            }
        });
    };
    let exchange = |len: usize| {
        move |comm: &Comm| {
            // So much that a few hundred that were kept would be seen.
            let region = touched(len.max(16 << 10));
            let slice = Slice::new(&region, 0, len).unwrap();
            if comm.rank() == 0 {
                comm.send(&slice, 1, 3).unwrap();
                comm.recv(&slice, Some(1), Some(4)).unwrap();
            } else {
                comm.recv(&slice, Some(0), Some(3)).unwrap();
                comm.send(&slice, 0, 4).unwrap();
            }
        }
    };
    both("tag send, receive, 8 bytes", &exchange(8));
    both("tag send, receive, 16 KiB", &exchange(16 << 10));
    both("tag receive, dropped", &|comm| {
        let region = touched(16 << 10);
        drop(comm.irecv(Slice::whole(&region), None, Some(9)).unwrap());
    });
    both("tag barrier", &|comm| comm.barrier().unwrap());
    both("tag duplicate, drop", &|comm| drop(comm.dup().unwrap()));
}

fn conduit_row(
    table: &Table,
    fabric: &'static str,
    c: &Conduit,
    what: &str,
    operation: impl FnMut(),
) {
    c.barrier(BarrierName::Anonymous).unwrap();
    let mut operation = operation;
    if c.mynode() == 0 {
        table.exchange(what, fabric, operation);
    } else {
        (0..WARM / RATIO + exchanges()).for_each(|_| operation());
    }
    c.barrier(BarrierName::Anonymous).unwrap();
}

fn conduit_rows(table: &Table, fabric: &'static str, opened: Vec<Opened>) {
    let ends = threads::run_over(opened, &[], |conduit| {
        let c = &conduit;
        let seen = Rc::new(Cell::new(0u64));
        let counter = seen.clone();
        let count = HandlerEntry::new(200, move |_, _, _| counter.set(counter.get() + 1));
        c.attach(vec![count], 1 << 16).unwrap();
        let peer = 1 - c.mynode();
        let there = c.segment(peer).addr;
        let row = |what: &str, operation: &mut dyn FnMut()| {
            conduit_row(table, fabric, c, what, operation);
        };
        let mut sent = 0;
        let mut await_one = || {
            sent += 1;
            let wanted = sent;
            c.block_until(|| seen.get() >= wanted);
        };
        row("conduit put", &mut || c.put(peer, there, &[1; 64]).unwrap());
        row("conduit get", &mut || {
            c.get(&mut [0; 64], peer, there).unwrap();
        });
        row("conduit AM Short", &mut || {
            c.am_request_short(peer, 200, &[1]).unwrap();
            await_one();
        });
        row("conduit AM Medium", &mut || {
            c.am_request_medium(peer, 200, &[2; 100], &[1]).unwrap();
            await_one();
        });
        row("conduit AM Long", &mut || {
            c.am_request_long(peer, 200, &[3; 4000], there, &[1])
                .unwrap();
            await_one();
        });
        row("conduit barrier", &mut || {
            c.barrier(BarrierName::Anonymous).unwrap();
        });
        conduit.finish();
    });
    for end in ends {
        assert_eq!(end, threads::RankEnd::Returned(()));
    }
}

/// One test, because it measures the whole process.
#[test]
fn memory_does_not_grow_with_the_number_of_operations() {
    type Open = fn() -> Vec<Opened>;
    let fabrics: [(&str, Open); 2] = [
        ("in process", || fabric::in_process(2)),
        ("shared memory", || {
            fabric::interfaces(shm::in_threads(2).unwrap())
        }),
    ];
    // The measurement sees what a region of each operation would come to.
    let (check, mut lost) = (Table::default(), Vec::new());
    check.measure("a page lost", "none", || lost.push(touched(64)));
    let seen = check.0.into_inner().unwrap()[0].2;
    assert!(seen > operations() * 3, "{seen} KiB");
    drop(lost);

    let table = Table::default();
    for (name, open) in fabrics {
        portals(&table, name, open());
        // Ranks of the fabric within the process never sleep, so each waits for the other's turn of the processor.
        if given().is_some() || name != "in process" {
            tags(&table, name, open());
            conduit_rows(&table, name, open());
        }
    }
    let rows = table.0.into_inner().unwrap();
    println!("resident memory, KiB (at most {BOUND})");
    println!("| operation | fabric | growth |\n|---|---|--:|");
    for (what, fabric, growth) in &rows {
        println!("| {what} | {fabric} | {growth} |");
    }
    for (what, fabric, growth) in &rows {
        assert!(*growth <= BOUND, "{what}, {fabric}: {growth} KiB more");
    }
}
