//! The client against a scripted launcher: right answers, wrong answers, no answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use super::*;

const HELLO: [&str; 3] = [
    "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
    "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64",
    "cmd=my_kvsname rc=0 kvsname=kvs_7",
];

/// A launcher that gives one scripted answer to each line it reads, then hangs up. Joining the thread
/// returns the lines it was asked.
fn launcher(answers: &[&str]) -> (OwnedFd, JoinHandle<Vec<String>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let answers: Vec<String> = answers.iter().map(|a| format!("{a}\n")).collect();
    let thread = thread::spawn(move || {
        let mut lines = BufReader::new(&theirs).lines();
        let mut asked = Vec::new();
        for answer in answers {
            let Some(Ok(line)) = lines.next() else { break };
            asked.push(line);
            if (&theirs).write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
        asked
    });
    (ours.into(), thread)
}

/// Joins with the usual hello, then the further answers.
fn joined(further: &[&str]) -> (Job, JoinHandle<Vec<String>>) {
    let (socket, thread) = launcher(&[&HELLO[..], further].concat());
    (Job::over(socket, 1, 2).unwrap(), thread)
}

fn join_error(answers: &[&str]) -> JobError {
    Job::over(launcher(answers).0, 0, 1).unwrap_err()
}

#[test]
fn joining_asks_the_three_questions_in_order() {
    let (job, thread) = joined(&[]);
    assert_eq!((job.rank(), job.size(), job.id()), (1, 2, "kvs_7"));
    assert_eq!(
        thread.join().unwrap(),
        [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_my_kvsname"
        ]
    );
}

#[test]
fn a_long_value_travels_in_parts() {
    let ok = "cmd=put_result rc=0 msg=success";
    let (job, thread) = joined(&[ok, ok, ok]);
    job.put("addr", "x".repeat(130)).unwrap();
    drop(job);
    let asked = thread.join().unwrap();
    assert_eq!(
        asked[3],
        format!("cmd=put kvsname=kvs_7 key=addr value=3:{}", "x".repeat(61))
    );
    assert_eq!(
        asked[4],
        format!("cmd=put kvsname=kvs_7 key=addr~1 value={}", "x".repeat(63))
    );
    assert_eq!(asked[5], "cmd=put kvsname=kvs_7 key=addr~2 value=xxxxxx");
}

#[test]
fn parts_come_back_as_one_value() {
    let (job, thread) = joined(&[
        "cmd=get_result rc=0 msg=success value=2:one%20",
        "cmd=get_result rc=0 msg=success value=two",
    ]);
    assert_eq!(job.get("addr").unwrap(), "one two");
    drop(job);
    assert_eq!(
        thread.join().unwrap()[4],
        "cmd=get kvsname=kvs_7 key=addr~1"
    );
}

#[test]
fn an_unknown_key_is_told_from_a_broken_launcher() {
    let (job, _) = joined(&["cmd=get_result rc=-1 msg=key_a_not_found value=unknown"]);
    assert!(matches!(job.get("a"), Err(JobError::NoSuchKey { .. })));
    assert!(matches!(job.get("a"), Err(JobError::LauncherGone { .. })));
}

#[test]
fn a_launcher_that_hangs_up_is_named_as_such() {
    assert!(matches!(
        join_error(&[]),
        JobError::LauncherGone {
            doing: "join the job"
        }
    ));
    let (job, thread) = joined(&[]);
    thread.join().unwrap();
    let error = job.fence().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the launcher closed the connection while this rank wanted to fence"
    );
}

#[test]
fn wrong_hellos_are_errors_with_the_line() {
    assert!(matches!(join_error(&["hello"]), JobError::Malformed { line, .. } if line == "hello"));
    assert!(matches!(join_error(&[""]), JobError::Malformed { .. }));
    assert!(matches!(
        join_error(&["cmd=maxes"]),
        JobError::Unexpected { .. }
    ));
    assert!(matches!(
        join_error(&["cmd=response_to_init rc=-1 msg=go away"]),
        JobError::Refused { rc, detail, .. } if rc == "-1" && detail == "go away"
    ));
    assert!(matches!(
        join_error(&["cmd=response_to_init pmi_version=2 pmi_subversion=0"]),
        JobError::Version {
            major: 2,
            minor: 0,
            ..
        }
    ));
    for (maxes, name) in [
        ("cmd=maxes keylen_max=64", "vallen_max"),
        ("cmd=maxes keylen_max=x vallen_max=64", "keylen_max"),
    ] {
        assert!(matches!(
            join_error(&[HELLO[0], maxes]),
            JobError::Unexpected { expected, .. } if expected == name
        ));
    }
    assert!(matches!(
        join_error(&[HELLO[0], "cmd=maxes keylen_max=64 vallen_max=0"]),
        JobError::Limit {
            name: "vallen_max",
            value: 0,
            ..
        }
    ));
    assert!(matches!(
        join_error(&[HELLO[0], HELLO[1], "cmd=my_kvsname kvsname="]),
        JobError::Unexpected {
            expected: "kvsname",
            ..
        }
    ));
}

#[test]
fn a_line_without_end_does_not_fill_memory() {
    let endless = "x".repeat(wire::LINE_MAX + 10);
    assert!(matches!(
        join_error(&[&endless]),
        JobError::LineTooLong { .. }
    ));
}

