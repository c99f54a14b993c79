//! What a program sees of credits, the table of each epoch, and small numbers of credits.

use super::trace::Files;
use super::{flow, returned};
use crate::{BarrierName, Conduit, HandlerEntry, MAX_MEDIUM, PeerCredits, threads};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TAKE: u8 = 128;
const CRED_PER_NODE: &str = "GASNET_PORTAL_CRED_PER_NODE";
const BANKED: &str = "GASNET_PORTAL_BANKED_CREDITS";
const EPOCH: &str = "GASNET_PORTAL_EPOCH_DURATION";

/// As few credits as may be, a bank of 40, and active messages by the interface over shared memory too.
const FEW: [(&str, &str); 3] = [
    (CRED_PER_NODE, "8"),
    (BANKED, "40"),
    ("GASNET_PORTAL_NEAR", "0"),
];

fn meet(conduit: &Conduit) {
    conduit.barrier(BarrierName::Anonymous).unwrap();
}

/// Rank 0 sends full Mediums to rank 1, which looks for one only after the call that sent it: so the next always finds the credits
/// of the last in use. What each rank sees of the other then, with its bank.
fn lockstep(fabric: &str, messages: usize, variables: &[(&str, &str)]) -> [(PeerCredits, u64); 2] {
    let sent = AtomicUsize::new(0);
    let fabric = [("PORTOLAN_FABRIC", fabric)];
    let variables = [&fabric, &FEW[..], variables].concat();
    let ends = threads::run_in(2, &variables, |conduit| {
        let taken = Rc::new(Cell::new(0));
        let t = taken.clone();
        let take = HandlerEntry::new(TAKE, move |_, _, _| t.set(t.get() + 1));
        conduit.attach(vec![take], 0).unwrap();
        meet(conduit);
        let start = conduit.credits(1 - conduit.mynode()).unwrap();
        assert_eq!((start.send, start.lent), (8, 8));
        assert_eq!((start.in_use, start.stalls, start.granted), (0, 0, 0));
        assert_eq!(conduit.banked_credits(), 40, "no more than was said");
        if conduit.mynode() == 0 {
            for _ in 0..messages {
                conduit
                    .am_request_medium(1, TAKE, &[0; MAX_MEDIUM], &[0; 16])
                    .unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
            }
            conduit.block_until(|| conduit.credits(1).is_some_and(|c| c.in_use == 0));
        } else {
            while taken.get() < messages {
                if taken.get() < sent.load(Ordering::SeqCst) {
                    conduit.poll();
                } else {
                    std::thread::yield_now();
                }
            }
        }
        meet(conduit);
        let other = conduit.credits(1 - conduit.mynode()).unwrap();
        (other, conduit.banked_credits())
    });
    let ends = returned(ends);
    [ends[0], ends[1]]
}

/// 8 credits are one message: the second and third wait and ask for 7 more, the fourth for 1.
#[test]
fn credits_that_grow_are_seen_on_both_sides() {
    for fabric in ["inproc", "shm"] {
        let [(borrower, idle), (lender, bank)] = lockstep(fabric, 4, &[]);
        assert_eq!((borrower.send, borrower.stalls), (23, 3), "{fabric}");
        assert_eq!((borrower.lent, borrower.granted), (8, 0), "{fabric}");
        assert_eq!((lender.lent, lender.granted), (23, 15), "{fabric}");
        assert_eq!((lender.send, lender.stalls), (8, 0), "{fabric}");
        assert_eq!((idle, bank), (40, 25), "{fabric}");
    }
}

#[test]
fn static_credits_do_not_grow() {
    let fixed = [("GASNET_PORTAL_DYNAMIC_CREDITS", "0")];
    let ends = threads::run_in(2, &[&FEW[..1], &fixed].concat(), |conduit| {
        conduit.attach(vec![], 0).unwrap();
        let credits = conduit.credits(1 - conduit.mynode()).unwrap();
        assert_eq!(conduit.credits(2), None, "there is no such rank");
        (credits.send, credits.lent, conduit.banked_credits())
    });
    assert_eq!(returned(ends), [(8, 8, 0); 2]);
}

/// A table at the start and one for each epoch of the rank that is sent to, in a file that is made anew.
#[test]
fn a_table_of_each_epoch_is_written_if_asked_for() {
    let files = Files::new();
    let folder = files.folder().display().to_string();
    let read =
        |rank: u32| std::fs::read_to_string(files.folder().join(format!("credits.{rank:03}"))).ok();
    let place = ("GASNET_TMPDIR", folder.as_str());
    lockstep("inproc", 4, &[place, (EPOCH, "2")]);
    assert_eq!(read(0), None);
    let asked = [place, (EPOCH, "2"), ("GASNET_PORTAL_STATS", "1")];
    for _ in 0..2 {
        lockstep("inproc", 4, &asked);
        let [idle, target] = [0, 1].map(|rank| read(rank).unwrap());
        let epochs = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|l| l.starts_with("Node: "));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(epochs(&idle), ["Node: 0  Epoch Counter = 0"]);
        let counts = [0, 2, 4].map(|n| format!("Node: 1  Epoch Counter = {n}"));
        assert_eq!(epochs(&target), counts);
        // Lent to rank 0: 8, then 7 more after the second request, and after the fourth all of them.
        let lent = target
            .lines()
            .filter(|l| l.starts_with("   0 "))
            .map(|l| l.split_whitespace().nth(1).unwrap());
        assert_eq!(lent.collect::<Vec<_>>(), ["8", "15", "23"]);
    }
}

/// Every number of credits either lets a job flow or is refused, never a wait without an end.
#[test]
fn small_numbers_of_credits_flow_or_are_refused() {
    let off = ("GASNET_PORTAL_DYNAMIC_CREDITS", "0");
    for n in 0..8 {
        let text = n.to_string();
        for variables in [
            &[(CRED_PER_NODE, text.as_str())][..],
            &[(CRED_PER_NODE, &text), off],
        ] {
            let ends = threads::run_in(3, variables, |_| panic!("it started"));
            for end in ends {
                let threads::RankEnd::Aborted(said) = end else {
                    panic!("{variables:?}: {end:?}")
                };
                let why = format!(
                    "GASNET_PORTAL_CRED_PER_NODE={n} lends each of 2 peers {n} credits, \
                     and a full message needs 8: the least value is 8"
                );
                assert!(said.ends_with(&why), "{said}");
            }
        }
    }
    for n in ["8", "9", "10", "15"] {
        flow::flood(3, 60, &[(CRED_PER_NODE, n), off]);
    }
    for n in ["0", "1", "2", "3"] {
        let most = "GASNET_PORTAL_MAX_CRED_PER_NODE";
        flow::flood(3, 60, &[(CRED_PER_NODE, "8"), (BANKED, n)]);
        flow::flood(3, 60, &[(CRED_PER_NODE, "8"), (BANKED, "9"), (most, n)]);
        let short = [(CRED_PER_NODE, "8"), (BANKED, "9"), (EPOCH, n)];
        flow::flood(3, 60, &short);
    }
}
