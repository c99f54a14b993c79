//! What the machine does not give: memory that may be locked, and in the end the device.

use super::*;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the test `name` of this executable in a process of its own, prepared by `wrap`; what it printed.
fn alone(name: &str, wrap: &[&str], vars: &[(&str, &str)]) -> (bool, String) {
    let own = std::env::current_exe().unwrap();
    let mut words = wrap.iter();
    let mut command = match words.next() {
        Some(first) => {
            let mut c = Command::new(first);
            c.args(words).arg(own);
            c
        }
        None => Command::new(own),
    };
    let name = format!("tests::limits::{name}");
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    let out = command.envs(vars.iter().copied()).output().unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

/// Long puts between two ranks; the first event that says a failure, or none.
fn long_puts(len: usize) -> NiFail {
    let device = device().unwrap();
    let opened =
        portals_shim::fabric::interfaces(super::super::in_threads(2, Some(&device)).unwrap());
    let s: Vec<Side> = opened.iter().map(|o| side(o, len)).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let fail = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = opened[1]
                    .interface
                    .eq_poll(&[s[1].eq], Wait::Nanos(1_000_000));
            }
        });
        let there = to(opened[0].peers[1], LOUD, 0);
        let ni = &opened[0].interface;
        ni.put_region(s[0].source, (0, len as u64), AckRequest::NoAck, there, 0)
            .unwrap();
        let fail = loop {
            let polled = ni.eq_poll(&[s[0].eq], Wait::Nanos(20_000_000_000)).unwrap();
            let e = polled.expect("the put ends").event;
            if e.kind == EventKind::SendEnd {
                break e.ni_fail;
            }
        };
        // Short messages, which need no registration, still go.
        ring(&opened[0], &s[0], opened[0].peers[1]);
        loop {
            let polled = ni.eq_poll(&[s[0].eq], Wait::Nanos(20_000_000_000)).unwrap();
            let e = polled.expect("the bell is sent").event;
            if e.kind == EventKind::SendEnd {
                assert_eq!(e.ni_fail, NiFail::OK);
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        fail
    });
    for o in &opened {
        o.interface.close().unwrap();
    }
    fail
}

#[test]
#[ignore = "run by the tests below, in a process with limits"]
fn child_long_puts() {
    let fail = long_puts(16 << 20);
    println!("the put ended with {fail:?}");
}

#[test]
#[ignore = "run by the tests below, in a process with limits"]
fn child_opens() {
    let device = device().unwrap();
    match super::super::in_threads(1, Some(&device)) {
        Ok(_) => println!("it opened"),
        Err(error) => println!("{error}"),
    }
}

/// More registered memory than `PORTOLAN_MEMLOCK`: the operation fails and says what to raise, others go on.
#[test]
fn device_registrations_stay_within_the_budget() {
    if device().is_none() {
        return;
    }
    let (ok, text) = alone("child_long_puts", &[], &[("PORTOLAN_MEMLOCK", "8M")]);
    assert!(ok, "{text}");
    assert!(text.contains("PORTOLAN_MEMLOCK"), "{text}");
    assert!(text.contains("the put ended with NiFail(2)"), "{text}");
    let (ok, text) = alone("child_long_puts", &[], &[("PORTOLAN_MEMLOCK", "64M")]);
    assert!(
        ok && text.contains("the put ended with NiFail(0)"),
        "{text}"
    );
}

/// What a program may wait for comes, whichever side has no memory to register: SEND_END and ACK of a put, REPLY_END
/// of a get; and adapters serve the peer as before.
#[test]
fn device_an_operation_without_memory_ends_in_all_its_events() {
    if device().is_none() {
        return;
    }
    let (ok, text) = alone("child_answers", &[], &[("PORTOLAN_MEMLOCK", "8M")]);
    assert!(ok, "{text}");
}

