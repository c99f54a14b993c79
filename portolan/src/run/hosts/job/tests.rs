use super::*;

const TOKEN: &str = "0123456789abcdef";
const T0: Duration = Duration::ZERO;

fn text(message: &Up) -> String {
    serde_json::to_string(message).unwrap()
}

fn hello(host: usize) -> String {
    text(&Up::Hello {
        version: VERSION,
        token: TOKEN.into(),
        host,
    })
}

fn line(rank: u32, words: &str) -> String {
    text(&Up::Line {
        rank,
        line: words.into(),
    })
}

/// Ranks 0 and 1 on host a, 2 on host b.
fn job(limit: Option<Duration>) -> Job {
    let hosts: [(&str, &[u32]); 2] = [("a", &[0, 1]), ("b", &[2])];
    let parts = (PmiServer::new(3, "job"), Policy::new(3, "prog".into()));
    Job::new(TOKEN.into(), (&hosts, 3), parts, limit)
}

/// The same with both agents connected and all ranks in the job.
fn joined() -> Job {
    let mut job = job(None);
    for host in 0..2 {
        assert_eq!(job.handle_hello(&hello(host)), Ok(host));
    }
    for (host, rank) in [(0, 0), (0, 1), (1, 2)] {
        let init = "cmd=init pmi_version=1 pmi_subversion=1";
        job.handle_line(host, &line(rank, init), T0);
        assert!(
            matches!(job.poll_answer(), Some((at, Down::Line { rank: to, .. })) if (at, to) == (host, rank))
        );
    }
    job.handle_time(T0);
    assert_eq!(job.poll_verdict(), None);
    job
}

fn verdict(job: &mut Job) -> (u8, String) {
    let verdict = job.poll_verdict().expect("a verdict");
    (verdict.status, verdict.line.unwrap_or_default())
}

#[test]
fn only_the_agent_of_an_awaited_host_is_let_in() {
    let mut job = job(None);
    let said = |version, token: &str, host| {
        let token = token.to_owned();
        text(&Up::Hello {
            version,
            token,
            host,
        })
    };
    let wrong = TOKEN.replace('0', "1");
    for (line, refusal) in [
        (String::new(), Stranger::NoHello),
        ("GET / HTTP/1.1".into(), Stranger::NoHello),
        (line(0, "cmd=init"), Stranger::NoHello),
        (said(VERSION + 1, TOKEN, 0), Stranger::NoHello),
        (said(VERSION, &wrong, 0), Stranger::Token),
        (said(VERSION, &TOKEN[1..], 0), Stranger::Token),
        (said(VERSION, TOKEN, 2), Stranger::Host(2)),
    ] {
        assert_eq!(job.handle_hello(&line), Err(refusal), "{line}");
    }
    assert_eq!(job.handle_hello(&hello(1)), Ok(1));
    assert_eq!(job.handle_hello(&hello(1)), Err(Stranger::Host(1)));
    job.handle_closed(1);
    assert_eq!(job.handle_hello(&hello(1)), Err(Stranger::Host(1)));
}

#[test]
fn an_agent_that_fails_at_once_is_heard_before_its_ssh() {
    let mut job = job(None);
    job.handle_hello(&hello(1)).unwrap();
    let reason = "no program here".to_owned();
    job.handle_line(1, &text(&Up::Failed { reason }), T0);
    job.handle_closed(1);
    job.handle_ssh_end(1, Exit::Status(1));
    let words = "host b cannot start its ranks: no program here; ending the job";
    assert_eq!(verdict(&mut job), (1, words.to_owned()));
}

#[test]
fn the_end_of_an_ssh_says_how_far_its_host_was() {
    let mut silent = job(None);
    silent.handle_ssh_end(1, Exit::Status(255));
    let words = "the connection to host b exited with status 255 before its ranks started: `ssh b true` must work \
                 without a password, and portolan be there (--remote); ending the job";
    assert_eq!(verdict(&mut silent), (1, words.to_owned()));
    let mut job = joined();
    job.handle_ssh_end(0, Exit::Signal(9));
    let words = "the connection to host a was killed by signal 9 (SIGKILL); ending the job";
    assert_eq!(verdict(&mut job), (1, words.to_owned()));
}

#[test]
fn a_host_may_go_when_its_ranks_have_ended() {
    let mut job = joined();
    job.handle_line(1, &line(2, "cmd=finalize"), T0);
    job.handle_line(1, &text(&Up::exit(2, Exit::Status(0))), T0);
    job.handle_closed(1);
    job.handle_ssh_end(1, Exit::Status(0));
    job.handle_time(T0);
    assert_eq!(job.poll_verdict(), None);
    job.handle_closed(0);
    let words = "lost host a with 2 ranks; ending the job";
    assert_eq!(verdict(&mut job), (1, words.to_owned()));
}

