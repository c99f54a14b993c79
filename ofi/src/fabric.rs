// UNSAFETY: a C caller has the object by a pointer to its first field.
#![expect(unsafe_code, reason = "C callers have the object by a pointer")]
//! Fabrics, which only hold what is opened of them: a domain chooses how bytes travel.

use crate::abi::{Fid, class};
use crate::object::{self, Object};
use crate::table::Table;
use std::ffi::c_void;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fabric {
    fid: Fid,
    ops: *const c_void,
    api_version: u32,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for Fabric {
    const CLASS: usize = class::FABRIC;
    const OPS: &'static Table<6> = &Table::new(&[(0, object::close::<Self> as *const c_void)]);
}

impl Fabric {
    /// A fabric; `ops` is its table of operations.
    pub(crate) const fn new(fid: Fid, ops: *const c_void) -> Self {
        Self {
            fid,
            ops,
            api_version: 0,
        }
    }
}
