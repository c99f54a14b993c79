//! One collective operation of one image, as a state machine: messages in, messages out, no conduit.
//!
//! ```text
//!  (wait for all) ──► data ──► (wait for all)      the waits only with ALLSYNC
//! ```
//!
//! An image is a thread that takes part; each works for itself, and messages name images. A wait for all is a
//! dissemination: in round k an image tells the one 2^k above it, and goes on when it heard from below. Broadcasts go
//! down a binomial tree; the other operations are one message from each image to each that needs its data, which keeps
//! the order of operands. A message may come before the operation it is for has started here; it waits in the
//! [`Inbox`].

use super::memory::{Memory, Reduction};
use conduit::BarrierName;
use std::collections::BTreeMap;

/// Which message of which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The team.
    pub(crate) team: u32,
    /// The image it is for.
    pub(crate) to: u32,
    /// The image it comes from.
    pub(crate) from: u32,
    /// The number of the operation in its team.
    pub(crate) seq: u32,
    /// Round of a wait, or data.
    pub(crate) kind: u8,
}

const IN: u8 = 0;
const OUT: u8 = 64;
const DATA: u8 = 128;

/// What one image tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) key: Key,
    /// What is known of the name of a barrier.
    pub(crate) name: BarrierName,
    pub(crate) data: Vec<u8>,
}

#[derive(Debug)]
struct Incoming {
    name: BarrierName,
    data: Vec<u8>,
    arrived: usize,
}

/// Longer ones do not exist.
const LONGEST: usize = 1 << 36;

/// Messages that no operation has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox(BTreeMap<Key, Incoming>);

impl Inbox {
    /// A part of a message of `total` bytes arrived; parts outside of it are dropped.
    pub(crate) fn part(
        &mut self,
        key: Key,
        name: BarrierName,
        at: usize,
        total: usize,
        part: &[u8],
    ) {
        if total > LONGEST {
            return;
        }
        let m = self.0.entry(key).or_insert_with(|| Incoming {
            name,
            data: vec![0; total],
            arrived: 0,
        });
        let end = at.saturating_add(part.len());
        if let Some(room) = m.data.get_mut(at..end) {
            room.copy_from_slice(part);
            m.arrived += part.len();
        }
    }

    fn take(&mut self, key: Key) -> Option<(BarrierName, Vec<u8>)> {
        let whole = self.0.get(&key).is_some_and(|m| m.arrived >= m.data.len());
        let m = whole.then(|| self.0.remove(&key)).flatten()?;
        Some((m.name, m.data))
    }
}

/// What an operation does with data. Ranks are places in the team.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing: a barrier, which is a wait for all.
    Barrier,
    Broadcast {
        root: usize,
        src: Memory,
        dst: Memory,
    },
    /// `src` is as many blocks as there are ranks, `dst` one.
    Scatter {
        root: usize,
        src: Memory,
        dst: Memory,
    },
    /// `dst` is as many blocks as there are ranks, `src` one.
    Gather {
        root: usize,
        src: Memory,
        dst: Memory,
    },
    GatherAll {
        src: Memory,
        dst: Memory,
    },
    Exchange {
        src: Memory,
        dst: Memory,
    },
    Reduce {
        root: usize,
        src: Memory,
        dst: Memory,
        by: Reduction,
    },
    /// With `inclusive`, the own operand counts.
    Scan {
        src: Memory,
        dst: Memory,
        by: Reduction,
        inclusive: bool,
    },
}

impl Work {
    /// Bytes of the own part.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Barrier => 0,
            Self::Broadcast { dst, .. } | Self::Scatter { dst, .. } => dst.len(),
            Self::Gather { src, .. }
            | Self::GatherAll { src, .. }
            | Self::Exchange { src, .. }
            | Self::Reduce { src, .. }
            | Self::Scan { src, .. } => src.len(),
        }
    }
}

/// A wait for all, and what was heard in it.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    round: u8,
    sent: bool,
    known: BarrierName,
}

#[derive(Debug)]
enum Phase {
    In(Meeting),
    Data,
    Receive,
    Out(Meeting),
    Done,
}

/// One operation of one image.
#[derive(Debug)]
pub(crate) struct Op {
    team: u32,
    members: Vec<u32>,
    /// The place of the image in the team.
    me: usize,
    seq: u32,
    sync_out: bool,
    work: Work,
    phase: Phase,
    name: BarrierName,
    /// Ranks whose data has not come.
    missing: Vec<usize>,
    /// Operands, by rank.
    operands: Vec<Vec<u8>>,
}

