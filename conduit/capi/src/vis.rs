// UNSAFETY: entries that C calls, and memory that lists of the caller name.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and names memory in lists"
)]
//! Puts and gets of scattered memory: vector, indexed, strided.
//!
//! Each is one operation of the conduit made of contiguous pieces, which are found while they are started: nothing is
//! allocated. Source and destination may be cut differently, as long as they have equally many bytes.
//!
//! The promise of a list's type holds for the memory that it names, too. Local memory is readable for a put, writable for a
//! get, and stays so until the operation is synchronised.

use conduit::{Counted, Handle, Piece};
use std::ffi::c_void;

use crate::ptr::{Array, Count, Elements};
use crate::{rma, state, sync, trace};

/// `gasnet_memvec_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memvec {
    addr: *mut c_void,
    len: usize,
}

/// A list of contiguous parts.
#[derive(Clone, Copy, Debug)]
enum List {
    /// Each with its length.
    Vector(Elements<Memvec>),
    /// All of one length.
    Indexed(Elements<*mut c_void>, usize),
}

impl List {
    /// The address and length of part `i`.
    fn part(&self, i: usize) -> Option<(usize, usize)> {
        match self {
            Self::Vector(list) => list.get(i).map(|v| (v.addr.expose_provenance(), v.len)),
            Self::Indexed(list, len) => list.get(i).map(|p| (p.expose_provenance(), *len)),
        }
    }
}

/// Where one goes along a list.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    list: List,
    next: usize,
    /// What is left of the part.
    addr: usize,
    left: usize,
}

impl Cursor {
    fn new(list: List) -> Self {
        Self {
            list,
            next: 0,
            addr: 0,
            left: 0,
        }
    }

    /// Goes on to a part that is not empty; false at the end.
    fn fill(&mut self) -> bool {
        while self.left == 0 {
            let Some(part) = self.list.part(self.next) else {
                return false;
            };
            (self.addr, self.left) = part;
            self.next += 1;
        }
        true
    }

    fn total(&self) -> usize {
        match &self.list {
            List::Indexed(list, len) => len.saturating_mul(list.len()),
            List::Vector(list) => list.iter().map(|v| v.len).fold(0, usize::saturating_add),
        }
    }
}

fn piece(remote: usize, local: usize, len: usize) -> Piece {
    Piece {
        remote: remote as u64,
        local: std::ptr::with_exposed_provenance_mut(local),
        len,
    }
}

/// The pieces of two lists, which are as long as both are contiguous.
#[derive(Clone, Copy, Debug)]
struct Pairs {
    remote: Cursor,
    local: Cursor,
}

impl Iterator for Pairs {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if !self.remote.fill() || !self.local.fill() {
            return None;
        }
        let len = self.remote.left.min(self.local.left);
        let found = piece(self.remote.addr, self.local.addr, len);
        for c in [&mut self.remote, &mut self.local] {
            c.addr = c.addr.wrapping_add(len);
            c.left -= len;
        }
        Some(found)
    }
}

/// Where a strided range begins, and its strides, one for each dimension.
#[derive(Clone, Copy, Debug)]
struct Strides(usize, Elements<usize>);

impl Strides {
    fn stride(&self, i: usize) -> usize {
        self.1.get(i).unwrap_or(0)
    }
}

/// The pieces of two strided ranges.
#[derive(Clone, Copy, Debug)]
struct Strided {
    remote: Strides,
    local: Strides,
    /// The bytes of a piece, then how many of them in each dimension.
    count: Elements<usize>,
    /// Bytes of a piece.
    chunk: usize,
    at: usize,
    pieces: usize,
}

impl Strided {
    fn new(remote: Strides, local: Strides, count: Elements<usize>) -> Self {
        let pieces = count.iter().skip(1).fold(1, usize::saturating_mul);
        let chunk = count.get(0).unwrap_or(0);
        Self {
            remote,
            local,
            count,
            chunk,
            at: 0,
            pieces: if chunk == 0 { 0 } else { pieces },
        }
    }
}

impl Iterator for Strided {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.pieces {
            return None;
        }
        let (mut remote, mut local, mut rest) = (self.remote.0, self.local.0, self.at);
        for (i, n) in self.count.iter().skip(1).enumerate() {
            let k = rest % n;
            rest /= n;
            remote = remote.wrapping_add(k.wrapping_mul(self.remote.stride(i)));
            local = local.wrapping_add(k.wrapping_mul(self.local.stride(i)));
        }
        self.at += 1;
        Some(piece(remote, local, self.chunk))
    }
}

