//! The client against a scripted server: right answers, wrong answers, no answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use super::wire::PREFIX;
use super::*;

const VERSION: &str = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
const HELLO: [&str; 2] = [
    "cmd=fullinit-response;rc=0;rank=1;size=2;",
    "cmd=job-getid-response;rc=0;jobid=7.0;",
];

/// A server that answers the first line with `version`, each frame after it with the next of `answers`,
/// and hangs up. Joining the thread returns the frames it was asked.
fn server(version: &str, answers: &[&str]) -> (OwnedFd, JoinHandle<Vec<String>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let version = version.to_owned();
    let answers: Vec<String> = answers.iter().map(|a| (*a).to_owned()).collect();
    let thread = thread::spawn(move || {
        let mut reader = BufReader::new(&theirs);
        let mut asked = vec![String::new()];
        let _ = reader.read_line(&mut asked[0]);
        let _ = (&theirs).write_all(version.as_bytes());
        for answer in answers {
            let mut prefix = [0; PREFIX];
            if reader.read_exact(&mut prefix).is_err() {
                break;
            }
            let len = std::str::from_utf8(&prefix)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let mut body = vec![0; len];
            reader.read_exact(&mut body).unwrap();
            asked.push(String::from_utf8(body).unwrap());
            let framed = format!("{:<PREFIX$}{answer}", answer.len());
            if (&theirs).write_all(framed.as_bytes()).is_err() {
                break;
            }
        }
        asked
    });
    (ours.into(), thread)
}

fn joined(further: &[&str]) -> (Joined, JoinHandle<Vec<String>>) {
    let (socket, thread) = server(VERSION, &[&HELLO[..], further].concat());
    (join(socket, 1, 2, Some("7.0")).unwrap(), thread)
}

fn error(version: &str, answers: &[&str]) -> JobError {
    join(server(version, answers).0, 1, 2, None).unwrap_err()
}

#[test]
fn joining_and_an_exchange_ask_what_the_protocol_says() {
    let (job, thread) = joined(&[
        "cmd=kvs-put-response;rc=0;",
        "cmd=kvs-fence-response;rc=0;",
        "cmd=kvs-get-response;rc=0;found=TRUE;value=1:one%20two;",
        "cmd=kvs-get-response;rc=0;found=FALSE;",
        "cmd=finalize-response;rc=0;",
    ]);
    assert_eq!((job.rank, job.size, job.id.as_str()), (1, 2, "7.0"));
    job.space.put("addr.1", b"a b").unwrap();
    job.space.fence("fence").unwrap();
    assert_eq!(job.space.get("addr.0").unwrap(), b"one two");
    assert!(matches!(
        job.space.get("x"),
        Err(JobError::NoSuchKey { .. })
    ));
    job.space.finalize("finalize").unwrap();
    assert!(matches!(
        job.space.fence("fence"),
        Err(JobError::LauncherGone { .. })
    ));
    drop(job);
    assert_eq!(
        thread.join().unwrap(),
        [
            "cmd=init pmi_version=2 pmi_subversion=0\n",
            "cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;",
            "cmd=job-getid;",
            "cmd=kvs-put;key=addr.1;value=1:a%20b;",
            "cmd=kvs-fence;",
            "cmd=kvs-get;jobid=7.0;srcid=-1;key=addr.0;",
            "cmd=kvs-get;jobid=7.0;srcid=-1;key=x;",
            "cmd=finalize;",
        ]
    );
}

#[test]
fn a_server_of_the_other_protocol_is_named() {
    let error = error(
        "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n",
        &[],
    );
    assert_eq!(
        error.to_string(),
        "the launcher speaks PMI 1.1, this rank PMI 2.0"
    );
}

#[test]
fn wrong_answers_are_errors() {
    assert!(matches!(error("hello\n", &[]), JobError::Malformed { .. }));
    assert!(matches!(
        error("cmd=maxes\n", &[]),
        JobError::Unexpected { .. }
    ));
    assert!(matches!(error(VERSION, &[]), JobError::LauncherGone { .. }));
    assert!(matches!(
        error(VERSION, &["nonsense"]),
        JobError::BadFrame { .. }
    ));
    assert!(matches!(
        error(VERSION, &["cmd=kvs-get-response;rc=0;"]),
        JobError::Unexpected {
            expected: "fullinit-response",
            ..
        }
    ));
    assert!(matches!(
        error(VERSION, &["cmd=fullinit-response;rc=14;errmsg=go away;"]),
        JobError::Refused { rc, detail, .. } if rc == "14" && detail == "go away"
    ));
    assert!(matches!(
        error(VERSION, &["cmd=fullinit-response;rc=0;rank=2;size=2;"]),
        JobError::Environment { .. }
    ));
    assert!(matches!(
        error(
            VERSION,
            &[HELLO[0], "cmd=job-getid-response;rc=0;jobid=a b;"]
        ),
        JobError::Unexpected {
            expected: "jobid",
            ..
        }
    ));
    let endless = "x".repeat(LINE_MAX + 10);
    assert!(matches!(error(&endless, &[]), JobError::LineTooLong { .. }));
}

#[test]
fn an_abort_is_one_frame_whatever_the_message() {
    let (job, thread) = joined(&["unread"]);
    job.space.abort(3, "bad;isworld=FALSE\nnext");
    drop(job);
    let asked = thread.join().unwrap();
    assert_eq!(
        asked[3],
        "cmd=abort;isworld=TRUE;msg=bad isworld=FALSE next;"
    );
}

#[test]
fn random_answers_never_panic() {
    let mut rng = fastrand::Rng::with_seed(34);
    for _ in 0..200 {
        let noise: String = (0..rng.usize(..80)).map(|_| rng.char(..)).collect();
        let mut answers: Vec<&str> = HELLO[..rng.usize(..3)].to_vec();
        answers.push(&noise);
        let version = if rng.u8(..10) == 0 { &noise } else { VERSION };
        match join(server(&format!("{version}\n"), &answers).0, 1, 2, None) {
            Ok(job) => drop(job.space.get("a")),
            Err(error) => drop(error.to_string()),
        }
    }
}
