//! The server alone, then the real client against it over socket pairs.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use portals_shim::job::{Job, JobError};

use super::*;

fn one(server: &mut PmiServer, rank: u32, line: &str) -> String {
    let mut out = server.handle_line(rank, line);
    assert_eq!(out.len(), 1, "{line}: {out:?}");
    let (to, answer) = out.remove(0);
    assert_eq!(to, rank);
    answer.trim_end().to_owned()
}

fn joined(size: u32) -> PmiServer {
    let mut server = PmiServer::new(size, "kvs");
    for rank in 0..size {
        let answer = one(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(
            answer,
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
        );
    }
    server
}

fn broken(server: &mut PmiServer) -> (u32, String) {
    match server.poll_end() {
        Some(End::Broken { rank, reason }) => (rank, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_put_is_visible_after_the_barrier_and_not_before() {
    let mut server = joined(2);
    let get = "cmd=get kvsname=kvs key=a";
    let answer = one(&mut server, 0, "cmd=put kvsname=kvs key=a value=x=y");
    assert_eq!(answer, "cmd=put_result rc=0 msg=success");
    assert_eq!(
        one(&mut server, 1, get),
        "cmd=get_result rc=-1 msg=key_not_found"
    );
    assert_eq!(server.handle_line(0, "cmd=barrier_in"), []);
    let out = server.handle_line(1, "cmd=barrier_in");
    let out: Vec<_> = out.iter().map(|(r, l)| (*r, l.trim_end())).collect();
    assert_eq!(
        out,
        [(0, "cmd=barrier_out rc=0"), (1, "cmd=barrier_out rc=0")]
    );
    assert_eq!(
        one(&mut server, 1, get),
        "cmd=get_result rc=0 msg=success value=x=y"
    );
    assert_eq!(server.poll_end(), None);
}

#[test]
fn puts_out_of_bounds_are_refused_and_harm_nobody() {
    let mut server = joined(1);
    let long_key = "k".repeat(64);
    let long_value = "v".repeat(1024);
    for (line, why) in [
        (
            "cmd=put kvsname=other key=a value=x".to_owned(),
            "unknown_kvsname",
        ),
        ("cmd=put kvsname=kvs value=x".to_owned(), "bad_key_length"),
        (
            format!("cmd=put kvsname=kvs key={long_key} value=x"),
            "bad_key_length",
        ),
        (
            format!("cmd=put kvsname=kvs key=a value={long_value}"),
            "value_too_long",
        ),
        (
            "cmd=put kvsname=kvs key=PMI_process_mapping value=x".to_owned(),
            "duplicate_key",
        ),
    ] {
        assert_eq!(
            one(&mut server, 0, &line),
            format!("cmd=put_result rc=-1 msg={why}")
        );
    }
    assert_eq!(server.poll_end(), None);
}

#[test]
fn what_an_mpi_library_asks_is_answered() {
    let mut server = joined(3);
    assert_eq!(
        one(
            &mut server,
            1,
            "cmd=get kvsname=kvs key=PMI_process_mapping"
        ),
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,3))"
    );
    assert_eq!(
        one(&mut server, 1, "cmd=get_universe_size"),
        "cmd=universe_size rc=0 size=3"
    );
    assert_eq!(
        one(&mut server, 1, "cmd=get_appnum"),
        "cmd=appnum rc=0 appnum=0"
    );
    for line in ["mcmd=spawn", "nprocs=1", "execname=x"] {
        assert_eq!(server.handle_line(2, line), []);
    }
    assert!(one(&mut server, 2, "endcmd").starts_with("cmd=spawn_result rc=-1"));
    assert!(one(&mut server, 2, "cmd=lookup_name service=x").contains("rc=-1"));
    assert_eq!(server.poll_end(), None);
}

#[test]
fn a_second_protocol_version_is_refused() {
    let mut server = PmiServer::new(1, "kvs");
    let answer = one(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0");
    assert!(
        answer.contains("rc=-1") && answer.contains("pmi_version=1"),
        "{answer}"
    );
    assert_eq!(server.stage(0), Stage::Silent);
}

#[test]
fn stages_follow_init_and_finalize() {
    let mut server = PmiServer::new(2, "kvs");
    assert_eq!(server.stage(1), Stage::Silent);
    one(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
    assert_eq!(server.stage(1), Stage::Joined);
    assert_eq!(one(&mut server, 1, "cmd=finalize"), "cmd=finalize_ack rc=0");
    assert_eq!(server.stage(1), Stage::Finalized);
    assert_eq!(
        server.stages().collect::<Vec<_>>(),
        [Stage::Silent, Stage::Finalized]
    );
}

#[test]
fn a_rank_whose_libraries_joined_twice_leaves_with_the_last_of_them() {
    let mut server = joined(2);
    one(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
    assert_eq!(one(&mut server, 1, "cmd=finalize"), "cmd=finalize_ack rc=0");
    assert_eq!(server.stage(1), Stage::Joined);
    assert_eq!(server.handle_line(1, "cmd=barrier_in"), []);
    assert_eq!(server.handle_line(0, "cmd=barrier_in").len(), 2);
    one(&mut server, 1, "cmd=finalize");
    assert_eq!(server.stage(1), Stage::Finalized);
    assert_eq!(server.poll_end(), None);
}

#[test]
fn a_line_that_is_closed_after_one_finalize_is_left_by_all() {
    let mut server = joined(2);
    for rank in [0, 1] {
        one(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1");
    }
    assert_eq!(server.handle_closed(0), Stage::Joined);
    one(&mut server, 1, "cmd=finalize");
    assert_eq!(server.handle_closed(1), Stage::Finalized);
    assert_eq!(server.poll_end(), None);
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_the_first_one_counts() {
    let mut server = joined(2);
    assert_eq!(
        server.handle_line(1, "cmd=abort exitcode=7 message=no more memory"),
        []
    );
    server.handle_line(0, "cmd=abort exitcode=8");
    assert_eq!(
        server.poll_end(),
        Some(End::Abort {
            rank: 1,
            code: 7,
            message: "no more memory".into()
        })
    );
    assert_eq!(server.poll_end(), None);
}

#[test]
fn a_barrier_nobody_can_complete_ends_the_job() {
    let mut server = joined(2);
    server.handle_line(0, "cmd=barrier_in");
    one(&mut server, 1, "cmd=finalize");
    let (rank, reason) = broken(&mut server);
    assert_eq!(rank, 1);
    assert!(reason.contains("rank 0 waits"), "{reason}");

    let mut server = joined(2);
    one(&mut server, 1, "cmd=finalize");
    server.handle_line(0, "cmd=barrier_in");
    assert_eq!(broken(&mut server).0, 1);
}

#[test]
fn lines_outside_the_protocol_end_the_job_and_name_the_rank() {
    for (line, words) in [
        ("", "empty"),
        ("nonsense", "not key=value"),
        ("key=value", "no cmd"),
        ("cmd=dance", "dance"),
        ("cmd=a\u{1}", "control"),
    ] {
        let mut server = joined(2);
        server.handle_line(1, line);
        let (rank, reason) = broken(&mut server);
        assert_eq!(rank, 1);
        assert!(reason.contains(words), "{line:?}: {reason}");
    }
    let mut server = PmiServer::new(1, "kvs");
    server.handle_line(0, "cmd=barrier_in");
    assert!(broken(&mut server).1.contains("before init"));
    let mut server = joined(1);
    one(&mut server, 0, "cmd=finalize");
    server.handle_line(0, "cmd=get_maxes");
    assert!(broken(&mut server).1.contains("after finalize"));
    let mut server = joined(2);
    server.handle_line(0, "cmd=barrier_in");
    server.handle_line(0, "cmd=barrier_in");
    assert!(broken(&mut server).1.contains("it is in"));
    assert_eq!(server.handle_line(9, "cmd=init pmi_version=1"), []);
}

#[test]
fn random_lines_never_panic() {
    let mut rng = fastrand::Rng::with_seed(5);
    let words = [
        "cmd=put",
        "cmd=get",
        "kvsname=kvs",
        "key=a",
        "value=b",
        "cmd=barrier_in",
        "mcmd=spawn",
    ];
    for _ in 0..2000 {
        let mut server = joined(2);
        for _ in 0..8 {
            let line: Vec<&str> = (0..rng.usize(..4))
                .map(|_| words[rng.usize(..words.len())])
                .collect();
            server.handle_line(rng.u32(..3), &line.join(" "));
        }
        server.poll_end();
    }
}

/// Runs `body` as every rank of a job of `size`, each in a thread, over socket pairs served here.
fn with_clients(size: u32, body: impl Fn(Job) + Copy + Send + 'static) -> PmiServer {
    let mut server = PmiServer::new(size, "kvs_test");
    let (to_server, lines) = mpsc::channel::<(u32, Option<String>)>();
    let mut sockets = Vec::new();
    let mut ranks = Vec::new();
    for rank in 0..size {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut reader = ours.try_clone().unwrap();
        let to_server = to_server.clone();
        thread::spawn(move || {
            let mut text = Vec::new();
            let mut byte = [0];
            while matches!(reader.read(&mut byte), Ok(1)) {
                if byte[0] == b'\n' {
                    let line = String::from_utf8(std::mem::take(&mut text)).unwrap();
                    to_server.send((rank, Some(line))).unwrap();
                } else {
                    text.push(byte[0]);
                }
            }
            to_server.send((rank, None)).unwrap();
        });
        sockets.push(ours);
        ranks.push(thread::spawn(move || {
            body(Job::over(theirs.into(), rank, size).unwrap())
        }));
    }
    let mut open = size;
    while open > 0 {
        match lines.recv().unwrap() {
            (_, None) => open -= 1,
            (rank, Some(line)) => {
                for (to, answer) in server.handle_line(rank, &line) {
                    (&sockets[usize::try_from(to).unwrap()])
                        .write_all(answer.as_bytes())
                        .unwrap();
                }
            }
        }
    }
    for rank in ranks {
        rank.join().unwrap();
    }
    server
}

#[test]
fn real_clients_exchange_long_and_binary_values() {
    let mut server = with_clients(4, |job| {
        let value = |rank: u32| -> Vec<u8> {
            (0..=255_u8)
                .cycle()
                .skip(rank as usize)
                .take(3000 * rank as usize)
                .collect()
        };
        job.put(&format!("addr.{}", job.rank()), value(job.rank()))
            .unwrap();
        assert!(matches!(
            job.get_bytes("addr.3"),
            Err(JobError::NoSuchKey { .. })
        ));
        job.fence().unwrap();
        for rank in 0..job.size() {
            assert_eq!(job.get_bytes(&format!("addr.{rank}")).unwrap(), value(rank));
        }
        assert_eq!(job.local_ranks().unwrap(), [0, 1, 2, 3]);
        assert!(matches!(
            job.put("addr.0", "again"),
            Err(JobError::Refused { .. })
        ));
        job.barrier().unwrap();
        assert_eq!(job.id(), "kvs_test");
        job.finalize().unwrap();
    });
    assert_eq!(server.poll_end(), None);
    assert!(server.stages().all(|s| s == Stage::Finalized));
}
