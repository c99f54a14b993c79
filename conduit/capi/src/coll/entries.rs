// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! What `gasnet_coll.h` declares.

use conduit::BarrierName;
use std::ffi::{c_char, c_int, c_void};

use super::machine::Work;
use super::memory::{Buffer, FunctionEntry, Memory, Reduction};
use super::{IMAGE, Team, lock, try_once, wait};
use crate::barrier::name;
use crate::job::{BARRIER_MISMATCH, NOT_READY, OK};
use crate::ptr::{Array, ArrayMut, Count, Elements, Out, argument};
use crate::state;

const IN_ALLSYNC: c_int = 1 << 2;
const OUT_ALLSYNC: c_int = 1 << 5;
const LOCAL: c_int = 1 << 7;
const INCLUSIVE_SCAN: c_int = 1 << 16;
/// `GASNET_BARRIERFLAG_IMAGES`.
const IMAGES: c_int = 4;

argument! {
    /// The number of images of each node, or null.
    ImageCounts(*const u32): "It is null or has an element for each node"
}

impl ImageCounts {
    /// The numbers; `None` for null.
    fn get(self) -> Option<Vec<u32>> {
        // SAFETY: an element for each node, if not null: `new`.
        let counts = unsafe { Elements::new(self.0, state::nodes() as usize) };
        (!self.0.is_null()).then(|| counts.iter().collect())
    }
}

/// `gasnet_coll_init`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_init(
    images: ImageCounts,
    my_image: u32,
    functions: Array<FunctionEntry>,
    count: Count,
    _flags: c_int,
) {
    if state::phase() < state::Phase::Attached {
        state::fatal("gasnet_coll_init before gasnet_attach");
    }
    let functions = state::given("gasnet_coll_init", functions.given(count));
    let mut s = lock();
    if let Some(counts) = images.get() {
        if s.first.is_empty() && s.started == 0 {
            s.set_images(&counts);
        }
        if my_image as usize >= s.teams[0].members.len() || s.node_of(my_image) != state::me() {
            state::fatal(&format!(
                "gasnet_coll_init: image {my_image} is not one of this node"
            ));
        }
        IMAGE.set(Some(my_image));
    }
    if s.functions.is_empty() {
        s.functions = functions.iter().filter(FunctionEntry::is_some).collect();
    }
}

/// The own element of a list: of all images with SINGLE, of this node's with LOCAL.
fn own(list: Buffer, team: &Team, me: usize, flags: c_int) -> Buffer {
    let index = if flags & LOCAL == 0 {
        me
    } else {
        let s = lock();
        let here = team.members[..me].iter();
        here.filter(|m| s.node_of(**m) == state::me()).count()
    };
    list.element(index)
}

/// The team and the own place in it.
fn place(call: &str, team: usize) -> (Team, usize) {
    if state::phase() < state::Phase::Attached {
        state::fatal(&format!("{call} before gasnet_attach"));
    }
    lock().team(call, team)
}

fn root(call: &str, team: &Team, root: u32) -> usize {
    let n = team.members.len();
    if root as usize >= n {
        state::fatal(&format!("{call}: image {root} of {n}"));
    }
    root as usize
}

/// What a call lends; null for some bytes, or more than an address space has, ends the process.
fn lent(call: &str, buffer: Buffer, count: Count) -> Memory {
    let memory = buffer.of(count);
    memory.unwrap_or_else(|none| state::fatal(&format!("{call}: {none}")))
}

/// What a call lends where `needed`; others may name anything.
fn lent_if(needed: bool, call: &str, buffer: Buffer, count: Count) -> Memory {
    if needed {
        lent(call, buffer, count)
    } else {
        Memory::NONE
    }
}

fn start(call: &str, at: (Team, usize), flags: c_int, work: Work) -> u64 {
    let sync = (flags & IN_ALLSYNC != 0, flags & OUT_ALLSYNC != 0);
    crate::trace::call(call, || work.bytes());
    let id = lock().start(at, sync, work, BarrierName::Anonymous);
    // A first step: what can be sent is.
    state::attached(call, super::progress);
    id
}