/// The pieces that a call names, by the addresses and strides of both sides; null for an array of some ends the process.
fn strided(
    call: &str,
    levels: Count,
    count: Array<usize>,
    (remote, remote_strides): (*mut c_void, Array<usize>),
    (local, local_strides): (*mut c_void, Array<usize>),
) -> Strided {
    let count = state::given(call, count.given(levels.and_one()));
    let [remote, local] =
        [(remote, remote_strides), (local, local_strides)].map(|(at, strides)| {
            Strides(
                at.expose_provenance(),
                state::given(call, strides.given(levels)),
            )
        });
    Strided::new(remote, local, count)
}

/// Where a piece is at the node that a call names, if it is the own one.
fn there(p: Piece) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(p.remote as usize)
}

/// How a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Blocking,
    Handle,
    Implicit,
}

fn start(
    call: &str,
    how: How,
    node: u32,
    get: bool,
    pieces: impl Iterator<Item = Piece> + Clone,
) -> *mut c_void {
    let counted = match how {
        How::Implicit => Counted::Implicit,
        _ => Counted::Explicit,
    };
    trace::call(call, || {
        pieces.clone().map(|p| p.len).fold(0, usize::saturating_add)
    });
    let given = |p: Piece| p.remote != 0 && !p.local.is_null();
    if rma::is_own(node) && pieces.clone().all(given) {
        for p in pieces {
            let (to, from) = if get {
                (p.local, there(p))
            } else {
                (there(p), p.local)
            };
            // SAFETY: what the call names, which `Array::new` promises; the ranges may overlap.
            unsafe { std::ptr::copy(from, to, p.len) };
        }
        return rma::raw(Handle::DONE);
    }
    let result = state::attached_own(call, |c| {
        // SAFETY: what the call names until it is synchronised, which `Array::new` promises.
        unsafe { c.transfer_pieces(node, get, counted, pieces) }
    });
    let handle = rma::started(call, result);
    if how == How::Blocking {
        sync::wait_handle(call, handle);
        return rma::raw(Handle::DONE);
    }
    rma::raw(handle)
}

fn lists(call: &str, how: How, node: u32, get: bool, remote: Cursor, local: Cursor) -> *mut c_void {
    if remote.total() != local.total() {
        state::fatal(&format!(
            "{call}: {} bytes there and {} bytes here",
            remote.total(),
            local.total()
        ));
    }
    start(call, how, node, get, Pairs { remote, local })
}

macro_rules! result {
    (Handle, $value:expr) => {
        $value
    };
    ($_:ident, $value:expr) => {{
        let _ = $value;
    }};
}

