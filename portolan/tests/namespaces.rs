//! Ranks in namespaces of their own map each other's regions, as ranks without namespaces do.

use std::process::{Command, Stdio};

use portals_shim::fabric::{self, FabricConfig};
use portals_shim::job::Job;
use portals_shim::{
    AckRequest, EventKind, InsertPosition, MdMemory, MdOptions, MdSpec, MeSpec, ProcessId, Target,
    Unlink,
};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");
/// Makes this executable a rank.
const RANK: &str = "PORTOLAN_TEST_RANK";
/// What a rank calls its result.
const RESULT: &str = "by itself: ";
const LEN: usize = 1 << 20;
const PUTS: u64 = 10;

/// A rank of the jobs below, which writes to the other one's region; nothing where this executable is not one.
#[test]
fn rank_of_a_job() {
    if std::env::var_os(RANK).is_none() {
        return;
    }
    let job = Job::from_env().unwrap();
    let opened = fabric::open(&job, &FabricConfig::from_env().unwrap()).unwrap();
    let ni = &opened.interface;
    let eq = ni.eq_alloc(64).unwrap();
    let spec = |region, eq| MdSpec {
        memory: MdMemory::whole(region),
        threshold: -1,
        max_size: 0,
        options: MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq,
    };
    let entry = MeSpec {
        match_id: ProcessId::ANY,
        match_bits: 7,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    };
    let [own, source] = [(); 2].map(|()| ni.new_region(LEN).unwrap());
    let me = ni.me_attach(4, entry, InsertPosition::After).unwrap();
    ni.md_attach(me, spec(&own, None), Unlink::Retain).unwrap();
    let from = ni.md_bind(spec(&source, Some(eq)), Unlink::Retain).unwrap();
    source.fill(0, LEN, 1 + job.rank() as u8).unwrap();
    ni.outside(|| job.fence()).unwrap().unwrap();
    let other = 1 - job.rank();
    let to = Target {
        process: opened.peers[other as usize],
        pt_index: 4,
        ac_index: 0,
        match_bits: 7,
        remote_offset: 0,
    };
    for _ in 0..PUTS {
        ni.put_region(from, (0, LEN as u64), AckRequest::Ack, to, 0)
            .unwrap();
        while ni.eq_wait(eq).unwrap().event.kind != EventKind::Ack {}
    }
    let mapped = ni.window(&to).is_some();
    ni.outside(|| job.fence()).unwrap().unwrap();
    let mut seen = vec![0; LEN];
    own.read(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 1 + other as u8));
    let count = ni.paths().unwrap().one_sided;
    println!("\n{RESULT}{count} {mapped}");
    ni.close().unwrap();
    job.finalize().unwrap();
}

/// What the ranks of a job of two say, each behind these words.
fn job(inside: &[&str]) -> Vec<String> {
    let output = Command::new(PORTOLAN)
        .args([
            "run",
            "-n",
            "2",
            "--timeout",
            "120",
            "--fabric",
            "shm",
            "--",
        ])
        .args(inside)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "rank_of_a_job", "--nocapture"])
        .env(RANK, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{inside:?}: {said}{error}");
    let results = said.lines().filter_map(|line| line.split_once(RESULT));
    results.map(|(_, result)| result.to_owned()).collect()
}

#[test]
fn regions_are_mapped_between_namespaces() {
    let own_pid = ["unshare", "--pid", "--fork", "--kill-child"];
    let no_proc = [
        &own_pid[..],
        &["--mount", "sh", "-c"],
        &["mount -t tmpfs none /proc && exec \"$@\"", "sh"],
    ]
    .concat();
    let own_user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
        "unshare",
        "--user",
        "--map-root-user",
    ];
    for inside in [&[][..], &own_pid, &no_proc, &own_user] {
        let made = inside.is_empty()
            || Command::new(inside[0])
                .args(&inside[1..])
                .args([PORTOLAN, "--version"])
                .stderr(Stdio::null())
                .output()
                .is_ok_and(|output| output.status.success());
        if !made {
            println!("skipped: {} cannot be made here", inside.join(" "));
            continue;
        }
        let all = format!("{PUTS} true");
        assert_eq!(job(inside), [all.clone(), all], "{inside:?}");
    }
}