fn as_handle(id: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(id as usize)
}

/// Address of an argument that is one address, or a list.
macro_rules! own {
    (one, $p:ident, $team:ident, $me:ident, $flags:ident) => {
        $p
    };
    (list, $p:ident, $team:ident, $me:ident, $flags:ident) => {
        own($p, &$team, $me, $flags)
    };
}

macro_rules! collective {
    ($($kind:ident $nb:ident $blocking:ident ($($arg:ident: $t:ty),*) |$call:ident, $team:ident, $me:ident, $flags:ident| $work:expr;)*) => { $(
        #[doc = concat!("`", stringify!($nb), "`.")]
        #[unsafe(no_mangle)]
        #[expect(clippy::allow_attributes, reason = "some of these have few arguments")]
        #[allow(clippy::too_many_arguments, reason = "those of the function of the specification")]
        pub extern "C" fn $nb(team: *mut c_void, $($arg: $t,)* $flags: c_int) -> *mut c_void {
            let $call = stringify!($nb);
            let ($team, $me) = place($call, team.addr());
            let work = $work;
            as_handle(start($call, ($team, $me), $flags, work))
        }

        #[doc = concat!("`", stringify!($blocking), "`.")]
        #[unsafe(no_mangle)]
        #[expect(clippy::allow_attributes, reason = "some of these have few arguments")]
        #[allow(clippy::too_many_arguments, reason = "those of the function of the specification")]
        pub extern "C" fn $blocking(team: *mut c_void, $($arg: $t,)* $flags: c_int) {
            let $call = stringify!($blocking);
            let ($team, $me) = place($call, team.addr());
            let work = $work;
            let id = start($call, ($team, $me), $flags, work);
            wait($call, id);
        }
    )* };
}

macro_rules! rooted_and_not {
    ($($dst:ident $src:ident:
        $bn:ident $b:ident $sn:ident $s:ident $gn:ident $g:ident $an:ident $a:ident $en:ident $e:ident $rn:ident $r:ident $cn:ident $c:ident;)*) => { $(
        collective! {
            $dst $bn $b(dst: Buffer, from: u32, src: Buffer, nbytes: Count) |call, team, me, flags| {
                let root = root(call, &team, from);
                let dst = own!($dst, dst, team, me, flags);
                Work::Broadcast { root, src: lent_if(root == me, call, src, nbytes), dst: lent(call, dst, nbytes) }
            };
            $dst $sn $s(dst: Buffer, from: u32, src: Buffer, nbytes: Count) |call, team, me, flags| {
                let root = root(call, &team, from);
                let dst = own!($dst, dst, team, me, flags);
                let src = lent_if(root == me, call, src, nbytes.times(team.members.len()));
                Work::Scatter { root, src, dst: lent(call, dst, nbytes) }
            };
            $src $gn $g(to: u32, dst: Buffer, src: Buffer, nbytes: Count) |call, team, me, flags| {
                let root = root(call, &team, to);
                let src = own!($src, src, team, me, flags);
                let dst = lent_if(root == me, call, dst, nbytes.times(team.members.len()));
                Work::Gather { root, src: lent(call, src, nbytes), dst }
            };
            $src $an $a(dst: Buffer, src: Buffer, nbytes: Count) |call, team, me, flags| {
                let dst = own!($dst, dst, team, me, flags);
                let src = own!($src, src, team, me, flags);
                Work::GatherAll { src: lent(call, src, nbytes), dst: lent(call, dst, nbytes.times(team.members.len())) }
            };
            $src $en $e(dst: Buffer, src: Buffer, nbytes: Count) |call, team, me, flags| {
                let dst = own!($dst, dst, team, me, flags);
                let src = own!($src, src, team, me, flags);
                let all = nbytes.times(team.members.len());
                Work::Exchange { src: lent(call, src, all), dst: lent(call, dst, all) }
            };
            $src $rn $r(
                to: u32, dst: Buffer, src: Buffer, _block: usize, _offset: usize,
                elem_size: Count, elem_count: usize, function: i32, argument: c_int
            ) |call, team, me, flags| {
                let root = root(call, &team, to);
                let src = own!($src, src, team, me, flags);
                let bytes = elem_size.times(elem_count);
                let by = reduction(call, function, (elem_size.get(), elem_count), argument);
                Work::Reduce { root, src: lent(call, src, bytes), dst: lent_if(root == me, call, dst, bytes), by }
            };
            $src $cn $c(
                dst: Buffer, _dst_block: usize, _dst_offset: usize, src: Buffer, _block: usize,
                _offset: usize, elem_size: Count, elem_count: usize, function: i32, argument: c_int
            ) |call, team, me, flags| {
                let dst = own!($dst, dst, team, me, flags);
                let src = own!($src, src, team, me, flags);
                let bytes = elem_size.times(elem_count);
                let by = reduction(call, function, (elem_size.get(), elem_count), argument);
                let inclusive = flags & INCLUSIVE_SCAN != 0;
                Work::Scan { src: lent(call, src, bytes), dst: lent(call, dst, bytes), by, inclusive }
            };
        }
    )* };
}