macro_rules! vis {
    ($($how:ident -> $result:ty: $putv:ident $getv:ident $puti:ident $geti:ident $puts:ident $gets:ident;)*) => { $(
        #[doc = concat!("`", stringify!($putv), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $putv(
            node: u32,
            dst_count: Count,
            dst: Array<Memvec>,
            src_count: Count,
            src: Array<Memvec>,
        ) -> $result {
            let call = stringify!($putv);
            let dst = Cursor::new(List::Vector(state::given(call, dst.given(dst_count))));
            let src = Cursor::new(List::Vector(state::given(call, src.given(src_count))));
            result!($how, lists(call, How::$how, node, false, dst, src))
        }

        #[doc = concat!("`", stringify!($getv), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $getv(
            dst_count: Count,
            dst: Array<Memvec>,
            node: u32,
            src_count: Count,
            src: Array<Memvec>,
        ) -> $result {
            let call = stringify!($getv);
            let src = Cursor::new(List::Vector(state::given(call, src.given(src_count))));
            let dst = Cursor::new(List::Vector(state::given(call, dst.given(dst_count))));
            result!($how, lists(call, How::$how, node, true, src, dst))
        }

        #[doc = concat!("`", stringify!($puti), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $puti(
            node: u32,
            dst_count: Count,
            dst: Array<*mut c_void>,
            dst_len: usize,
            src_count: Count,
            src: Array<*mut c_void>,
            src_len: usize,
        ) -> $result {
            let call = stringify!($puti);
            let dst = Cursor::new(List::Indexed(state::given(call, dst.given(dst_count)), dst_len));
            let src = Cursor::new(List::Indexed(state::given(call, src.given(src_count)), src_len));
            result!($how, lists(call, How::$how, node, false, dst, src))
        }

        #[doc = concat!("`", stringify!($geti), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $geti(
            dst_count: Count,
            dst: Array<*mut c_void>,
            dst_len: usize,
            node: u32,
            src_count: Count,
            src: Array<*mut c_void>,
            src_len: usize,
        ) -> $result {
            let call = stringify!($geti);
            let src = Cursor::new(List::Indexed(state::given(call, src.given(src_count)), src_len));
            let dst = Cursor::new(List::Indexed(state::given(call, dst.given(dst_count)), dst_len));
            result!($how, lists(call, How::$how, node, true, src, dst))
        }

        #[doc = concat!("`", stringify!($puts), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $puts(
            node: u32,
            dst: *mut c_void,
            dst_strides: Array<usize>,
            src: *mut c_void,
            src_strides: Array<usize>,
            count: Array<usize>,
            levels: Count,
        ) -> $result {
            let call = stringify!($puts);
            let there = (dst, dst_strides);
            let here = (src, src_strides);
            let pieces = strided(call, levels, count, there, here);
            result!($how, start(call, How::$how, node, false, pieces))
        }

        #[doc = concat!("`", stringify!($gets), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $gets(
            dst: *mut c_void,
            dst_strides: Array<usize>,
            node: u32,
            src: *mut c_void,
            src_strides: Array<usize>,
            count: Array<usize>,
            levels: Count,
        ) -> $result {
            let call = stringify!($gets);
            let here = (dst, dst_strides);
            let there = (src, src_strides);
            let pieces = strided(call, levels, count, there, here);
            result!($how, start(call, How::$how, node, true, pieces))
        }
    )* };
}

vis! {
    Blocking -> (): gasnet_putv_bulk gasnet_getv_bulk gasnet_puti_bulk gasnet_geti_bulk gasnet_puts_bulk gasnet_gets_bulk;
    Handle -> *mut c_void: gasnet_putv_nb_bulk gasnet_getv_nb_bulk gasnet_puti_nb_bulk gasnet_geti_nb_bulk gasnet_puts_nb_bulk gasnet_gets_nb_bulk;
    Implicit -> (): gasnet_putv_nbi_bulk gasnet_getv_nbi_bulk gasnet_puti_nbi_bulk gasnet_geti_nbi_bulk gasnet_puts_nbi_bulk gasnet_gets_nbi_bulk;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements<T: Copy>(all: &[T]) -> Elements<T> {
        // SAFETY: an array of the test, which outlives the value.
        unsafe { Elements::new(all.as_ptr(), all.len()) }
    }

    #[test]
    fn lists_are_cut_where_either_ends() {
        let v = |addr: usize, len| Memvec {
            addr: std::ptr::without_provenance_mut(addr),
            len,
        };
        let vector = [v(100, 3), v(0, 0), v(200, 5)];
        let indexed = [1000usize, 2000].map(std::ptr::without_provenance_mut);
        let remote = Cursor::new(List::Vector(elements(&vector)));
        let local = Cursor::new(List::Indexed(elements(&indexed), 4));
        assert_eq!((remote.total(), local.total()), (8, 8));
        let pieces: Vec<_> = Pairs { remote, local }
            .map(|p| (p.remote, p.local.addr(), p.len))
            .collect();
        assert_eq!(pieces, [(100, 1000, 3), (200, 1003, 1), (201, 2000, 4)]);
    }

    #[test]
    fn strides_count_in_every_dimension() {
        let (there, here, count) = ([10usize, 100], [4usize, 8], [4usize, 2, 3]);
        let remote = Strides(0, elements(&there));
        let local = Strides(1000, elements(&here));
        let pieces = Strided::new(remote, local, elements(&count));
        let pieces: Vec<_> = pieces.map(|p| (p.remote, p.local.addr())).collect();
        let want = [
            (0, 1000),
            (10, 1004),
            (100, 1008),
            (110, 1012),
            (200, 1016),
            (210, 1020),
        ];
        assert_eq!(pieces, want);
        let none = [4usize, 0, 3];
        assert_eq!(Strided::new(remote, local, elements(&none)).count(), 0);
    }
}
