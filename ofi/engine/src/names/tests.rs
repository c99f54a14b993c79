use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A port that no other test takes, of this process.
fn own_port(number: u16) -> String {
    (1000 + (std::process::id() % 6000) as u16 * 10 + number).to_string()
}

fn source(host: Option<&str>, service: &str) -> Name {
    Name::of_source(host, Some(service), true).unwrap().unwrap()
}

fn find(host: Option<&str>, service: &str) -> Result<Bytes, NameError> {
    Name::find(host, service, false)
}

#[test]
fn an_endpoint_is_found_by_its_host_and_by_each_host_if_it_names_none() {
    let port = own_port(0);
    let nobody = find(Some("127.0.0.1"), &port).unwrap_err();
    assert_eq!(
        nobody.to_string(),
        format!("no endpoint is named 127.0.0.1:{port}")
    );
    let any = source(None, &port).publish([1; 64]).unwrap();
    let one = source(Some("127.0.0.2"), &port).publish([2; 64]).unwrap();
    for (host, first) in [
        (None, 1),
        (Some("127.0.0.1"), 1),
        (Some("127.0.0.2"), 2),
        (Some("localhost"), 1),
    ] {
        assert_eq!(find(host, &port).unwrap(), [first; 64], "{host:?}");
    }
    drop(one);
    assert_eq!(find(Some("127.0.0.2"), &port).unwrap(), [1; 64]);
    drop(any);
    assert!(matches!(find(None, &port), Err(NameError::Nobody { .. })));
}

#[test]
fn a_name_is_one_endpoints_until_that_is_gone() {
    let name = source(Some("127.0.0.1"), &own_port(1));
    let first = name.publish([1; 64]).unwrap();
    let taken = name.publish([2; 64]).unwrap_err();
    assert_eq!(
        taken.to_string(),
        format!("another endpoint is named {name}")
    );
    drop(first);
    let _second = name.publish([2; 64]).unwrap();
    assert_eq!(name.ask().unwrap(), [2; 64]);
}

/// As a child has it that was forked before the endpoint was closed.
#[test]
fn a_name_that_nobody_answers_for_any_more_is_waited_for() {
    let name = source(None, &own_port(4));
    let (held, place) = name.socket(SocketFlags::empty()).unwrap();
    bind(&held, &place).unwrap();
    let (socket, _) = name.socket(SocketFlags::empty()).unwrap();
    let mut pauses = 0;
    let until_third = || {
        pauses += 1;
        pauses < 3
    };
    let kept = name.take(&socket, &place, until_third).unwrap_err();
    assert!(matches!(kept, NameError::Taken { .. }), "{kept}");
    assert_eq!(pauses, 3);
    let mut held = Some(held);
    let goes = || {
        held = None;
        true
    };
    name.take(&socket, &place, goes).unwrap();
    listen(&socket, 1).unwrap();
    let (another, _) = name.socket(SocketFlags::empty()).unwrap();
    let answered = name.take(&another, &place, || panic!("somebody answers"));
    assert!(matches!(answered, Err(NameError::Taken { .. })));
}

#[test]
fn who_has_a_name_and_says_nothing_is_not_waited_for_without_end() {
    let name = source(None, &own_port(2));
    let (socket, place) = name.socket(SocketFlags::empty()).unwrap();
    bind(&socket, &place).unwrap();
    listen(&socket, 1).unwrap();
    assert!(matches!(name.ask(), Err(NameError::Silent { .. })));
}

/// Set for a process of another user: what it does, and a port.
const STRANGER: &str = "PORTOLAN_TEST_NAMES_STRANGER";

/// What a process of another user does with the name that user 0 has, or might have.
fn stranger(does: &str, port: &str) {
    let place = format!("portolan-name-0-*:{port}");
    let place = SocketAddrUnix::new_abstract_name(place.as_bytes()).unwrap();
    let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
    if does == "asks" {
        connect(&socket, &place).unwrap();
        let told = recv(&socket, &mut [0; 64], RecvFlags::empty());
        return println!("told {:?}", told.map(|(_, len)| len));
    }
    bind(&socket, &place).unwrap();
    listen(&socket, 1).unwrap();
    println!("has the name");
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn another_user_is_told_nothing_and_is_not_believed() {
    if let Some(task) = std::env::var_os(STRANGER) {
        let task = task.into_string().unwrap();
        let (does, port) = task.split_once(' ').unwrap();
        return stranger(does, port);
    }
    if host::ids::user().unwrap() != 0 {
        return println!("skipped: only root can run a process of another user");
    }
    let run = |does: &str, port: &str| {
        let exe = std::env::current_exe().unwrap();
        let this = "names::tests::another_user_is_told_nothing_and_is_not_believed";
        let mut run = Command::new(exe);
        run.args(["--exact", this, "--nocapture"]).uid(65533);
        run.env(STRANGER, format!("{does} {port}"));
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let port = own_port(3);
    let published = source(None, &port).publish([1; 64]).unwrap();
    let asks = match run("asks", &port) {
        Ok(child) => child.wait_with_output().unwrap(),
        Err(error) => return println!("skipped: {error}"),
    };
    let said = String::from_utf8_lossy(&asks.stdout);
    assert!(said.contains("told Ok(0)"), "{said}");
    assert_eq!(find(None, &port).unwrap(), [1; 64]);
    drop(published);
    let mut has = run("has", &port).unwrap();
    let mut lines = BufReader::new(has.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("has the name")));
    let refused = find(None, &port).unwrap_err();
    assert!(matches!(refused, NameError::OtherUser { .. }), "{refused}");
    drop(has.stdin.take());
    assert!(lines.all(|line| line.is_ok()) && has.wait().unwrap().success());
}

#[test]
fn other_machines_and_what_is_no_port_are_refused_with_their_names() {
    let refused = |host, service| {
        Name::of_source(Some(host), Some(service), true)
            .unwrap_err()
            .to_string()
    };
    // Of a block that is for documentation.
    let elsewhere = refused("192.0.2.1", "1");
    assert!(
        elsewhere.contains("\"192.0.2.1\" is not this machine"),
        "{elsewhere}"
    );
    assert_eq!(
        refused("127.0.0.1", "http"),
        "the service \"http\" is no number of a port"
    );
    assert_eq!(
        refused("127.0.0.1", "65536"),
        "the service \"65536\" is no number of a port"
    );
    assert_eq!(refused("localhost", "1"), "no host is named \"localhost\"");
    assert!(find(Some("127.0.0.1"), "0").is_err());
    for service in [None, Some("0")] {
        assert_eq!(
            Name::of_source(Some("127.0.0.1"), service, true).unwrap(),
            None
        );
    }
}

#[test]
fn names_travel_as_bytes() {
    for (host, shown) in [
        (None, "*:7"),
        (Some("127.0.0.1"), "127.0.0.1:7"),
        (Some("0.0.0.0"), "*:7"),
    ] {
        let name = source(host, "7");
        assert_eq!(
            (
                name.to_string().as_str(),
                Name::from_bytes(&name.to_bytes())
            ),
            (shown, Some(name))
        );
    }
    assert_eq!(Name::from_bytes(&[0; Name::BYTES]), None);
    assert_eq!(Name::from_bytes(&source(None, "7").to_bytes()[1..]), None);
}
