//! The delivery rules written the plainest way: lists of everything, searched from the front, bytes
//! as lists of addresses. Handles are labels that the interface under test chose.

mod arrivals;

use portals_core::{
    ANY, AcEntry, Body, EqHandle, Error, Event, EventKind, Header, InsertPosition, Limits, MdDesc,
    MdHandle, MdOptions as O, MdSnapshot, MeHandle, MeSpec, Memory, NiFail, ProcessId, Segment,
    Status, Unlink,
};
use std::collections::BTreeMap;

/// What a message did, in terms that do not depend on how memory is described.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Dropped,
    Acked,
    Deposit(Vec<u64>, u32),
    Reply(Header, Vec<u64>, u32),
    Swap(Header, Vec<u64>, u32),
}

#[derive(Clone, Debug)]
struct Entry {
    me: MeHandle,
    spec: MeSpec,
    md: Option<MdHandle>,
}

#[derive(Clone, Debug)]
struct Descriptor {
    md: MdHandle,
    desc: MdDesc,
    bytes: Vec<u64>,
    /// `None` is infinite.
    left: Option<u32>,
    offset: u64,
    active: bool,
    spent: bool,
    unlink: Unlink,
    acks_awaited: u32,
    replies_awaited: u32,
}

#[derive(Clone, Debug)]
struct Queue {
    eq: EqHandle,
    room: usize,
    unread: Vec<Event>,
    lost: bool,
    next: u32,
}

#[derive(Clone, Debug)]
struct Operation {
    number: u64,
    md: MdHandle,
    eq: Option<EqHandle>,
    /// Kind and link are filled in when it is posted.
    event: Event,
    end: EventKind,
    start: Option<u32>,
    tells_end: bool,
    ack: Option<Header>,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    id: ProcessId,
    uid: u32,
    jid: u32,
    limits: Limits,
    lists: BTreeMap<u32, Vec<Entry>>,
    mds: Vec<Descriptor>,
    eqs: Vec<Queue>,
    ac: Vec<AcEntry>,
    operations: Vec<Operation>,
    numbers: u64,
    pub(crate) status: Status,
}

fn bytes_of(memory: &Memory) -> Vec<u64> {
    let range = |s: &Segment| s.addr..s.addr + s.len;
    match memory {
        Memory::Contiguous(s) => range(s).collect(),
        Memory::Iovec { segments, .. } => segments.iter().flat_map(range).collect(),
    }
}

fn fits(rule: u32, value: u32) -> bool {
    rule == ANY || rule == value
}

fn left_of(threshold: i32) -> Option<u32> {
    (threshold != -1).then_some(threshold.max(0) as u32)
}

impl Model {
    pub(crate) fn new(id: ProcessId, uid: u32, jid: u32, limits: Limits) -> Self {
        let initial = AcEntry {
            match_id: ProcessId::ANY,
            uid,
            jid: ANY,
            pt_index: ANY,
        };
        Self {
            id,
            uid,
            jid,
            limits,
            lists: (0..=limits.max_pt_index as u32)
                .map(|pt| (pt, Vec::new()))
                .collect(),
            mds: Vec::new(),
            eqs: Vec::new(),
            ac: vec![initial; limits.max_ac_index as usize + 1],
            operations: Vec::new(),
            numbers: 0,
            status: Status::default(),
        }
    }

    fn place(&self, me: MeHandle) -> Option<(u32, usize)> {
        self.lists
            .iter()
            .find_map(|(pt, list)| Some((*pt, list.iter().position(|e| e.me == me)?)))
    }

    fn md(&self, md: MdHandle) -> Option<&Descriptor> {
        self.mds.iter().find(|d| d.md == md)
    }

    fn md_mut(&mut self, md: MdHandle) -> Option<&mut Descriptor> {
        self.mds.iter_mut().find(|d| d.md == md)
    }

    fn eq_mut(&mut self, eq: EqHandle) -> Option<&mut Queue> {
        self.eqs.iter_mut().find(|q| q.eq == eq)
    }