rooted_and_not! {
    one one:
        gasnet_coll_broadcast_nb gasnet_coll_broadcast gasnet_coll_scatter_nb gasnet_coll_scatter
        gasnet_coll_gather_nb gasnet_coll_gather gasnet_coll_gather_all_nb gasnet_coll_gather_all
        gasnet_coll_exchange_nb gasnet_coll_exchange gasnet_coll_reduce_nb gasnet_coll_reduce
        gasnet_coll_scan_nb gasnet_coll_scan;
    list list:
        gasnet_coll_broadcastM_nb gasnet_coll_broadcastM gasnet_coll_scatterM_nb gasnet_coll_scatterM
        gasnet_coll_gatherM_nb gasnet_coll_gatherM gasnet_coll_gather_allM_nb gasnet_coll_gather_allM
        gasnet_coll_exchangeM_nb gasnet_coll_exchangeM gasnet_coll_reduceM_nb gasnet_coll_reduceM
        gasnet_coll_scanM_nb gasnet_coll_scanM;
}

fn reduction(call: &str, function: i32, size: (usize, usize), argument: c_int) -> Reduction {
    let s = lock();
    let found = usize::try_from(function)
        .ok()
        .and_then(|i| s.functions.get(i));
    let reduction = found.and_then(|f| f.reduction(size, argument));
    reduction
        .unwrap_or_else(|| state::fatal(&format!("{call}: function {function} is not registered")))
}

/// `gasnet_coll_wait_sync`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_wait_sync(handle: *mut c_void) {
    if !handle.is_null() {
        wait("gasnet_coll_wait_sync", handle.addr() as u64);
    }
}

/// `gasnet_coll_try_sync`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_try_sync(handle: *mut c_void) -> c_int {
    let done = handle.is_null() || try_once("gasnet_coll_try_sync", handle.addr() as u64).is_some();
    if done { OK } else { NOT_READY }
}

/// Takes what is complete out of an array; how many there were, and how many are left.
fn take(call: &str, handles: ArrayMut<*mut c_void>, count: Count) -> (usize, usize) {
    let handles = state::given(call, handles.given(count));
    let (mut done, mut left) = (0, 0);
    for i in 0..handles.len() {
        let Some(handle) = handles.get(i).filter(|handle| !handle.is_null()) else {
            continue;
        };
        if try_once(call, handle.addr() as u64).is_some() {
            handles.set(i, std::ptr::null_mut());
            done += 1;
        } else {
            left += 1;
        }
    }
    (done, left)
}