#[test]
#[ignore = "run by the test above, in a process with limits"]
fn child_answers() {
    const SMALL: usize = 2 << 20;
    const BIG: usize = 16 << 20;
    const TINY: u64 = 20;
    let device = device().unwrap();
    let opened =
        portals_shim::fabric::interfaces(super::super::in_threads(2, Some(&device)).unwrap());
    // The memory that the one works from can be registered, that of the other one not.
    let (zero, one) = (&opened[0], &opened[1]);
    let (s0, s1) = (side(zero, SMALL), side(one, BIG));
    let tiny = Region::new(4096).unwrap();
    let me = one
        .interface
        .me_attach(4, entry(TINY), InsertPosition::After);
    let md = spec(MdMemory::whole(&tiny), None);
    one.interface
        .md_attach(me.unwrap(), md, Unlink::Retain)
        .unwrap();
    let ni = &zero.interface;
    let region = Region::new(BIG).unwrap();
    let md = spec(MdMemory::whole(&region), Some(s0.eq));
    let big = ni.md_bind(md, Unlink::Retain).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = one.interface.eq_poll(&[s1.eq], Wait::Nanos(1_000_000));
            }
        });
        let _stop = StopOnDrop(&stop);
        let ends = |bits, kinds: &[EventKind], fail| {
            for kind in kinds {
                loop {
                    let polled = ni.eq_poll(&[s0.eq], Wait::Nanos(20_000_000_000)).unwrap();
                    let e = polled
                        .unwrap_or_else(|| panic!("no {kind:?} of {bits}"))
                        .event;
                    if (e.kind, e.match_bits) == (*kind, bits) {
                        assert_eq!(e.ni_fail, fail, "{e:?}");
                        break;
                    }
                }
            }
        };
        let puts = [EventKind::SendEnd, EventKind::Ack];
        let peer = zero.peers[1];
        let put = |md, len: usize, bits| {
            ni.put_region(md, (0, len as u64), AckRequest::Ack, to(peer, bits, 0), 0)
                .unwrap();
        };
        put(big, BIG, LOUD);
        ends(LOUD, &puts, NiFail::SEGV);
        put(s0.source, SMALL, LOUD);
        ends(LOUD, &puts, NiFail::FAIL);
        for (md, len) in [(s0.source, SMALL), (big, BIG)] {
            ni.get_region(md, (0, len as u64), to(peer, LOUD, 0))
                .unwrap();
            ends(LOUD, &[EventKind::ReplyEnd], NiFail::FAIL);
        }
        put(s0.source, 8, LOUD);
        ends(LOUD, &puts, NiFail::OK);
        let before = ni.paths().unwrap().one_sided;
        let end = Instant::now() + Duration::from_secs(20);
        while ni.paths().unwrap().one_sided == before {
            assert!(Instant::now() < end, "the adapter serves nothing any more");
            put(s0.source, 8, TINY);
            ends(TINY, &puts, NiFail::OK);
        }
    });
    for o in &opened {
        o.interface.close().unwrap();
    }
}

/// Ends a thread that waits for it, when the test ends however.
struct StopOnDrop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The system's own limit, for a process without the right to pass it: a message with the limit and the remedy.
#[test]
fn device_the_limit_of_locked_memory_is_named() {
    if device().is_none() {
        return;
    }
    let limited = |kib: &str| {
        let words = [
            "prlimit",
            kib,
            "setpriv",
            "--bounding-set",
            "-ipc_lock",
            "--inh-caps",
            "-ipc_lock",
        ];
        alone("child_opens", &words, &[])
    };
    let (ok, text) = limited("--memlock=65536:65536");
    if !ok && text.contains("No such file") {
        println!("skipped: no prlimit or setpriv here");
        return;
    }
    assert!(text.contains("limited to 65536 bytes"), "{text}");
    assert!(text.contains("ulimit -l unlimited"), "{text}");
    // The kernel has another word for this one.
    let (_, text) = limited("--memlock=0:0");
    assert!(text.contains("limited to 0 bytes"), "{text}");
    assert!(text.contains("ulimit -l unlimited"), "{text}");
    // Enough to open, and not for long messages.
    let words = [
        "prlimit",
        "--memlock=25165824:25165824",
        "setpriv",
        "--bounding-set",
        "-ipc_lock",
        "--inh-caps",
        "-ipc_lock",
    ];
    let (ok, text) = alone("child_long_puts", &words, &[("PORTOLAN_MEMLOCK", "1G")]);
    assert!(ok, "{text}");
    // The limit is of both ranks, which are one process: whichever is late has no more.
    let ends = [1, 2].map(|fail| format!("the put ended with NiFail({fail})"));
    assert!(ends.iter().any(|end| text.contains(end)), "{text}");
    assert!(
        text.contains("locked memory is limited to 25165824 bytes"),
        "{text}"
    );
}

/// A progress thread answers while the program computes; without it the put waits for the next call.
#[test]
fn device_a_progress_thread_answers_for_a_rank_that_computes() {
    if device().is_none() {
        return;
    }
    for (how, prompt) in [("thread", true), ("calls", false)] {
        let (ok, text) = alone("child_computes", &[], &[("PORTOLAN_PROGRESS", how)]);
        assert!(ok, "{text}");
        assert_eq!(text.contains("prompt: true"), prompt, "{how}: {text}");
    }
}

