use super::thread_ranks;
use crate::proto::Question;
use crate::tests::{each, to};
use crate::trace::LINKS_VARIABLE;
use crate::{InThread, in_threads, setting};
use fabric_api::call::{Call, Wait};
use fabric_api::config::FabricConfig;
use fabric_api::region::Region;
use fabric_testing::spec;
use portals_core::{AckRequest, Unlink};
use portals_shim::MdMemory;
use portals_shim::fabric::Opened;
use std::process::Command;
use std::thread;

/// How often this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = |l: &str| Some(l.strip_prefix("voluntary_ctxt_switches:")?.trim().parse());
    status.lines().find_map(line).unwrap().unwrap()
}

#[test]
fn calls_that_wait_for_nobody_sleep_never() {
    let slept = each(in_threads(1, "xt4").unwrap(), |_, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(4).unwrap();
        let before = sleeps();
        for _ in 0..1000 {
            assert!(ni.eq_poll(&[eq], Wait::Nanos(1000)).unwrap().is_none());
        }
        sleeps() - before
    });
    assert!(slept[0] < 100, "{slept:?} of 1000 calls");
}

#[test]
fn ranks_are_told_who_has_left_before_all_had_joined() {
    let mut waiting = in_threads(3, "xt4").unwrap();
    let late = waiting.pop().unwrap();
    let first = waiting.remove(0);
    thread::scope(|s| {
        let joins = s.spawn(|| first.join().map(drop).unwrap_err().to_string());
        // Rank 1, whether rank 0 is there already or not.
        waiting.clear();
        let told = joins.join().unwrap();
        assert!(
            told.contains("rank 1 left before all ranks had joined"),
            "{told}"
        );
    });
    let told = late.join().map(drop).unwrap_err().to_string();
    assert!(told.contains("rank 1 left"), "{told}");
}

/// Neither who waits nor who asks later waits for ever, and a panic is nobody's but the simulation's.
#[test]
fn a_panic_of_the_simulation_is_its_end_for_all() {
    let setting = setting(&FabricConfig::default()).unwrap();
    let ranks = thread_ranks(2, setting).unwrap();
    let shared = &ranks[0].shared;
    thread::scope(|s| {
        let waits: Vec<_> = ranks.iter().map(|rank| s.spawn(|| rank.hear())).collect();
        shared.with_state(|_| panic!("meant"));
        for wait in waits {
            assert!(wait.join().unwrap().is_none());
        }
    });
    let status = || Question::Call(Call::Status);
    assert!(ranks.iter().all(|rank| rank.ask(status()).is_none()));
}

/// What ranks do after another one has closed is in the files that the environment asks for.
#[test]
fn the_last_rank_that_closes_ends_the_files() {
    let test = "threads::tests::the_last_rank_that_closes_ends_the_files";
    if std::env::var_os(LINKS_VARIABLE).is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args([test, "--exact"])
            .env(LINKS_VARIABLE, file.path());
        assert!(again.output().unwrap().status.success());
        let links = std::fs::read_to_string(file.path()).unwrap();
        let last = links.lines().last().unwrap_or_default();
        let used: Option<u32> = last.split(' ').next().and_then(|n| n.parse().ok());
        assert!(used.is_some_and(|n| n > 0), "{links}");
        return;
    }
    each(in_threads(3, "xt4").unwrap(), |rank, opened| {
        let ni = &opened.interface;
        if rank == 2 {
            return;
        }
        let eq = ni.eq_alloc(4).unwrap();
        let waits = || {
            let _ = ni.eq_poll(&[eq], Wait::Nanos(100_000)).unwrap();
        };
        waits();
        if rank == 0 {
            let region = Region::new(8).unwrap();
            let md = ni
                .md_bind(spec(MdMemory::whole(&region), None), Unlink::Retain)
                .unwrap();
            ni.put_region(md, (0, 8), AckRequest::NoAck, to(opened.peers[1], 0), 0)
                .unwrap();
        }
        waits();
    });
}

/// Nobody waits for a rank whose thread has ended.
#[test]
fn a_rank_that_lets_go_holds_no_time() {
    let waiting = in_threads(2, "xt4").unwrap();
    thread::scope(|s| {
        let run = |rank: InThread| {
            let at = rank.rank();
            let opened = Opened::from(rank.join().unwrap());
            if at == 1 {
                return;
            }
            let ni = &opened.interface;
            let eq = ni.eq_alloc(4).unwrap();
            assert!(ni.eq_poll(&[eq], Wait::Nanos(1_000_000)).unwrap().is_none());
            ni.close().unwrap();
        };
        for rank in waiting {
            s.spawn(move || run(rank));
        }
    });
}
