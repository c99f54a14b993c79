// UNSAFETY: entries that C calls, and lists of the caller.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and names lists by their addresses"
)]
//! Puts and gets of scattered memory: vector, indexed, strided.
//!
//! Each is one operation of the conduit made of contiguous pieces, which are found while they are started: nothing is
//! allocated. Source and destination may be cut differently, as long as they have equally many bytes.
//!
//! Every function's condition is the same: the lists have as many elements as the call says, the local memory they
//! name is readable for a put, writable for a get, and stays so until the operation is synchronised.

use conduit::{Counted, Handle, Piece};
use std::ffi::c_void;

use crate::{ptr, rma, state, sync, trace};

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
    Vector(*const Memvec),
    /// All of one length.
    Indexed(*const *mut c_void, usize),
}

impl List {
    /// # Safety
    /// The list has more than `i` elements.
    unsafe fn part(self, i: usize) -> (usize, usize) {
        match self {
            Self::Vector(list) => {
                // SAFETY: the condition of this function.
                let v = unsafe { ptr::at(list, i) };
                (v.addr.expose_provenance(), v.len)
            }
            Self::Indexed(list, len) => {
                // SAFETY: the condition of this function.
                let p = unsafe { ptr::at(list, i) };
                (p.expose_provenance(), len)
            }
        }
    }
}

/// Where one goes along a list.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    list: List,
    count: usize,
    next: usize,
    /// What is left of the part.
    addr: usize,
    left: usize,
}

impl Cursor {
    fn new(list: List, count: usize) -> Self {
        Self {
            list,
            count,
            next: 0,
            addr: 0,
            left: 0,
        }
    }

    /// Ends the process where the list is null and has parts.
    fn require(self, call: &str) {
        match self.list {
            List::Vector(list) => ptr::given(call, list, self.count),
            List::Indexed(list, _) => ptr::given(call, list, self.count),
        }
    }

    /// Goes on to a part that is not empty; false at the end.
    fn fill(&mut self) -> bool {
        while self.left == 0 {
            if self.next == self.count {
                return false;
            }
            // SAFETY: below `count`, by the condition of the functions of this file.
            (self.addr, self.left) = unsafe { self.list.part(self.next) };
            self.next += 1;
        }
        true
    }

    fn total(self) -> usize {
        match self.list {
            List::Indexed(_, len) => len.saturating_mul(self.count),
            List::Vector(_) => (0..self.count)
                // SAFETY: below `count`, as above.
                .map(|i| unsafe { self.list.part(i) }.1)
                .fold(0, usize::saturating_add),
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
            c.addr += len;
            c.left -= len;
        }
        Some(found)
    }
}

/// The pieces of two strided ranges.
#[derive(Clone, Copy, Debug)]
struct Strided {
    remote: (usize, *const usize),
    local: (usize, *const usize),
    /// `count[0]` bytes, then how many of them in each dimension.
    count: *const usize,
    levels: usize,
    /// Bytes of a piece.
    chunk: usize,
    at: usize,
    pieces: usize,
}

