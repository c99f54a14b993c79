//! Memory that goes where nobody can wait until peers have given it back: the next call that sends waits for it.

use super::everything::{attach_with, stats};
use super::returned;
use crate::{BarrierName, Conduit, HandlerEntry, threads};
use std::cell::Cell;
use std::rc::Rc;

const LEN: usize = 8192;
const GOES: u8 = 140;
const TOLD: u8 = 141;

fn is_pinned(conduit: &Conduit, addr: u64) -> bool {
    let core = &mut *conduit.core.borrow_mut();
    core.pinning.home_mut().unwrap().pins_any(addr, LEN as u64)
}

/// Rank 1 holds memory of rank 0, which goes in `goes`, or in `handled` when rank 1 sends a request; rank 1 has given it back
/// before it handles the next request of rank 0.
fn goes_unwaited(
    handled: impl Fn(&Conduit, u64) + Copy + Sync + 'static,
    goes: impl Fn(&Conduit, u64) + Sync,
) {
    returned(threads::run_in(2, &[], |conduit| {
        let mut memory = vec![0u8; LEN];
        let mine = memory.as_mut_ptr().expose_provenance() as u64;
        let (gone, moves) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (g, m) = (gone.clone(), moves.clone());
        let handlers = vec![
            HandlerEntry::new(GOES, move |token, _, _| {
                handled(token.conduit(), mine);
                g.set(true);
            }),
            HandlerEntry::new(TOLD, move |token, _, _| {
                m.set(Some(stats(token.conduit()).remote.moves));
            }),
        ];
        let addrs = attach_with(conduit, mine, handlers);
        if conduit.mynode() == 0 {
            conduit.block_until(|| gone.get());
            goes(conduit, mine);
            assert!(is_pinned(conduit, mine));
            conduit.am_request_short(1, TOLD, &[]).unwrap();
            assert!(!is_pinned(conduit, mine));
        } else {
            conduit.put(0, addrs[0], &[1; LEN]).unwrap();
            let before = stats(conduit).remote.moves;
            conduit.am_request_short(0, GOES, &[]).unwrap();
            conduit.block_until(|| moves.get().is_some());
            assert!(moves.get() > Some(before), "{moves:?}, {before} before");
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
    }));
}

/// An own transfer looks at it first, and cannot wait.
#[test]
fn what_a_transfer_finds_gone_is_waited_for_before_a_request() {
    let other = vec![0u8; LEN];
    let other = other.as_ptr().addr() as u64;
    let transfer = |conduit: &Conduit| {
        let mut core = conduit.core.borrow_mut();
        let home = core.pinning.home_mut().unwrap();
        if let Ok(Some((unit, _))) = home.take(other, 8) {
            home.release(unit);
        }
    };
    goes_unwaited(
        |_, _| {},
        |conduit, mine| {
            conduit.elsewhere().forget(mine, LEN as u64);
            transfer(conduit);
        },
    );
}

/// Other memory has come there.
#[test]
fn what_a_handler_finds_stale_is_waited_for_before_a_request() {
    goes_unwaited(
        |conduit, mine| conduit.renew_mapped(mine, LEN as u64),
        |_, _| {},
    );
}