#[test]
#[ignore = "run by the test above, with each way of progress"]
fn child_computes() {
    const COMPUTES: Duration = Duration::from_secs(2);
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        if rank == 1 {
            // No call is made meanwhile.
            let start = Instant::now();
            let mut x = 1u64;
            while start.elapsed() < COMPUTES {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            wait(o, s.eq, EventKind::PutEnd, LOUD);
            ring(o, s, peer);
            return;
        }
        // While a connection is made the attendant makes progress in any case.
        let _ = o
            .interface
            .eq_poll(&[s.eq], Wait::Nanos(400_000_000))
            .unwrap();
        while o.interface.eq_get(s.eq).unwrap().is_some() {}
        let start = Instant::now();
        let there = to(peer, LOUD, 0);
        o.interface
            .put_region(s.source, (0, 8), AckRequest::Ack, there, 0)
            .unwrap();
        wait(o, s.eq, EventKind::Ack, LOUD);
        println!("prompt: {}", start.elapsed() < COMPUTES / 4);
        wait(o, s.eq, EventKind::PutEnd, BELL);
    });
}

/// The device is taken away under two ranks that talk: each operation ends, and so do the ranks. (SoftRoCE of Linux
/// 6.1 waits until its users have left; other drivers end at once, with an event.)
#[test]
fn device_a_device_taken_away_ends_every_operation() {
    let Some(name) = device() else { return };
    if std::env::var_os("PORTOLAN_GUEST").is_none() {
        println!("skipped: the device is taken away in a guest only");
        return;
    }
    if std::env::var_os("PORTOLAN_CONNECT").is_some() {
        println!(
            "skipped: librdmacm keeps a device open as long as the process lives, and SoftRoCE waits for that"
        );
        return;
    }
    let parent = std::fs::read_to_string(format!("/sys/class/infiniband/{name}/parent"));
    let netdev = parent.unwrap().trim().to_owned();
    let spare = "rxespare";
    let rdma = |words: &[&str]| {
        let done = Command::new("rdma").args(words).status().unwrap();
        assert!(done.success(), "rdma {words:?}");
    };
    // A device of its own, so that the others' stays: on an interface of its own.
    let ip = |words: &[&str]| {
        let done = Command::new("ip").args(words).status().unwrap();
        assert!(done.success(), "ip {words:?}");
    };
    assert_ne!(netdev, "d9");
    ip(&["link", "add", "d9", "type", "dummy"]);
    ip(&["addr", "add", "10.9.9.1/24", "dev", "d9"]);
    ip(&["link", "set", "d9", "up"]);
    rdma(&["link", "add", spare, "type", "rxe", "netdev", "d9"]);
    let opened =
        portals_shim::fabric::interfaces(super::super::in_threads(2, Some(spare)).unwrap());
    let s: Vec<Side> = opened.iter().map(|o| side(o, 1 << 20)).collect();
    ring(&opened[0], &s[0], opened[0].peers[1]);
    wait(&opened[1], s[1].eq, EventKind::PutEnd, BELL);
    let mut taker = Command::new("rdma")
        .args(["link", "delete", spare])
        .spawn()
        .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let puts = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = opened[1]
                    .interface
                    .eq_poll(&[s[1].eq], Wait::Nanos(1_000_000));
            }
        });
        let ni = &opened[0].interface;
        let (mut puts, mut ends, mut acks, mut failed) = (0u64, 0, 0, false);
        let start = Instant::now();
        let enough = |failed| failed || start.elapsed() > Duration::from_secs(3);
        while !enough(failed) || ends < puts || acks < puts {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{ends} and {acks} of {puts}"
            );
            if !enough(failed) && puts - acks < 4 {
                let there = to(opened[0].peers[1], QUIET, 0);
                ni.put_region(s[0].source, (0, 1 << 20), AckRequest::Ack, there, 0)
                    .unwrap();
                puts += 1;
            }
            while let Some(p) = ni.eq_poll(&[s[0].eq], Wait::Nanos(1_000_000)).unwrap() {
                failed |= p.event.ni_fail != NiFail::OK;
                match (p.event.kind, p.event.match_bits) {
                    (EventKind::SendEnd, QUIET) => ends += 1,
                    (EventKind::Ack, QUIET) => acks += 1,
                    _ => {}
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("{puts} puts, each with its end; failed: {failed}");
        puts
    });
    assert!(puts > 0);
    for o in &opened {
        o.interface.close().unwrap();
    }
    drop(opened);
    assert!(
        taker.wait().unwrap().success(),
        "the device can go once its users have left"
    );
    ip(&["link", "delete", "d9"]);
}
