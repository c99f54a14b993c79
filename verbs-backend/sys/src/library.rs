// UNSAFETY: resolves symbols of a C library as functions of the signatures in its header.
//! The functions that `libibverbs.so.1` and `librdmacm.so.1` export.

#![expect(unsafe_code, reason = "symbols of a C library have no checked type")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::cma::*;
use crate::types::*;

/// Name of the library, with the version of its binary interface.
pub const FILE: &str = "libibverbs.so.1";
/// The same of the RDMA connection manager's.
pub const CM_FILE: &str = "librdmacm.so.1";

/// Why a library cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The library is not there, or something it needs is not.
    Open {
        /// Name of the library.
        file: &'static str,
        /// The dynamic linker's message.
        message: String,
    },
    /// The library lacks a function.
    Symbol {
        /// Name of the library.
        file: &'static str,
        /// Name of the function.
        name: &'static str,
        /// The dynamic linker's message.
        message: String,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open { file, message } => write!(f, "cannot open {file}: {message}"),
            Self::Symbol {
                file,
                name,
                message,
            } => write!(f, "{file} has no {name}: {message}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Declares the table of functions and how it is filled.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident of $file:ident
        required { $($name:ident: ($($arg:ty),*) $(-> $result:ty)?,)+ }
        optional { $($extra_name:ident = $symbol:literal:
            ($($extra_arg:ty),*) $(-> $extra_result:ty)?,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $table {
            $(
                #[doc = concat!("`", stringify!($name), "(3)`.")]
                pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,
            )+
            $(
                #[doc = concat!("`", $symbol, "`, absent in old versions.")]
                pub $extra_name: Option<unsafe extern "C" fn($($extra_arg),*) $(-> $extra_result)?>,
            )*
            /// Keeps the functions mapped.
            _library: Library,
        }

        impl $table {
            fn load() -> Result<Self, LoadError> {
                // SAFETY: the constructors of these libraries have no preconditions; any C program links them.
                let library = unsafe { Library::new($file) }
                    .map_err(|e| LoadError::Open { file: $file, message: e.to_string() })?;
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signature is that of the function in its header (see `types`, `cma`).
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) $(-> $result)?>(symbol)
                        };
                        *found.map_err(|e| LoadError::Symbol {
                            file: $file,
                            name: stringify!($name),
                            message: e.to_string(),
                        })?
                    },)+
                    $($extra_name: {
                        let symbol = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the signature is that of the function in its header (see `types`, `cma`).
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($extra_arg),*) $(-> $extra_result)?>(symbol)
                        };
                        found.ok().map(|function| *function)
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    /// The functions of libibverbs; see the manual page of each name.
    Verbs of FILE
    required {
        ibv_get_device_list: (*mut c_int) -> *mut *mut ibv_device,
        ibv_free_device_list: (*mut *mut ibv_device),
        ibv_get_device_name: (*mut ibv_device) -> *const c_char,
        ibv_open_device: (*mut ibv_device) -> *mut ibv_context,
        ibv_close_device: (*mut ibv_context) -> c_int,
        ibv_query_device: (*mut ibv_context, *mut ibv_device_attr) -> c_int,
        ibv_query_port: (*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
        ibv_query_gid: (*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
        ibv_get_async_event: (*mut ibv_context, *mut ibv_async_event) -> c_int,
        ibv_ack_async_event: (*mut ibv_async_event),
        ibv_alloc_pd: (*mut ibv_context) -> *mut ibv_pd,
        ibv_dealloc_pd: (*mut ibv_pd) -> c_int,
        ibv_reg_mr: (*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
        ibv_dereg_mr: (*mut ibv_mr) -> c_int,
        ibv_create_comp_channel: (*mut ibv_context) -> *mut ibv_comp_channel,
        ibv_destroy_comp_channel: (*mut ibv_comp_channel) -> c_int,
        ibv_create_cq: (
            *mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int
        ) -> *mut ibv_cq,
        ibv_destroy_cq: (*mut ibv_cq) -> c_int,
        ibv_get_cq_event: (*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
        ibv_ack_cq_events: (*mut ibv_cq, c_uint),
        ibv_create_srq: (*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq,
        ibv_modify_srq: (*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int,
        ibv_destroy_srq: (*mut ibv_srq) -> c_int,
        ibv_create_qp: (*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
        ibv_modify_qp: (*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
        ibv_query_qp: (*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
        ibv_destroy_qp: (*mut ibv_qp) -> c_int,
        ibv_create_ah: (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
        ibv_destroy_ah: (*mut ibv_ah) -> c_int,
        ibv_fork_init: () -> c_int,
    }
    optional {
        query_gid_table = "_ibv_query_gid_table": (
            *mut ibv_context, *mut ibv_gid_entry, usize, u32, usize
        ) -> isize,
        fork_status = "ibv_is_fork_initialized": () -> c_int,
    }
}

functions! {
    /// The functions of librdmacm; see the manual page of each name.
    Cma of CM_FILE
    required {
        rdma_create_event_channel: () -> *mut rdma_event_channel,
        rdma_destroy_event_channel: (*mut rdma_event_channel),
        rdma_create_id: (
            *mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_uint
        ) -> c_int,
        rdma_destroy_id: (*mut rdma_cm_id) -> c_int,
        rdma_bind_addr: (*mut rdma_cm_id, *mut libc::sockaddr) -> c_int,
        rdma_listen: (*mut rdma_cm_id, c_int) -> c_int,
        rdma_get_src_port: (*mut rdma_cm_id) -> u16,
        rdma_resolve_addr: (
            *mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int
        ) -> c_int,
        rdma_resolve_route: (*mut rdma_cm_id, c_int) -> c_int,
        rdma_connect: (*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
        rdma_accept: (*mut rdma_cm_id, *mut rdma_conn_param) -> c_int,
        rdma_reject: (*mut rdma_cm_id, *const c_void, u8) -> c_int,
        rdma_establish: (*mut rdma_cm_id) -> c_int,
        rdma_init_qp_attr: (*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int,
        rdma_get_cm_event: (*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int,
        rdma_ack_cm_event: (*mut rdma_cm_event) -> c_int,
    }
    optional {}
}

/// The library, opened on first use and never closed.
///
/// # Errors
///
/// The library or one of its functions is missing; the answer does not change while the process lives.
pub fn verbs() -> Result<&'static Verbs, &'static LoadError> {
    static VERBS: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
    VERBS.get_or_init(Verbs::load).as_ref()
}

/// The connection manager's library, opened on first use and never closed.
///
/// # Errors
///
/// Those of [`verbs`].
pub fn cma() -> Result<&'static Cma, &'static LoadError> {
    static CMA: OnceLock<Result<Cma, LoadError>> = OnceLock::new();
    CMA.get_or_init(Cma::load).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_gives_the_same_answer_twice() {
        match (verbs(), verbs()) {
            (Ok(first), Ok(second)) => assert!(std::ptr::eq(first, second)),
            (Err(first), Err(second)) => {
                assert!(std::ptr::eq(first, second));
                assert!(first.to_string().contains(FILE), "{first}");
            }
            (first, second) => panic!("{first:?} then {second:?}"),
        }
    }
}