impl Op {
    /// `sync`: whether all meet before, and after. `name` is that of a barrier.
    pub(crate) fn new(
        (team, members, me, seq): (u32, Vec<u32>, usize, u32),
        sync: (bool, bool),
        work: Work,
        name: BarrierName,
    ) -> Self {
        let meeting = Meeting {
            round: 0,
            sent: false,
            known: name,
        };
        Self {
            team,
            members,
            me,
            seq,
            sync_out: sync.1,
            phase: if sync.0 {
                Phase::In(meeting)
            } else {
                Phase::Data
            },
            work,
            name,
            missing: Vec::new(),
            operands: Vec::new(),
        }
    }

    /// What all know together, once the operation is complete.
    pub(crate) fn result(&self) -> Option<BarrierName> {
        matches!(self.phase, Phase::Done).then_some(self.name)
    }

    fn key(&self, from: usize, to: usize, kind: u8) -> Key {
        Key {
            team: self.team,
            to: self.members[to],
            from: self.members[from],
            seq: self.seq,
            kind,
        }
    }

    fn send(&self, to: usize, kind: u8, name: BarrierName, data: Vec<u8>) -> Message {
        Message {
            key: self.key(self.me, to, kind),
            name,
            data,
        }
    }

    /// Does what can be done; messages to send go to `out`.
    pub(crate) fn step(&mut self, inbox: &mut Inbox, out: &mut Vec<Message>) {
        loop {
            let next = match &self.phase {
                Phase::In(m) => match self.meet(*m, IN, inbox, out) {
                    Ok(name) => {
                        self.name = name;
                        Phase::Data
                    }
                    Err(m) => {
                        self.phase = Phase::In(m);
                        return;
                    }
                },
                Phase::Data => {
                    self.begin(out);
                    Phase::Receive
                }
                Phase::Receive => {
                    if !self.receive(inbox, out) {
                        return;
                    }
                    if self.sync_out {
                        Phase::Out(Meeting {
                            round: 0,
                            sent: false,
                            known: BarrierName::Anonymous,
                        })
                    } else {
                        Phase::Done
                    }
                }
                Phase::Out(m) => match self.meet(*m, OUT, inbox, out) {
                    Ok(_) => Phase::Done,
                    Err(m) => {
                        self.phase = Phase::Out(m);
                        return;
                    }
                },
                Phase::Done => return,
            };
            self.phase = next;
        }
    }

    fn meet(
        &self,
        mut m: Meeting,
        base: u8,
        inbox: &mut Inbox,
        out: &mut Vec<Message>,
    ) -> Result<BarrierName, Meeting> {
        let n = self.members.len();
        loop {
            let distance = 1usize << m.round;
            if distance >= n {
                return Ok(m.known);
            }
            let kind = base + m.round;
            if !m.sent {
                out.push(self.send((self.me + distance) % n, kind, m.known, Vec::new()));
                m.sent = true;
            }
            let from = (self.me + n - distance) % n;
            let Some((name, _)) = inbox.take(self.key(from, self.me, kind)) else {
                return Err(m);
            };
            m.known = m.known.merge(name);
            m.round += 1;
            m.sent = false;
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.members.len()).filter(move |r| *r != me)
    }

    fn data(&self, to: usize, data: Vec<u8>) -> Message {
        self.send(to, DATA, BarrierName::Anonymous, data)
    }

    /// Messages down the tree of a broadcast.
    fn forward(&self, root: usize, data: &[u8], out: &mut Vec<Message>) {
        let n = self.members.len();
        let v = (self.me + n - root) % n;
        let mut step = 1;
        while step < n && v & step == 0 {
            if v + step < n {
                out.push(self.data((v + step + root) % n, data.to_vec()));
            }
            step <<= 1;
        }
    }