    fn busy(&self, md: MdHandle) -> bool {
        self.operations.iter().any(|o| o.md == md)
    }

    // ---- objects; `made` is the handle that the interface under test gave ----

    pub(crate) fn attach(
        &mut self,
        pt: u32,
        spec: MeSpec,
        position: InsertPosition,
        made: Option<MeHandle>,
    ) -> Result<(), Error> {
        if !self.lists.contains_key(&pt) {
            return Err(Error::PtIndexInvalid);
        }
        let at = match position {
            InsertPosition::Before => 0,
            InsertPosition::After => self.lists[&pt].len(),
        };
        self.add_entry(pt, at, spec, made)
    }

    fn add_entry(
        &mut self,
        pt: u32,
        at: usize,
        spec: MeSpec,
        made: Option<MeHandle>,
    ) -> Result<(), Error> {
        if self.lists.values().map(Vec::len).sum::<usize>() >= self.limits.max_mes as usize {
            return Err(Error::NoSpace);
        }
        let list = self.lists.get_mut(&pt).ok_or(Error::PtIndexInvalid)?;
        if list.len() >= self.limits.max_me_list as usize {
            return Err(Error::MeListTooLong);
        }
        if let Some(me) = made {
            list.insert(at, Entry { me, spec, md: None });
        }
        Ok(())
    }

    pub(crate) fn insert(
        &mut self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
        made: Option<MeHandle>,
    ) -> Result<(), Error> {
        let (pt, at) = self.place(base).ok_or(Error::MeInvalid)?;
        let at = at + usize::from(position == InsertPosition::After);
        self.add_entry(pt, at, spec, made)
    }

    pub(crate) fn me_unlink(&mut self, me: MeHandle) -> Result<(), Error> {
        let (pt, at) = self.place(me).ok_or(Error::MeInvalid)?;
        if let Some(md) = self.lists[&pt][at].md {
            if self.busy(md) {
                return Err(Error::MeInUse);
            }
            self.mds
                .retain(|d| d.md != md || d.unlink == Unlink::Retain);
        }
        self.lists.get_mut(&pt).ok_or(Error::Fail)?.remove(at);
        Ok(())
    }

    fn legal(&self, desc: &MdDesc) -> Result<(), Error> {
        let pieces = match &desc.memory {
            Memory::Contiguous(s) => vec![*s],
            Memory::Iovec { segments, .. } => segments.clone(),
        };
        let many = pieces.len() > self.limits.max_md_iovecs as usize
            && matches!(desc.memory, Memory::Iovec { .. });
        if many || pieces.iter().any(|s| s.addr == 0 && s.len > 0) {
            return Err(Error::MdIllegal);
        }
        match desc.eq {
            Some(eq) if self.eqs.iter().all(|q| q.eq != eq) => Err(Error::EqInvalid),
            _ => Ok(()),
        }
    }

    fn add_md(
        &mut self,
        desc: MdDesc,
        unlink: Unlink,
        made: Option<MdHandle>,
    ) -> Result<(), Error> {
        self.legal(&desc)?;
        if self.mds.len() >= self.limits.max_mds as usize {
            return Err(Error::NoSpace);
        }
        if let Some(md) = made {
            let left = left_of(desc.threshold);
            self.mds.push(Descriptor {
                md,
                bytes: bytes_of(&desc.memory),
                left,
                offset: 0,
                active: left != Some(0),
                spent: false,
                unlink,
                acks_awaited: 0,
                replies_awaited: 0,
                desc,
            });
        }
        Ok(())
    }

    pub(crate) fn md_attach(
        &mut self,
        me: MeHandle,
        desc: MdDesc,
        unlink: Unlink,
        made: Option<MdHandle>,
    ) -> Result<(), Error> {
        let (pt, at) = self.place(me).ok_or(Error::MeInvalid)?;
        if self.lists[&pt][at].md.is_some() {
            return Err(Error::MeInUse);
        }
        self.add_md(desc, unlink, made)?;
        self.lists.get_mut(&pt).ok_or(Error::Fail)?[at].md = made;
        Ok(())
    }

