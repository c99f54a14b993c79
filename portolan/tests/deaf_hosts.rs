//! Jobs of several hosts in which one side does not read what the other sends: nobody waits for it, and nothing is lost.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::{Value, json};
use tempfile::TempDir;

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");
/// Questions of a rank that asks and does not listen. Their answers are more than the buffers of a connection hold.
const QUESTIONS: usize = 100_000;
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes this program the agent of a job's host; its value is the path of a FIFO between the two agents.
const AGENT: &str = "PORTOLAN_TEST_DEAF_AGENT";

/// A connection that holds no more than a little of what nobody reads.
fn narrow(stream: &TcpStream) {
    set_socket_recv_buffer_size(stream, 256 << 10).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
}

fn fifo(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

fn next(lines: &mut impl BufRead) -> Value {
    let mut text = String::new();
    let got = lines.read_line(&mut text);
    assert!(got.as_ref().is_ok_and(|n| *n > 0), "no line came: {got:?}");
    serde_json::from_str(&text).unwrap()
}

/// The agent of one of two hosts, with a rank each. That of the first asks its questions, and enters the barrier, before it reads
/// an answer; that of the second lets it know when it has left the barrier, and the launcher so has handled all of that.
fn agent(fifo: &OsStr) {
    let order = next(&mut std::io::stdin().lock());
    let port = order["port"].as_u64().unwrap() as u16;
    let mut up = TcpStream::connect(("127.0.0.1", port)).unwrap();
    narrow(&up);
    let mut down = BufReader::new(up.try_clone().unwrap());
    let host = order["host"].as_u64().unwrap();
    let hello = json!({ "version": 2, "token": order["token"], "host": host });
    writeln!(up, "{}", json!({ "Hello": hello })).unwrap();
    assert_eq!(next(&mut down), "Welcome");

    let line = |words: &str| format!("{}\n", json!({ "Line": { "rank": host, "line": words } }));
    let mut answer = |begins: &str| {
        let answer = next(&mut down);
        let words = answer["Line"]["line"].as_str().unwrap_or_default();
        assert!(words.starts_with(begins), "{answer}");
    };
    let questions = if host == 0 { QUESTIONS } else { 0 };
    let all = [
        line("cmd=init pmi_version=1 pmi_subversion=1"),
        line("cmd=get_maxes").repeat(questions),
        line("cmd=barrier_in"),
    ];
    up.write_all(all.concat().as_bytes()).unwrap();
    if host == 0 {
        fs::read(fifo).unwrap();
    }
    answer("cmd=response_to_init");
    (0..questions).for_each(|_| answer("cmd=maxes"));
    answer("cmd=barrier_out");
    if host == 1 {
        fs::write(fifo, "all").unwrap();
    }
    let exit = json!({ "Exit": { "rank": host, "status": 0, "signal": null } });
    writeln!(up, "{}{exit}", line("cmd=finalize")).unwrap();
    while next(&mut down) != "End" {}
}

/// A launcher that waited for an agent that does not read would hear none of its questions meanwhile, and one that forgot what
/// it has for it would never send the rest.
#[test]
fn a_launcher_answers_an_agent_that_does_not_read() {
    if let Some(fifo) = std::env::var_os(AGENT) {
        return agent(&fifo);
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(&folder);
    let ssh = folder.path().join("ssh");
    let own = std::env::current_exe().unwrap();
    let test = "a_launcher_answers_an_agent_that_does_not_read";
    let text = format!("#!/bin/sh\nexec '{}' --exact {test}\n", own.display());
    fs::write(&ssh, text).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(PORTOLAN)
        .args(["run", "-n", "2", "--hosts", "a,b", "--timeout"])
        .arg(LIMIT.as_secs().to_string())
        .arg("--ssh")
        .arg(&ssh)
        .args(["--", "true"])
        .env(AGENT, &fifo)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    assert_eq!(said.matches("1 passed").count(), 2, "{said}");
}

/// A launcher that reads nothing until the rank has said all: the rank is not held up, and all that it said comes.
#[test]
fn an_agent_takes_what_ranks_say_though_its_launcher_does_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let through = fifo(&folder);
    let mut fifo = fs::OpenOptions::new();
    // Open for writing too, so that there is no end before the rank has come.
    let fifo = fifo.read(true).write(true);
    let fifo = fifo.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let fifo = fifo.open(&through).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let line = format!("cmd=put key=k value={}", "x".repeat(100));
    let flood = r#"yes "$1" | head -n "$2" >&$PMI_FD; echo > "$3"; read -r all <&$PMI_FD"#;
    let order = json!({
        "version": 2, "token": "t", "addresses": ["127.0.0.1"],
        "port": listener.local_addr().unwrap().port(),
        "host": 0, "ranks": [0], "size": 1, "folder": "/", "program": "bash",
        "args": ["-c", flood, "bash", line, QUESTIONS.to_string(), through],
        "env": [["PATH", std::env::var("PATH").unwrap()]],
    });
    let mut agent = Command::new(PORTOLAN)
        .arg("agent")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = agent.stdin.take().unwrap();
    writeln!(input, "{order}").unwrap();
    let (mut down, _) = listener.accept().unwrap();
    narrow(&down);
    let mut up = BufReader::new(down.try_clone().unwrap());
    assert_eq!(next(&mut up)["Hello"]["token"], "t");
    writeln!(down, "\"Welcome\"").unwrap();

    let limit = Timespec::try_from(LIMIT).unwrap();
    let mut fds = [PollFd::new(&fifo, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "the rank waits");
    let mut said = 0;
    loop {
        let message = next(&mut up);
        if let Some(one) = message.get("Line") {
            assert_eq!(one["line"].as_str(), Some(line.as_str()));
            said += 1;
            if said == QUESTIONS {
                writeln!(down, r#"{{"Line":{{"rank":0,"line":"all\n"}}}}"#).unwrap();
            }
        } else if let Some(exit) = message.get("Exit") {
            assert_eq!((said, &exit["status"]), (QUESTIONS, &0.into()));
            break;
        }
    }
    writeln!(down, "\"End\"").unwrap();
    assert!(agent.wait().unwrap().success());
}
