//! Collectives of the GASNet-1 drafts.
//!
//! ```text
//!  entries   what C calls
//!  mod       teams, images, the operations under way, messages as active messages
//!  machine   one operation of one image
//!  memory    the caller's memory and functions
//! ```
//!
//! Whoever polls drives all operations of the process. Their state is locked apart from the conduit, and never while
//! something is sent, because sending may run a handler.

pub mod entries;
mod machine;
mod memory;

use conduit::{BarrierName, Conduit, FIRST_EXTENDED, HandlerEntry, MAX_MEDIUM};
use machine::{Inbox, Key, Message, Op, Work};
use memory::FunctionEntry;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::am::Running;
use crate::{state, trace};

/// Index of the handler of messages.
const MESSAGE: u8 = FIRST_EXTENDED;

/// Images that work together, by image number.
#[derive(Clone, Debug)]
struct Team {
    id: u32,
    members: Vec<u32>,
}

#[derive(Debug, Default)]
struct State {
    /// First image of each node, and the number of images; empty for one on each node.
    first: Vec<u32>,
    functions: Vec<FunctionEntry>,
    teams: Vec<Team>,
    inbox: Inbox,
    ops: Vec<(u64, Op)>,
    done: BTreeMap<u64, BarrierName>,
    started: u64,
    /// Operations of an image in a team so far.
    seq: BTreeMap<(u32, u32), u32>,
    /// Barriers of an image in a team that were notified and not waited for.
    notified: BTreeMap<(u32, u32), u64>,
    /// What the last barrier of a team was called.
    last: BTreeMap<u32, BarrierName>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
/// Operations under way.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Somebody sends what operations want to.
static SENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IMAGE: Cell<Option<u32>> = const { Cell::new(None) };
}

fn lock() -> MutexGuard<'static, State> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.teams.is_empty() {
        state.set_images(&[]);
    }
    state
}

impl State {
    /// `counts`: images of each node; empty for one each.
    fn set_images(&mut self, counts: &[u32]) {
        let mut first = vec![0u32];
        for n in counts {
            let next = first[first.len() - 1].checked_add(*n);
            first.push(next.unwrap_or_else(|| state::fatal("gasnet_coll_init: too many images")));
        }
        let images = if counts.is_empty() {
            first.clear();
            state::nodes()
        } else {
            first[first.len() - 1]
        };
        self.first = first;
        self.teams = vec![Team {
            id: 0,
            members: (0..images).collect(),
        }];
    }

    fn node_of(&self, image: u32) -> u32 {
        if self.first.is_empty() {
            return image;
        }
        let after = self.first.partition_point(|f| *f <= image);
        after.saturating_sub(1) as u32
    }

    /// The image that the calling thread is.
    fn image(&self) -> u32 {
        IMAGE.get().unwrap_or_else(|| {
            let me = state::me();
            self.first.get(me as usize).copied().unwrap_or(me)
        })
    }

    fn team(&self, call: &str, team: usize) -> (Team, usize) {
        let found = team.checked_sub(1).and_then(|i| self.teams.get(i)).cloned();
        let Some(found) = found else {
            state::fatal(&format!("{call}: no such team"));
        };
        let image = self.image();
        let Some(me) = found.members.iter().position(|m| *m == image) else {
            state::fatal(&format!("{call}: image {image} is not in the team"));
        };
        (found, me)
    }

    fn start(
        &mut self,
        (team, me): (Team, usize),
        sync: (bool, bool),
        work: Work,
        name: BarrierName,
    ) -> u64 {
        let count = self.seq.entry((team.id, team.members[me])).or_default();
        let seq = *count;
        *count = count.wrapping_add(1);
        self.started += 1;
        let op = Op::new((team.id, team.members, me, seq), sync, work, name);
        self.ops.push((self.started, op));
        ACTIVE.fetch_add(1, Ordering::Relaxed);
        self.started
    }

    /// Does what can be done without sending; gives what is to be sent.
    fn step(&mut self) -> Vec<Message> {
        let mut out = Vec::new();
        let mut i = 0;
        while i < self.ops.len() {
            let (id, op) = &mut self.ops[i];
            let running = Running::begin("a function of a collective");
            op.step(&mut self.inbox, &mut out);
            running.returned();
            if let Some(name) = op.result() {
                self.done.insert(*id, name);
                self.ops.swap_remove(i);
                ACTIVE.fetch_sub(1, Ordering::Relaxed);
            } else {
                i += 1;
            }
        }
        out
    }
}