#[test]
fn values_nobody_put_with_job_are_errors() {
    for value in [
        "(vector,(0,1,2))",
        "0:a",
        "2000000:a",
        "1:a%4",
        "1:%ff",
        "no",
    ] {
        let (job, _) = joined(&[&format!("cmd=get_result rc=0 value={value}")]);
        assert!(
            matches!(job.get("a"), Err(JobError::BadValue { .. })),
            "{value}"
        );
    }
    let (job, _) = joined(&["cmd=get_result rc=0"]);
    assert!(matches!(
        job.get("a"),
        Err(JobError::Unexpected {
            expected: "value",
            ..
        })
    ));
}

#[test]
fn keys_that_cannot_travel_are_refused_before_they_are_sent() {
    let (job, thread) = joined(&[]);
    let long = "k".repeat(64);
    for key in ["", "a b", "a=b", "a~1", "PMI_x", "a\nb", "é", &long] {
        assert!(
            matches!(job.put(key, "v"), Err(JobError::BadKey { .. })),
            "put {key:?}"
        );
        assert!(
            matches!(job.get(key), Err(JobError::BadKey { .. })),
            "get {key:?}"
        );
    }
    drop(job);
    assert_eq!(thread.join().unwrap().len(), 3);
}

#[test]
fn nothing_is_exchanged_after_finalize() {
    let (job, _) = joined(&["cmd=finalize_ack rc=0"]);
    job.finalize().unwrap();
    assert!(matches!(job.put("a", "b"), Err(JobError::Finalized { .. })));
    assert!(matches!(job.fence(), Err(JobError::Finalized { .. })));
    assert!(matches!(job.finalize(), Err(JobError::Finalized { .. })));
}

#[test]
fn the_port_style_is_told_rank_and_size() {
    let introduction = "cmd=initack\ncmd=set size=4\ncmd=set rank=3\ncmd=set debug=0";
    let (socket, thread) = launcher(&[&[introduction], &HELLO[..]].concat());
    let job = pmi1::introduce(socket, 9).map(Job::of).unwrap();
    assert_eq!((job.rank(), job.size()), (3, 4));
    assert_eq!(thread.join().unwrap()[0], "cmd=initack pmiid=9");

    let (socket, _) = launcher(&["cmd=initack\ncmd=set size=4\ncmd=set rank=4\ncmd=set debug=0"]);
    assert!(matches!(
        pmi1::introduce(socket, 9).map(Job::of),
        Err(JobError::Environment { .. })
    ));
    let (socket, _) = launcher(&["cmd=initack\ncmd=set size=4\ncmd=set debug=0\ncmd=set x=0"]);
    assert!(matches!(
        pmi1::introduce(socket, 9).map(Job::of),
        Err(JobError::Unexpected { .. })
    ));
}

#[test]
fn a_job_of_one_keeps_its_own_values() {
    let job = Job::singleton();
    assert_eq!((job.rank(), job.size(), job.has_launcher()), (0, 1, false));
    assert!(matches!(job.get("a"), Err(JobError::NoSuchKey { .. })));
    job.put("a", [0, 255]).unwrap();
    job.fence().unwrap();
    assert_eq!(job.get_bytes("a").unwrap(), [0, 255]);
    assert!(matches!(job.get("a"), Err(JobError::BadValue { .. })));
    assert_eq!(job.local_ranks().unwrap(), [0]);
    job.finalize().unwrap();
}

/// Set for a process that no launcher has started, by which it is a job of one.
const ALONE: &str = "PORTOLAN_TEST_ALONE";

/// A process as it is between `fork` and the child's own start.
#[test]
fn the_child_of_a_job_of_one_may_be_a_job_of_one() {
    if std::env::var_os(ALONE).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture"]);
        child.arg("tests::the_child_of_a_job_of_one_may_be_a_job_of_one");
        for (name, _) in std::env::vars_os() {
            if ["PMI", "SLURM"]
                .iter()
                .any(|b| name.as_encoded_bytes().starts_with(b.as_bytes()))
            {
                child.env_remove(name);
            }
        }
        let output = child.env(ALONE, "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let passed = output.status.success() && said.contains("1 passed");
        return assert!(passed, "{said}");
    }
    let parents = Job::from_env().unwrap();
    parents.put("a", "1").unwrap();
    leave::in_child();
    assert!(matches!(parents.put("b", "1"), Err(JobError::Child { .. })));
    let own = Job::from_env().unwrap();
    own.put("a", "2").unwrap();
    own.finalize().unwrap();
    // The child of a rank with a launcher has that one's lines.
    leave::become_rank();
    leave::in_child();
    let own = Job::from_env().unwrap();
    assert!(matches!(own.put("a", "2"), Err(JobError::Child { .. })));
}

#[test]
fn random_bytes_from_the_launcher_never_panic() {
    let mut rng = fastrand::Rng::with_seed(33);
    for _ in 0..200 {
        let noise: String = (0..rng.usize(..120)).map(|_| rng.char(..)).collect();
        let cut = rng.usize(..4);
        let mut answers: Vec<&str> = HELLO[..cut.min(3)].to_vec();
        answers.push(&noise);
        match Job::over(launcher(&answers).0, 0, 1) {
            Ok(job) => drop(job.get("a")),
            Err(error) => drop(error.to_string()),
        }
    }
}