impl Strided {
    /// # Safety
    /// The arrays are null, which ends the process, or have `levels`, `levels` and `levels + 1` elements.
    unsafe fn new(
        call: &str,
        remote: (usize, *const usize),
        local: (usize, *const usize),
        count: *const usize,
        levels: usize,
    ) -> Self {
        ptr::given(call, count, levels.saturating_add(1));
        ptr::given(call, remote.1, levels);
        ptr::given(call, local.1, levels);
        // SAFETY: within the arrays, by the condition of this function.
        let all = (0..=levels).map(|i| unsafe { ptr::at(count, i) });
        let mut pieces = 1usize;
        for n in all.skip(1) {
            pieces = pieces.saturating_mul(n);
        }
        // SAFETY: as above.
        let chunk = unsafe { ptr::at(count, 0) };
        Self {
            remote,
            local,
            count,
            levels,
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
        for i in 0..self.levels {
            // SAFETY: within the arrays, by the condition of `new`.
            let n = unsafe { ptr::at(self.count, i + 1) };
            // SAFETY: as above.
            let remote_stride = unsafe { ptr::at(self.remote.1, i) };
            // SAFETY: as above.
            let local_stride = unsafe { ptr::at(self.local.1, i) };
            let k = rest % n;
            rest /= n;
            remote = remote.wrapping_add(k.wrapping_mul(remote_stride));
            local = local.wrapping_add(k.wrapping_mul(local_stride));
        }
        self.at += 1;
        Some(piece(remote, local, self.chunk))
    }
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
    trace::call(call, || pieces.clone().map(|p| p.len).sum());
    let given = |p: Piece| p.remote != 0 && !p.local.is_null();
    if rma::is_own(node) && pieces.clone().all(given) {
        for p in pieces {
            let (to, from) = if get {
                (p.local, there(p))
            } else {
                (there(p), p.local)
            };
            // SAFETY: the condition of the functions of this file, with memory of the own node; the ranges may overlap.
            unsafe { std::ptr::copy(from, to, p.len) };
        }
        return rma::raw(Handle::DONE);
    }
    let result = state::attached_own(call, |c| {
        // SAFETY: the condition of the functions of this file.
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
    remote.require(call);
    local.require(call);
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
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $putv(
            node: u32,
            dst_count: usize,
            dst: *const Memvec,
            src_count: usize,
            src: *const Memvec,
        ) -> $result {
            let dst = Cursor::new(List::Vector(dst), dst_count);
            let src = Cursor::new(List::Vector(src), src_count);
            result!($how, lists(stringify!($putv), How::$how, node, false, dst, src))
        }

        #[doc = concat!("`", stringify!($getv), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $getv(
            dst_count: usize,
            dst: *const Memvec,
            node: u32,
            src_count: usize,
            src: *const Memvec,
        ) -> $result {
            let dst = Cursor::new(List::Vector(dst), dst_count);
            let src = Cursor::new(List::Vector(src), src_count);
            result!($how, lists(stringify!($getv), How::$how, node, true, src, dst))
        }

        #[doc = concat!("`", stringify!($puti), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $puti(
            node: u32,
            dst_count: usize,
            dst: *const *mut c_void,
            dst_len: usize,
            src_count: usize,
            src: *const *mut c_void,
            src_len: usize,
        ) -> $result {
            let dst = Cursor::new(List::Indexed(dst, dst_len), dst_count);
            let src = Cursor::new(List::Indexed(src, src_len), src_count);
            result!($how, lists(stringify!($puti), How::$how, node, false, dst, src))
        }

        #[doc = concat!("`", stringify!($geti), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $geti(
            dst_count: usize,
            dst: *const *mut c_void,
            dst_len: usize,
            node: u32,
            src_count: usize,
            src: *const *mut c_void,
            src_len: usize,
        ) -> $result {
            let dst = Cursor::new(List::Indexed(dst, dst_len), dst_count);
            let src = Cursor::new(List::Indexed(src, src_len), src_count);
            result!($how, lists(stringify!($geti), How::$how, node, true, src, dst))
        }

        #[doc = concat!("`", stringify!($puts), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $puts(
            node: u32,
            dst: *mut c_void,
            dst_strides: *const usize,
            src: *mut c_void,
            src_strides: *const usize,
            count: *const usize,
            levels: usize,
        ) -> $result {
            let there = (dst.expose_provenance(), dst_strides);
            let here = (src.expose_provenance(), src_strides);
            // SAFETY: the condition of this function.
            let pieces = unsafe { Strided::new(stringify!($puts), there, here, count, levels) };
            result!($how, start(stringify!($puts), How::$how, node, false, pieces))
        }

        #[doc = concat!("`", stringify!($gets), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $gets(
            dst: *mut c_void,
            dst_strides: *const usize,
            node: u32,
            src: *mut c_void,
            src_strides: *const usize,
            count: *const usize,
            levels: usize,
        ) -> $result {
            let here = (dst.expose_provenance(), dst_strides);
            let there = (src.expose_provenance(), src_strides);
            // SAFETY: the condition of this function.
            let pieces = unsafe { Strided::new(stringify!($gets), there, here, count, levels) };
            result!($how, start(stringify!($gets), How::$how, node, true, pieces))
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

    #[test]
    fn lists_are_cut_where_either_ends() {
        let v = |addr: usize, len| Memvec {
            addr: std::ptr::without_provenance_mut(addr),
            len,
        };
        let vector = [v(100, 3), v(0, 0), v(200, 5)];
        let indexed = [1000usize, 2000].map(std::ptr::without_provenance_mut);
        let remote = Cursor::new(List::Vector(vector.as_ptr()), 3);
        let local = Cursor::new(List::Indexed(indexed.as_ptr(), 4), 2);
        assert_eq!((remote.total(), local.total()), (8, 8));
        let pieces: Vec<_> = Pairs { remote, local }
            .map(|p| (p.remote, p.local.addr(), p.len))
            .collect();
        assert_eq!(pieces, [(100, 1000, 3), (200, 1003, 1), (201, 2000, 4)]);
    }

    #[test]
    fn strides_count_in_every_dimension() {
        let (there, here, count) = ([10usize, 100], [4usize, 8], [4usize, 2, 3]);
        // SAFETY: two strides each, three counts.
        let pieces = unsafe {
            Strided::new(
                "puts",
                (0, there.as_ptr()),
                (1000, here.as_ptr()),
                count.as_ptr(),
                2,
            )
        };
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
        // SAFETY: as above.
        let pieces = unsafe {
            Strided::new(
                "puts",
                (0, there.as_ptr()),
                (0, here.as_ptr()),
                none.as_ptr(),
                2,
            )
        };
        assert_eq!(pieces.count(), 0);
    }
}