macro_rules! arrays {
    ($($try:ident $wait:ident |$done:ident, $left:ident| $enough:expr;)*) => { $(
        #[doc = concat!("`", stringify!($try), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $try(handles: ArrayMut<*mut c_void>, count: Count) -> c_int {
            let ($done, $left) = take(stringify!($try), handles, count);
            if $enough { OK } else { NOT_READY }
        }

        #[doc = concat!("`", stringify!($wait), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $wait(handles: ArrayMut<*mut c_void>, count: Count) {
            loop {
                let ($done, $left) = take(stringify!($wait), handles, count);
                if $enough {
                    return;
                }
                std::thread::yield_now();
            }
        }
    )* };
}

arrays! {
    gasnet_coll_try_sync_some gasnet_coll_wait_sync_some |done, left| done > 0 || left == 0;
    gasnet_coll_try_sync_all gasnet_coll_wait_sync_all |_done, left| left == 0;
}

/// `gasnet_coll_barrier_notify`. Of each node one thread calls it, or with `GASNET_BARRIERFLAG_IMAGES` each image.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_notify(team: *mut c_void, id: c_int, flags: c_int) {
    let call = "gasnet_coll_barrier_notify";
    let (team, me) = members(call, team, flags);
    let key = (team.id, team.members[me]);
    let started = {
        let mut s = lock();
        if s.notified.contains_key(&key) {
            state::fatal("gasnet_coll_barrier_notify twice");
        }
        let started = s.start((team, me), (true, false), Work::Barrier, name(id, flags));
        s.notified.insert(key, started)
    };
    debug_assert!(started.is_none());
    state::attached(call, super::progress);
}

/// Marks the team of a barrier of nodes, so that its messages are not those of images.
const OF_NODES: u32 = 1 << 31;

/// Who meets in a barrier: all images, or the first of each node.
fn members(call: &str, team: *mut c_void, flags: c_int) -> (Team, usize) {
    let (team, me) = place(call, team.addr());
    if flags & IMAGES != 0 {
        return (team, me);
    }
    let s = lock();
    let mut of_nodes: Vec<u32> = Vec::new();
    for m in &team.members {
        let known = |of: &u32| s.node_of(*of) == s.node_of(*m);
        if !of_nodes.iter().any(known) {
            of_nodes.push(*m);
        }
    }
    let here = of_nodes.iter().position(|m| s.node_of(*m) == state::me());
    let team = Team {
        id: team.id | OF_NODES,
        members: of_nodes,
    };
    (team, here.unwrap_or(0))
}

fn leave(team: &Team, id: c_int, flags: c_int, all: BarrierName) -> c_int {
    lock().last.insert(team.id & !OF_NODES, all);
    if all.merge(name(id, flags)) == BarrierName::Mismatch {
        BARRIER_MISMATCH
    } else {
        OK
    }
}

fn notified(call: &str, team: &Team, me: usize) -> u64 {
    let found = lock().notified.get(&(team.id, team.members[me])).copied();
    found.unwrap_or_else(|| state::fatal(&format!("{call} without gasnet_coll_barrier_notify")))
}

/// `gasnet_coll_barrier_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_wait(team: *mut c_void, id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_coll_barrier_wait";
    let (team, me) = members(call, team, flags);
    let op = notified(call, &team, me);
    let all = wait(call, op);
    lock().notified.remove(&(team.id, team.members[me]));
    leave(&team, id, flags, all)
}

/// `gasnet_coll_barrier_try`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_try(team: *mut c_void, id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_coll_barrier_try";
    let (team, me) = members(call, team, flags);
    let op = notified(call, &team, me);
    let Some(all) = try_once(call, op) else {
        return NOT_READY;
    };
    lock().notified.remove(&(team.id, team.members[me]));
    leave(&team, id, flags, all)
}

/// `gasnet_coll_barrier`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier(team: *mut c_void, id: c_int, flags: c_int) -> c_int {
    gasnet_coll_barrier_notify(team, id, flags);
    gasnet_coll_barrier_wait(team, id, flags)
}