/// Whether an operation is under way, so that a wait for something else must drive it.
pub(crate) fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed) > 0
}

/// Drives the operations; whether one sent something or ended. To send may poll. Nothing within a handler.
pub(crate) fn progress(conduit: &Conduit) -> bool {
    if !active() || state::thread(|t| t.handlers.get() > 0) || SENDING.swap(true, Ordering::Acquire)
    {
        return false;
    }
    let mut any = false;
    loop {
        let (out, nodes) = {
            let mut state = lock();
            let under_way = state.ops.len();
            let out = state.step();
            any |= !out.is_empty() || state.ops.len() < under_way;
            let nodes: Vec<u32> = out.iter().map(|m| state.node_of(m.key.to)).collect();
            (out, nodes)
        };
        if out.is_empty() {
            break;
        }
        for (message, node) in out.iter().zip(nodes) {
            send(conduit, node, message);
        }
    }
    SENDING.store(false, Ordering::Release);
    any
}

fn encode(name: BarrierName) -> (i32, i32) {
    match name {
        BarrierName::Named(id) => (0, id),
        BarrierName::Anonymous => (1, 0),
        BarrierName::Mismatch => (2, 0),
    }
}

fn decode(flags: i32, id: i32) -> BarrierName {
    match flags {
        0 => BarrierName::Named(id),
        1 => BarrierName::Anonymous,
        _ => BarrierName::Mismatch,
    }
}

fn send(conduit: &Conduit, node: u32, m: &Message) {
    let total = m.data.len();
    if node == state::me() {
        lock().inbox.part(m.key, m.name, 0, total, &m.data);
        return;
    }
    let (flags, id) = encode(m.name);
    let k = m.key;
    let mut at = 0;
    loop {
        let end = total.min(at + MAX_MEDIUM);
        let words = [k.team, k.to, k.from, k.seq, u32::from(k.kind)].map(u32::cast_signed);
        let mut args = [0; 11];
        args[..5].copy_from_slice(&words);
        args[5..].copy_from_slice(&[
            at as i32,
            (at >> 32) as i32,
            total as i32,
            (total >> 32) as i32,
            flags,
            id,
        ]);
        if let Err(error) = conduit.am_request_medium(node, MESSAGE, &m.data[at..end], &args) {
            state::fatal(&format!("a collective operation: {error}"));
        }
        at = end;
        if at == total {
            return;
        }
    }
}

fn wide(low: i32, high: i32) -> usize {
    (u64::from(high.cast_unsigned()) << 32 | u64::from(low.cast_unsigned())) as usize
}

/// The handlers of collectives, for the conduit.
pub(crate) fn handlers() -> Vec<HandlerEntry> {
    vec![HandlerEntry::new(MESSAGE, |_, payload, args| {
        let [
            team,
            to,
            from,
            seq,
            kind,
            at,
            at_high,
            total,
            total_high,
            flags,
            id,
        ] = *args
        else {
            return;
        };
        let key = Key {
            team: team.cast_unsigned(),
            to: to.cast_unsigned(),
            from: from.cast_unsigned(),
            seq: seq.cast_unsigned(),
            kind: kind as u8,
        };
        let (at, total) = (wide(at, at_high), wide(total, total_high));
        lock()
            .inbox
            .part(key, decode(flags, id), at, total, payload.bytes());
    })]
}

/// An operation that nobody has waited for; the process ends where there is none.
fn known(call: &str, op: u64) {
    let s = lock();
    if !s.done.contains_key(&op) && s.ops.iter().all(|(id, _)| *id != op) {
        state::fatal(&format!(
            "{call}: not the handle of a collective operation, or synchronised before"
        ));
    }
}

/// Waits for an operation and takes its result.
fn wait(call: &str, op: u64) -> BarrierName {
    known(call, op);
    let since = trace::start();
    let mut found = None;
    state::wait(call, |_| {
        found = lock().done.remove(&op);
        found.is_some()
    });
    trace::waited("COLL_WAIT_SYNC", since);
    found.unwrap_or(BarrierName::Mismatch)
}

/// Polls; the result of an operation if it is complete.
fn try_once(call: &str, op: u64) -> Option<BarrierName> {
    known(call, op);
    state::attached(call, |c| {
        c.poll();
        progress(c);
    });
    let found = lock().done.remove(&op);
    trace::tried("COLL_TRY_SYNC", found.is_some());
    found
}