    pub(crate) fn md_bind(
        &mut self,
        desc: MdDesc,
        unlink: Unlink,
        made: Option<MdHandle>,
    ) -> Result<(), Error> {
        self.add_md(desc, unlink, made)
    }

    pub(crate) fn md_unlink(&mut self, md: MdHandle) -> Result<(), Error> {
        self.md(md).ok_or(Error::MdInvalid)?;
        if self.busy(md) {
            return Err(Error::MdInUse);
        }
        self.remove_md(md);
        Ok(())
    }

    fn remove_md(&mut self, md: MdHandle) {
        self.mds.retain(|d| d.md != md);
        for list in self.lists.values_mut() {
            list.retain(|e| e.md != Some(md) || e.spec.unlink == Unlink::Retain);
            for e in list.iter_mut().filter(|e| e.md == Some(md)) {
                e.md = None;
            }
        }
    }

    fn quiet(&self, test: Option<EqHandle>) -> Result<bool, Error> {
        let Some(eq) = test else { return Ok(true) };
        let queue = self
            .eqs
            .iter()
            .find(|q| q.eq == eq)
            .ok_or(Error::EqInvalid)?;
        Ok(queue.unread.is_empty() && self.operations.iter().all(|o| o.eq != Some(eq)))
    }

    pub(crate) fn md_update(
        &mut self,
        md: MdHandle,
        new: MdDesc,
        test: Option<EqHandle>,
    ) -> Result<MdSnapshot, Error> {
        let old = snapshot(self.md(md).ok_or(Error::MdInvalid)?);
        self.legal(&new)?;
        if !self.quiet(test)? || (test.is_some() && self.busy(md)) {
            return Err(Error::MdNoUpdate);
        }
        let d = self.md_mut(md).ok_or(Error::MdInvalid)?;
        d.left = left_of(new.threshold);
        d.active = d.left != Some(0);
        d.spent = false;
        d.offset = 0;
        d.bytes = bytes_of(&new.memory);
        d.desc = new;
        Ok(old)
    }

    pub(crate) fn md_renew(
        &mut self,
        md: MdHandle,
        threshold: i32,
        user_ptr: u64,
        test: Option<EqHandle>,
    ) -> Result<(), Error> {
        let old = self.md(md).ok_or(Error::MdInvalid)?;
        if threshold == -1 || old.desc.threshold == -1 {
            return Err(Error::MdIllegal);
        }
        let new = MdDesc {
            threshold,
            user_ptr,
            ..old.desc.clone()
        };
        self.md_update(md, new, test).map(drop)
    }

    pub(crate) fn post(
        &mut self,
        base: MeHandle,
        (spec, position): (MeSpec, InsertPosition),
        desc: MdDesc,
        unlink: Unlink,
        test: Option<EqHandle>,
        made: Option<(MeHandle, MdHandle)>,
    ) -> Result<(), Error> {
        // Handles first: the base, then the queues.
        self.place(base).ok_or(Error::MeInvalid)?;
        self.legal(&desc)?;
        if !self.quiet(test)? {
            return Err(Error::MdNoUpdate);
        }
        self.insert(base, spec, position, None)?;
        self.add_md(desc.clone(), unlink, None)?;
        let Some((me, md)) = made else { return Ok(()) };
        self.insert(base, spec, position, Some(me))?;
        self.md_attach(me, desc, unlink, Some(md))
    }

    pub(crate) fn eq_alloc(&mut self, count: u64, made: Option<EqHandle>) -> Result<(), Error> {
        if self.eqs.len() >= self.limits.max_eqs as usize {
            return Err(Error::NoSpace);
        }
        let room = count.max(1) as usize;
        self.eqs.extend(made.map(|eq| Queue {
            eq,
            room,
            unread: Vec::new(),
            lost: false,
            next: 0u32.wrapping_sub(room as u32),
        }));
        Ok(())
    }