    /// Sends the own data, and says whose is awaited.
    fn begin(&mut self, out: &mut Vec<Message>) {
        let n = self.members.len();
        let me = self.me;
        let mut missing = Vec::new();
        match &self.work {
            Work::Barrier => {}
            Work::Broadcast { root, src, dst } => {
                if *root == me {
                    let data = src.load();
                    dst.store(&data);
                    self.forward(*root, &data, out);
                } else {
                    let v = (me + n - root) % n;
                    missing.push(((v & (v - 1)) + root) % n);
                }
            }
            Work::Scatter { root, src, dst } => {
                if *root == me {
                    for to in self.others() {
                        out.push(self.data(to, src.block(to, dst.len()).load()));
                    }
                    dst.store(&src.block(me, dst.len()).load());
                } else {
                    missing.push(*root);
                }
            }
            Work::Gather { root, src, dst } => {
                if *root == me {
                    dst.block(me, src.len()).store(&src.load());
                    missing.extend(self.others());
                } else {
                    out.push(self.data(*root, src.load()));
                }
            }
            Work::GatherAll { src, dst } => {
                let data = src.load();
                out.extend(self.others().map(|to| self.data(to, data.clone())));
                dst.block(me, src.len()).store(&data);
                missing.extend(self.others());
            }
            Work::Exchange { src, dst } => {
                let len = src.len() / n;
                for to in self.others() {
                    out.push(self.data(to, src.block(to, len).load()));
                }
                dst.block(me, len).store(&src.block(me, len).load());
                missing.extend(self.others());
            }
            Work::Reduce { root, src, .. } => {
                if *root == me {
                    self.operands = vec![Vec::new(); n];
                    self.operands[me] = src.load();
                    missing.extend(self.others());
                } else {
                    out.push(self.data(*root, src.load()));
                }
            }
            Work::Scan { src, .. } => {
                let data = src.load();
                out.extend((me + 1..n).map(|to| self.data(to, data.clone())));
                self.operands = vec![Vec::new(); n];
                self.operands[me] = data;
                missing.extend(0..me);
            }
        }
        self.missing = missing;
    }

    /// Takes what came; whether all has.
    fn receive(&mut self, inbox: &mut Inbox, out: &mut Vec<Message>) -> bool {
        let waiting = std::mem::take(&mut self.missing);
        for from in waiting {
            let key = self.key(from, self.me, DATA);
            match inbox.take(key) {
                Some((_, data)) => self.took(from, data, out),
                None => self.missing.push(from),
            }
        }
        if !self.missing.is_empty() {
            return false;
        }
        self.combine();
        true
    }

    fn took(&mut self, from: usize, data: Vec<u8>, out: &mut Vec<Message>) {
        match &self.work {
            Work::Barrier => {}
            Work::Broadcast { root, dst, .. } => {
                dst.store(&data);
                self.forward(*root, &data, out);
            }
            Work::Scatter { dst, .. } => dst.store(&data),
            Work::Gather { dst, .. } | Work::GatherAll { dst, .. } | Work::Exchange { dst, .. } => {
                dst.block(from, data.len()).store(&data);
            }
            Work::Reduce { .. } | Work::Scan { .. } => self.operands[from] = data,
        }
    }