#[test]
fn a_job_ends_well_with_its_last_rank() {
    let mut job = joined();
    for (host, rank) in [(0, 0), (1, 2), (0, 1)] {
        job.handle_time(T0);
        assert_eq!(job.poll_verdict(), None);
        job.handle_line(host, &line(rank, "cmd=finalize"), T0);
        job.handle_line(host, &text(&Up::exit(rank, Exit::Status(0))), T0);
    }
    job.handle_time(T0);
    assert_eq!(verdict(&mut job), (0, String::new()));
}

#[test]
fn an_abort_explains_the_end_of_its_rank_and_the_first_reason_stays() {
    let mut job = joined();
    job.handle_line(1, &line(2, "cmd=abort exitcode=7"), T0);
    job.handle_line(1, &text(&Up::exit(2, Exit::Signal(6))), T0);
    job.handle_interrupt(15);
    job.handle_closed(0);
    let words = "rank 2 aborted the job with status 7";
    assert_eq!(verdict(&mut job), (7, words.to_owned()));
}

#[test]
fn answers_go_to_the_hosts_of_their_ranks() {
    let mut job = joined();
    while job.poll_answer().is_some() {}
    for (host, rank) in [(1, 2), (0, 1), (0, 0)] {
        assert!(job.poll_answer().is_none());
        job.handle_line(host, &line(rank, "cmd=barrier_in"), T0);
    }
    let mut out = Vec::new();
    while let Some((host, Down::Line { rank, line })) = job.poll_answer() {
        assert!(line.contains("barrier_out"), "{line}");
        out.push((host, rank));
    }
    out.sort_unstable();
    assert_eq!(out, [(0, 0), (0, 1), (1, 2)]);
}

#[test]
fn a_host_speaks_of_its_own_living_ranks_only() {
    let ended = text(&Up::exit(2, Exit::Status(0)));
    for (said, what) in [
        (vec![line(0, "cmd=init")], "spoke of rank 0"),
        (vec![line(3, "cmd=init")], "spoke of rank 3"),
        (
            vec![line(2, "cmd=finalize"), ended.clone(), ended],
            "spoke of rank 2",
        ),
        (vec![hello(1)], "said hello twice"),
        (vec!["{".to_owned()], "said something strange"),
    ] {
        let mut job = joined();
        for line in &said {
            job.handle_line(1, line, T0);
        }
        let (status, words) = verdict(&mut job);
        assert_eq!(status, 1, "{words}");
        assert!(words.starts_with(&format!("host b {what}")), "{words}");
    }
}

#[test]
fn a_rank_that_closes_its_line_has_a_while_to_end() {
    let second = Duration::from_secs(1);
    let mut job = joined();
    assert_eq!(job.wake(), None);
    job.handle_line(0, &text(&Up::Closed { rank: 1 }), second);
    let due = second + CLOSED_LINE;
    assert_eq!(job.wake(), Some(due));
    job.handle_time(due - Duration::from_millis(1));
    assert_eq!(job.poll_verdict(), None);
    job.handle_time(due);
    let words = "rank 1 closed its line without finalizing; ending the job";
    assert_eq!(verdict(&mut job), (1, words.to_owned()));
}

#[test]
fn a_rank_of_another_host_that_notices_is_not_the_cause() {
    let mut job = joined();
    job.handle_line(0, &text(&Up::Closed { rank: 1 }), T0);
    let exit = |rank, status, signal| {
        text(&Up::Exit {
            rank,
            status,
            signal,
        })
    };
    job.handle_line(1, &exit(2, Some(1), None), T0);
    assert_eq!(job.poll_verdict(), None);
    job.handle_line(0, &exit(1, None, Some(9)), T0);
    assert_eq!(verdict(&mut job).0, 137);
}

#[test]
fn a_rank_that_left_may_close_its_line() {
    let mut job = joined();
    job.handle_line(0, &line(1, "cmd=finalize"), T0);
    job.handle_line(0, &text(&Up::Closed { rank: 1 }), T0);
    assert_eq!(job.wake(), None);
}

#[test]
fn hosts_that_are_late_and_jobs_that_last_too_long_are_ended() {
    let limit = START + START;
    let mut slow = job(Some(limit));
    slow.handle_hello(&hello(0)).unwrap();
    assert_eq!(slow.wake(), Some(START));
    slow.handle_time(START);
    let words = "host b has not connected within 60 s; ending the job";
    assert_eq!(verdict(&mut slow), (1, words.to_owned()));

    let mut long = job(Some(limit));
    for host in 0..2 {
        long.handle_hello(&hello(host)).unwrap();
    }
    assert_eq!(long.wake(), Some(limit));
    long.handle_time(START);
    assert_eq!(long.poll_verdict(), None);
    long.handle_time(limit);
    let words = "the job ran longer than 120 s; ending it";
    assert_eq!(verdict(&mut long), (TIMED_OUT, words.to_owned()));
}