    pub(crate) fn eq_free(&mut self, eq: EqHandle) -> Result<(), Error> {
        self.eq_mut(eq).ok_or(Error::EqInvalid)?;
        let named = self.mds.iter().any(|d| d.desc.eq == Some(eq));
        if named || self.operations.iter().any(|o| o.eq == Some(eq)) {
            return Err(Error::EqInUse);
        }
        self.eqs.retain(|q| q.eq != eq);
        Ok(())
    }

    pub(crate) fn eq_get(&mut self, eq: EqHandle) -> Result<Option<(Event, bool)>, Error> {
        let q = self.eq_mut(eq).ok_or(Error::EqInvalid)?;
        if q.unread.is_empty() {
            return Ok(None);
        }
        let event = q.unread.remove(0);
        let lost = q.lost;
        q.lost = false;
        Ok(Some((event, lost)))
    }

    pub(crate) fn has_events(&self) -> bool {
        self.eqs.iter().any(|q| !q.unread.is_empty())
    }

    pub(crate) fn ac_entry(&mut self, index: u32, entry: AcEntry) -> Result<(), Error> {
        if entry.pt_index != ANY && !self.lists.contains_key(&entry.pt_index) {
            return Err(Error::PtIndexInvalid);
        }
        *self
            .ac
            .get_mut(index as usize)
            .ok_or(Error::AcIndexInvalid)? = entry;
        Ok(())
    }

    // ---- events and operations ----

    fn tell(
        &mut self,
        eq: Option<EqHandle>,
        mut event: Event,
        kind: EventKind,
        link: Option<u32>,
    ) -> Option<u32> {
        event.kind = kind;
        let q = self.eq_mut(eq?)?;
        event.sequence = q.next;
        event.link = link.unwrap_or(q.next);
        q.next = q.next.wrapping_add(1);
        q.unread.push(event);
        if q.unread.len() > q.room {
            q.unread.remove(0);
            q.lost = true;
        }
        Some(event.sequence)
    }

    fn spend(&mut self, md: MdHandle) {
        if let Some(d) = self.md_mut(md)
            && let Some(left) = d.left.filter(|left| *left > 0)
        {
            d.left = Some(left - 1);
            if left == 1 {
                d.active = false;
                d.spent = true;
            }
        }
    }

    /// Starts an operation whose threshold is accounted; returns its number.
    fn start(
        &mut self,
        event: Event,
        kinds: (EventKind, EventKind),
        ack: Option<Header>,
    ) -> Result<u64, Error> {
        let md = event.md_handle;
        let d = self.md(md).ok_or(Error::MdInvalid)?;
        let (eq, options) = (d.desc.eq, d.desc.options);
        let event = Event {
            md: snapshot(d),
            ..event
        };
        let start = if options.contains(O::EVENT_START_DISABLE) {
            None
        } else {
            self.tell(eq, event, kinds.0, None)
        };
        self.numbers += 1;
        self.operations.push(Operation {
            number: self.numbers,
            md,
            eq,
            event,
            end: kinds.1,
            start,
            tells_end: !options.contains(O::EVENT_END_DISABLE),
            ack,
        });
        Ok(self.numbers)
    }

    /// Ends an operation; returns the ack to send.
    pub(crate) fn end(&mut self, number: u64, fail: NiFail) -> Option<Header> {
        let at = self.operations.iter().position(|o| o.number == number)?;
        let o = self.operations.remove(at);
        let d = self.md(o.md)?;
        let event = Event {
            md: snapshot(d),
            ni_fail: fail,
            ..o.event
        };
        let mut last = o.start;
        if o.tells_end
            && let Some(sequence) = self.tell(o.eq, event, o.end, o.start)
        {
            last = Some(sequence);
        }
        self.unlink_if_spent(event, last);
        o.ack.filter(|_| fail == NiFail::OK)
    }

