// UNSAFETY: reads the provider's function table behind raw pointers and calls through it.
//! The functions that `verbs.h` defines inline: calls through the provider's table in the context.

#![expect(
    unsafe_code,
    reason = "provider functions are reached through raw pointers"
)]

use std::ffi::c_int;

use crate::types::*;

/// The answer for a function that the provider leaves out.
const UNSUPPORTED: c_int = libc::EOPNOTSUPP;

/// Posts a chain of work requests to a send queue: 0, or an error number with the first request that was
/// not accepted in `bad`.
///
/// # Safety
///
/// `qp` is a live queue pair; `wr` is the head of a chain of valid requests whose lists of segments are valid;
/// the memory they name stays valid as `ibv_post_send(3)` demands.
#[inline]
pub unsafe fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller says that `qp` is live; libibverbs sets its context and never changes it.
    let context = unsafe { (*qp).context };
    // SAFETY: the context of a live object is open.
    match unsafe { (*context).ops.post_send } {
        // SAFETY: the caller's contract is that of the provider's function.
        Some(post) => unsafe { post(qp, wr, bad) },
        None => UNSUPPORTED,
    }
}

/// Posts a chain of receives to a queue pair; the result is that of [`post_send`].
///
/// # Safety
///
/// Calls `ibv_post_recv(3)` by the context's table; see [`post_send`].
pub unsafe fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller says that `qp` is live; libibverbs sets its context and never changes it.
    let context = unsafe { (*qp).context };
    // SAFETY: the context of a live object is open.
    match unsafe { (*context).ops.post_recv } {
        // SAFETY: the caller's contract is that of the provider's function.
        Some(post) => unsafe { post(qp, wr, bad) },
        None => UNSUPPORTED,
    }
}

/// Posts a chain of receives to a shared receive queue; the result is that of [`post_send`].
///
/// # Safety
///
/// Calls `ibv_post_srq_recv(3)` by the context's table; see [`post_send`].
pub unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller says that `srq` is live; libibverbs sets its context and never changes it.
    let context = unsafe { (*srq).context };
    // SAFETY: the context of a live object is open.
    match unsafe { (*context).ops.post_srq_recv } {
        // SAFETY: the caller's contract is that of the provider's function.
        Some(post) => unsafe { post(srq, wr, bad) },
        None => UNSUPPORTED,
    }
}

/// Takes up to `count` completions into `wc`: how many, or a negative number on failure.
///
/// # Safety
///
/// `cq` is a live completion queue; `wc` points to room for `count` completions.
#[inline]
pub unsafe fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller says that `cq` is live; libibverbs sets its context and never changes it.
    let context = unsafe { (*cq).context };
    // SAFETY: the context of a live object is open.
    match unsafe { (*context).ops.poll_cq } {
        // SAFETY: the caller's contract is that of the provider's function.
        Some(poll) => unsafe { poll(cq, count, wc) },
        None => -UNSUPPORTED,
    }
}

/// Asks for an event on the next completion: 0 or an error number.
///
/// # Safety
///
/// `cq` is a live completion queue.
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller says that `cq` is live; libibverbs sets its context and never changes it.
    let context = unsafe { (*cq).context };
    // SAFETY: the context of a live object is open.
    match unsafe { (*context).ops.req_notify_cq } {
        // SAFETY: the caller's contract is that of the provider's function.
        Some(request) => unsafe { request(cq, solicited_only) },
        None => UNSUPPORTED,
    }
}
