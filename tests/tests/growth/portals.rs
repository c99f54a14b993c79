//! Operations of Portals, by one thread that drives both interfaces.

use super::{Table, touched};
use portals_shim::fabric::Opened;
use portals_shim::{
    AckRequest, EqHandle, EventKind, InsertPosition, Interface, MdHandle, MdMemory, MdOptions,
    MdSpec, MeHandle, MeSpec, ProcessId, Region, Target, Unlink,
};

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

    fn attach(&self, bits: u64, region: &Region, threshold: i32) -> MeHandle {
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

pub(crate) fn rows(table: &Table, opened: Vec<Opened>) {
    let two = Two::new(opened);
    let (from, [eq, _]) = (&two.from, two.queues);
    table.measure("MD bind, unlink", || {
        let md = from.md_bind(spec(&touched(4096), -1, eq), Unlink::Retain);
        from.md_unlink(md.unwrap()).unwrap();
    });
    table.measure("MD update", || {
        let md = from.md_bind(spec(&touched(4096), -1, eq), Unlink::Retain);
        let md = md.unwrap();
        let new = spec(&touched(4096), -1, eq);
        from.md_update(md, new, Some(eq)).unwrap();
        from.md_unlink(md).unwrap();
    });
    table.measure("ME attach, MD attach, ME unlink", || {
        let me = two.attach(8, &touched(4096), -1);
        two.to.me_unlink(me).unwrap();
    });
    table.measure("EQ alloc, free", || {
        let eq = from.eq_alloc(16).unwrap();
        from.eq_free(eq).unwrap();
    });
    table.measure("put", || {
        from.put_region(two.source, (0, 64), AckRequest::Ack, two.target, 0)
            .unwrap();
        two.until(Some(EventKind::Ack), Some(EventKind::PutEnd));
    });
    table.measure("get", || {
        from.get_region(two.source, (0, 64), two.target).unwrap();
        two.until(Some(EventKind::ReplyEnd), Some(EventKind::GetEnd));
    });
    table.measure("getput", || {
        from.get_put_region(two.source, two.source, (64, 0, 8), two.target, 0)
            .unwrap();
        two.until(Some(EventKind::ReplyEnd), Some(EventKind::GetPutEnd));
    });
    table.measure("put, both descriptors for one", || {
        two.attach(9, &touched(4096), 1);
        let md = from.md_bind(spec(&touched(4096), 1, eq), Unlink::Unlink);
        let target = Target {
            match_bits: 9,
            ..two.target
        };
        from.put(md.unwrap(), AckRequest::NoAck, target, 0).unwrap();
        two.until(Some(EventKind::Unlink), Some(EventKind::Unlink));
    });
    table.measure("put, that nothing matches", || {
        let target = Target {
            match_bits: 10,
            ..two.target
        };
        from.put_region(two.source, (0, 64), AckRequest::Ack, target, 0)
            .unwrap();
        two.until(Some(EventKind::SendEnd), None);
    });
}