    fn combine(&mut self) {
        let operands = std::mem::take(&mut self.operands);
        let (dst, by, range) = match &self.work {
            Work::Reduce { root, dst, by, .. } if *root == self.me => (dst, by, 0..operands.len()),
            Work::Scan {
                dst, by, inclusive, ..
            } => (dst, by, 0..self.me + usize::from(*inclusive)),
            _ => return,
        };
        let mut operands = operands.into_iter().take(range.end);
        let Some(mut result) = operands.next() else {
            return;
        };
        for right in operands {
            result = by.apply(&result, &right);
        }
        dst.store(&result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs one operation on `n` images with messages delivered in an order that `seed` shuffles.
    fn run(n: usize, seed: usize, op: impl Fn(usize) -> Op) -> Vec<BarrierName> {
        let mut ops: Vec<Op> = (0..n).map(op).collect();
        let mut inboxes: Vec<Inbox> = (0..n).map(|_| Inbox::default()).collect();
        let mut wire: VecDeque<Message> = VecDeque::new();
        let mut turn = seed;
        loop {
            for (op, inbox) in ops.iter_mut().zip(&mut inboxes) {
                let mut out = Vec::new();
                op.step(inbox, &mut out);
                wire.extend(out);
            }
            let Some(k) = (!wire.is_empty()).then(|| turn % wire.len()) else {
                break;
            };
            turn = turn.wrapping_mul(31).wrapping_add(7);
            let m = wire.remove(k).unwrap();
            let inbox = &mut inboxes[m.key.to as usize];
            // In two parts, the second first.
            let half = m.data.len() / 2;
            inbox.part(m.key, m.name, half, m.data.len(), &m.data[half..]);
            inbox.part(m.key, m.name, 0, m.data.len(), &m.data[..half]);
        }
        assert!(inboxes.iter().all(|i| i.0.is_empty()));
        ops.iter().map(|o| o.result().unwrap()).collect()
    }

    fn new(n: usize, me: usize, work: Work) -> Op {
        let members = (0..n as u32).collect();
        Op::new(
            (1, members, me, 5),
            (true, true),
            work,
            BarrierName::Anonymous,
        )
    }

    fn mem(v: &mut [u8]) -> Memory {
        Memory::of(v)
    }

    #[test]
    fn every_root_broadcasts_to_all() {
        for n in 1..=9 {
            for root in 0..n {
                let mut src = vec![7u8, root as u8, 9];
                let mut dst = vec![vec![0u8; 3]; n];
                let (src_at, dst_at): (_, Vec<_>) =
                    (mem(&mut src), dst.iter_mut().map(|d| mem(d)).collect());
                run(n, root, |me| {
                    new(
                        n,
                        me,
                        Work::Broadcast {
                            root,
                            src: src_at,
                            dst: dst_at[me],
                        },
                    )
                });
                assert!(dst.iter().all(|d| *d == src), "{n} images, root {root}");
            }
        }
    }

    #[test]
    fn blocks_go_where_they_belong() {
        for n in 1..=6usize {
            let mut src: Vec<Vec<u8>> = (0..n)
                .map(|i| (0..n).map(|j| (16 * i + j) as u8).collect())
                .collect();
            let mut dst = vec![vec![0u8; n]; n];
            let s: Vec<_> = src.iter_mut().map(|d| mem(d)).collect();
            let d: Vec<_> = dst.iter_mut().map(|d| mem(d)).collect();
            run(n, 3, |me| {
                new(
                    n,
                    me,
                    Work::Exchange {
                        src: s[me],
                        dst: d[me],
                    },
                )
            });
            for (i, got) in dst.iter().enumerate() {
                let want: Vec<u8> = (0..n).map(|j| (16 * j + i) as u8).collect();
                assert_eq!(*got, want);
            }
            run(n, 4, |me| {
                new(
                    n,
                    me,
                    Work::GatherAll {
                        src: s[me].block(0, 1),
                        dst: d[me],
                    },
                )
            });
            let want: Vec<u8> = (0..n).map(|j| (16 * j) as u8).collect();
            assert!(dst.iter().all(|d| *d == want));
            let root = n - 1;
            run(n, 5, |me| {
                new(
                    n,
                    me,
                    Work::Scatter {
                        root,
                        src: s[root],
                        dst: d[me].block(0, 1),
                    },
                )
            });
            assert!((0..n).all(|i| dst[i][0] == src[root][i]));
            run(n, 6, |me| {
                new(
                    n,
                    me,
                    Work::Gather {
                        root,
                        src: d[me].block(0, 1),
                        dst: s[0],
                    },
                )
            });
            assert!((0..n).all(|i| src[0][i] == dst[i][0]));
        }
    }

    #[test]
    fn operands_are_combined_in_the_order_of_ranks() {
        // Concatenation of digits is not commutative.
        let by =
            || Reduction::by(|left, right| vec![left[0].wrapping_mul(10).wrapping_add(right[0])]);
        let n = 3;
        let mut src = [[1u8], [2], [3]];
        let mut dst = [[0u8]; 3];
        let s: Vec<_> = src.iter_mut().map(|d| mem(d)).collect();
        let d: Vec<_> = dst.iter_mut().map(|d| mem(d)).collect();
        run(n, 1, |me| {
            new(
                n,
                me,
                Work::Reduce {
                    root: 1,
                    src: s[me],
                    dst: d[me],
                    by: by(),
                },
            )
        });
        assert_eq!(dst, [[0], [123], [0]]);
        run(n, 2, |me| {
            new(
                n,
                me,
                Work::Scan {
                    src: s[me],
                    dst: d[me],
                    by: by(),
                    inclusive: true,
                },
            )
        });
        assert_eq!(dst, [[1], [12], [123]]);
        run(n, 2, |me| {
            new(
                n,
                me,
                Work::Scan {
                    src: s[me],
                    dst: d[me],
                    by: by(),
                    inclusive: false,
                },
            )
        });
        assert_eq!(dst, [[1], [1], [12]], "nothing is before the first");
    }

    #[test]
    fn names_of_barriers_meet() {
        let barrier = |n, name: fn(usize) -> BarrierName| {
            run(n, 1, |me| {
                let members = (0..n as u32).collect();
                Op::new((1, members, me, 0), (true, false), Work::Barrier, name(me))
            })
        };
        let mixed = |me| {
            if me == 2 {
                BarrierName::Named(4)
            } else {
                BarrierName::Anonymous
            }
        };
        assert_eq!(barrier(5, mixed), vec![BarrierName::Named(4); 5]);
        let differ = |me| BarrierName::Named(me as i32);
        assert_eq!(barrier(5, differ), vec![BarrierName::Mismatch; 5]);
    }
}
