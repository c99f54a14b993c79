//! Ranks as threads and ranks as processes leave the same timeline, byte for byte.
//!
//! Without a harness, because its threads would make a rank's process one of several threads.

use std::process::{Command, ExitCode, Stdio};

use portals_shim::fabric::{self, FabricConfig, Opened};
use portals_shim::job::Job;
use portals_shim::nal::seastar::{TITLE_VARIABLE, TRACE_VARIABLE, in_threads};
use portals_shim::{
    AckRequest, EventKind, InsertPosition, MdMemory, MdOptions, MdSpec, MeSpec, ProcessId, Region,
    Target, Unlink, Wait,
};

const ROLE: &str = "TRACE_ALIKE_ROLE";
const RANKS: u32 = 3;

/// Each rank puts messages of several lengths round a ring and waits for its neighbour's.
fn body(rank: u32, opened: &Opened) {
    const LENGTHS: [u64; 5] = [0, 8, 17, 1000, 9000];
    let ni = &opened.interface;
    let eq = ni.eq_alloc(256).unwrap();
    let region = Region::new(64 * 1024).unwrap();
    let md = |options| MdSpec {
        memory: MdMemory::whole(&region),
        threshold: -1,
        max_size: 0,
        options,
        user_ptr: 0,
        eq: Some(eq),
    };
    let entry = MeSpec {
        match_id: ProcessId::ANY,
        match_bits: 7,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    };
    let me = ni.me_attach(4, entry, InsertPosition::After).unwrap();
    let target = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
    ni.md_attach(me, md(target), Unlink::Retain).unwrap();
    let source = ni.md_bind(md(MdOptions::empty()), Unlink::Retain).unwrap();
    let next = opened.peers[((rank + 1) % RANKS) as usize];
    let (mut arrived, mut acked) = (0, 0);
    // Nobody sends before the others' entries exist, which is in virtual time.
    let nothing = ni.eq_poll(&[eq], Wait::Nanos(200_000)).unwrap();
    assert!(nothing.is_none());
    for length in LENGTHS {
        let to = Target {
            process: next,
            pt_index: 4,
            ac_index: 0,
            match_bits: 7,
            remote_offset: 32 * 1024,
        };
        ni.put_region(source, (0, length), AckRequest::Ack, to, length)
            .unwrap();
    }
    while arrived < LENGTHS.len() || acked < LENGTHS.len() {
        match ni.eq_wait(eq).unwrap().event.kind {
            EventKind::PutEnd => arrived += 1,
            EventKind::Ack => acked += 1,
            _ => {}
        }
    }
}

fn as_rank() {
    let job = Job::from_env().unwrap();
    let opened = fabric::open(&job, &FabricConfig::from_env().unwrap()).unwrap();
    body(job.rank(), &opened);
    opened.interface.close().unwrap();
    job.finalize().unwrap();
}

fn as_threads() {
    let waiting = in_threads(RANKS, "xt4").unwrap();
    std::thread::scope(|scope| {
        for rank in waiting {
            scope.spawn(move || {
                let number = rank.rank();
                let opened = Opened::from(rank.join().unwrap());
                body(number, &opened);
                opened.interface.close().unwrap();
            });
        }
    });
}

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("rank") => as_rank(),
        Ok("threads") => as_threads(),
        _ => {
            let this = std::env::current_exe().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = |name: &str| folder.path().join(name);
            let (processes, threads) = (file("processes"), file("threads"));
            let ranks = RANKS.to_string();
            let done = Command::new(env!("CARGO_BIN_EXE_portolan"))
                .args([
                    "trace",
                    "-n",
                    &ranks,
                    "--env",
                    &format!("{ROLE}=rank"),
                    "--out",
                ])
                .arg(&processes)
                .arg("--")
                .arg(&this)
                .stdin(Stdio::null())
                .status()
                .unwrap();
            assert!(done.success(), "processes: {done}");
            let done = Command::new(&this)
                .env(ROLE, "threads")
                .env(TRACE_VARIABLE, &threads)
                .env(TITLE_VARIABLE, this.file_name().unwrap())
                .status()
                .unwrap();
            assert!(done.success(), "threads: {done}");
            let [a, b] = [&processes, &threads].map(|path| std::fs::read(path).unwrap());
            assert!(a.len() > 10_000, "{} bytes", a.len());
            if a != b {
                let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (a, b) = (lines(&a), lines(&b));
                let first = a.lines().zip(b.lines()).find(|(a, b)| a != b);
                panic!("the timelines differ, first in {first:#?}");
            }
            println!("test ranks_as_threads_and_as_processes_leave_the_same_timeline ... ok");
        }
    }
    ExitCode::SUCCESS
}
