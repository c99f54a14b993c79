// UNSAFETY: a C caller has the object by a pointer to its first field.
#![expect(unsafe_code, reason = "C callers have the object by a pointer")]
//! Fabrics, which only hold what is opened of them: a domain chooses how bytes travel.

use crate::abi::{Fid, class};
use crate::object::{self, Object};
use crate::table::Table;
use std::ffi::c_void;
use std::sync::Arc;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fabric {
    fid: Fid,
    ops: *const c_void,
    api_version: u32,
    /// Domains and event queues of it have it too.
    in_use: InUse,
}

/// What keeps a fabric from being closed while it lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse(Arc<()>);

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for Fabric {
    const CLASS: usize = class::FABRIC;
    const OPS: &'static Table<6> = &Table::new(&[(0, object::close::<Self> as *const c_void)]);

    /// Domains or event queues of it are still there.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.in_use.0) > 1
    }
}

impl Fabric {
    /// A fabric; `ops` is its table of operations.
    pub(crate) fn new(fid: Fid, ops: *const c_void) -> Self {
        Self {
            fid,
            ops,
            api_version: 0,
            in_use: InUse::default(),
        }
    }

    /// Held by what is opened of it.
    pub(crate) fn in_use(&self) -> InUse {
        self.in_use.clone()
    }
}