/// `gasnet_coll_barrier_result`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_result(team: *mut c_void, id: Out<c_int>) -> c_int {
    let (team, _) = place("gasnet_coll_barrier_result", team.addr());
    let last = lock().last.get(&team.id).copied();
    let Some(BarrierName::Named(named)) = last else {
        return 1;
    };
    id.set(named);
    0
}

/// `gasnet_coll_team_rank2node`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_team_rank2node(team: *mut c_void, rank: u32) -> u32 {
    let call = "gasnet_coll_team_rank2node";
    let (team, _) = place(call, team.addr());
    lock().node_of(team.members[root(call, &team, rank)])
}

/// `gasnet_coll_team_node2rank`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_team_node2rank(team: *mut c_void, node: u32) -> u32 {
    let (team, _) = place("gasnet_coll_team_node2rank", team.addr());
    let s = lock();
    let found = team.members.iter().position(|m| s.node_of(*m) == node);
    found.map_or(u32::MAX, |r| r as u32)
}

/// `gasnet_coll_team_size`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_team_size(team: *mut c_void) -> u32 {
    let (team, _) = place("gasnet_coll_team_size", team.addr());
    team.members.len() as u32
}

/// `gasnet_coll_team_split`: members of equal `color` make a team, in the order of `rank`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_team_split(
    team: *mut c_void,
    color: u32,
    rank: u32,
    _data: *mut c_void,
) -> *mut c_void {
    let call = "gasnet_coll_team_split";
    let (parent, me) = place(call, team.addr());
    let mut own = [color, rank];
    let mut all = vec![[0u32; 2]; parent.members.len()];
    // SAFETY: an array of this function, which waits for the operation before it looks at it.
    let src = unsafe { Memory::lent(&mut own) };
    // SAFETY: as above.
    let dst = unsafe { Memory::lent(&mut all) };
    let work = Work::GatherAll { src, dst };
    let op = start(call, (parent.clone(), me), 0, work);
    wait(call, op);
    let mut chosen: Vec<(u32, usize)> = all
        .iter()
        .enumerate()
        .filter(|(_, [c, _])| *c == color)
        .map(|(i, [_, r])| (*r, i))
        .collect();
    chosen.sort_unstable();
    let members: Vec<u32> = chosen.iter().map(|(_, i)| parent.members[*i]).collect();
    let mut s = lock();
    // The same for all members, and different from that of any other split: a hash of what made it.
    let made = s.seq.get(&(parent.id, parent.members[me])).copied();
    let mut id = 0x811c_9dc5u32;
    for word in [parent.id, made.unwrap_or(0), color] {
        for byte in word.to_le_bytes() {
            id = (id ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    let id = id & !OF_NODES | 1;
    // Another image of this node may have made it.
    let known = s
        .teams
        .iter()
        .position(|t| t.id == id && t.members == members);
    let index = known.unwrap_or_else(|| {
        s.teams.push(Team { id, members });
        s.teams.len() - 1
    });
    std::ptr::without_provenance_mut(index + 1)
}

/// `gasnet_coll_loadTuningState`: there is nothing to tune.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_loadTuningState(_file: *const c_char, _team: *mut c_void) {}

/// `gasnet_coll_dumpTuningState`: there is nothing to tune.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_dumpTuningState(_file: *const c_char, _team: *mut c_void) {}

/// `gasnet_coll_dumpProfile`: there is no profile.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_dumpProfile(_file: *const c_char, _team: *mut c_void) {}

/// `gasnet_coll_set_dissem_limit`: there is nothing to tune.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_set_dissem_limit(_team: *mut c_void, _limit: usize, _kind: c_int) {}

/// `gasnet_coll_set_tree_kind`: there is nothing to tune.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_set_tree_kind(
    _team: *mut c_void,
    _tree: c_int,
    _fanout: c_int,
    _kind: c_int,
) {
}

/// `gasnet_coll_get_num_tree_classes`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_get_num_tree_classes(_team: *mut c_void, _kind: c_int) -> c_int {
    1
}