    fn unlink_if_spent(&mut self, cause: Event, last: Option<u32>) {
        let md = cause.md_handle;
        let Some(d) = self.md(md).cloned() else {
            return;
        };
        if d.spent && !d.active && d.unlink == Unlink::Unlink && !self.busy(md) {
            self.remove_md(md);
            let event = Event {
                ni_fail: NiFail::OK,
                md: snapshot(&d),
                ..cause
            };
            self.tell(d.desc.eq, event, EventKind::Unlink, last);
        }
    }

    fn blank(&self, md: MdHandle, h: &Header, who: (ProcessId, u32, u32)) -> Option<Event> {
        Some(Event {
            kind: EventKind::Unlink,
            initiator: who.0,
            uid: who.1,
            jid: who.2,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            rlength: 0,
            mlength: 0,
            offset: 0,
            md_handle: md,
            md: snapshot(self.md(md)?),
            hdr_data: 0,
            link: 0,
            ni_fail: NiFail::OK,
            sequence: 0,
        })
    }

    // ---- requests of this process ----

    pub(crate) fn part(
        &self,
        md: MdHandle,
        region: Option<(u64, u64)>,
    ) -> Result<(u64, Vec<u64>), Error> {
        let d = self.md(md).filter(|d| d.active).ok_or(Error::MdInvalid)?;
        let total = d.bytes.len() as u128;
        let (offset, length) = region.unwrap_or((0, total as u64));
        if u128::from(offset) + u128::from(length) > total {
            return Err(Error::MdIllegal);
        }
        let from = offset as usize;
        Ok((offset, d.bytes[from..from + length as usize].to_vec()))
    }

    /// A put or getput leaves: SEND_START and one count.
    pub(crate) fn sent(&mut self, md: MdHandle, h: &Header, offset: u64) -> Result<u64, Error> {
        let (length, hdr_data) = match h.body {
            Body::Put {
                length,
                hdr_data,
                ack_md,
                ..
            } => {
                if let Some(d) = ack_md.and_then(|md| self.md_mut(md)) {
                    d.acks_awaited += 1;
                }
                (length, hdr_data)
            }
            Body::GetPut {
                length,
                hdr_data,
                reply_md,
                ..
            } => {
                if let Some(d) = self.md_mut(reply_md) {
                    d.replies_awaited += 1;
                }
                (length, hdr_data)
            }
            _ => return Err(Error::Fail),
        };
        self.spend(md);
        self.status.send_count += 1;
        self.status.send_length += length;
        let blank = self
            .blank(md, h, (self.id, self.uid, self.jid))
            .ok_or(Error::MdInvalid)?;
        let event = Event {
            rlength: length,
            mlength: length,
            offset,
            hdr_data,
            ..blank
        };
        self.start(event, (EventKind::SendStart, EventKind::SendEnd), None)
    }

    pub(crate) fn active_mds(&self) -> impl Iterator<Item = MdHandle> {
        self.mds.iter().filter(|d| d.active).map(|d| d.md)
    }

    pub(crate) fn asked(&mut self, md: MdHandle) {
        self.status.send_count += 1;
        if let Some(d) = self.md_mut(md) {
            d.replies_awaited += 1;
        }
    }

    pub(crate) fn wants_ack(&self, md: MdHandle) -> bool {
        self.md(md).is_some_and(|d| d.desc.eq.is_some())
    }
}

fn snapshot(d: &Descriptor) -> MdSnapshot {
    let (start, length) = match &d.desc.memory {
        Memory::Contiguous(s) => (s.addr, s.len),
        Memory::Iovec { start, segments } => (*start, segments.len() as u64),
    };
    MdSnapshot {
        start,
        length,
        threshold: d.left.map_or(-1, |left| left as i32),
        max_size: d.desc.max_size,
        options: d.desc.options,
        user_ptr: d.desc.user_ptr,
        eq: d.desc.eq,
    }
}
