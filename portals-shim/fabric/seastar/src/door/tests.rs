use super::*;
use crate::proto::{Question, Reply, opening};
use crate::rank::Client;
use crate::start::send_with;
use crate::trusted::TRUST;
use crate::usermem::Probe;
use crate::{server, setting, start};
use fabric_api::attached::Attached;
use fabric_api::call::{Answer, Call, EqList, Wait};
use fabric_api::config::FabricConfig;
use fabric_api::identity::rank_config;
use fabric_api::place::Placement;
use host::limit::limit;
use portals_shim::Interface;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType, bind, connect,
    listen, recv, send, shutdown, socket_with, sockopt,
};
use rustix::process::{Resource, setrlimit};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

mod outside;

/// Longer than any of this takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn socket(flags: SocketFlags) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    // What hangs is to fail.
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE)).unwrap();
    }
    socket
}

/// A socket that listens, with a name that nobody can foresee.
fn listener() -> (OwnedFd, SocketAddrUnix) {
    let name = Secret::new().unwrap().to_hex();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let listener = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    bind(&listener, &address).unwrap();
    listen(&listener, 4096).unwrap();
    (listener, address)
}

/// A simulation that waits for its ranks.
struct Served {
    address: SocketAddrUnix,
    secret: Secret,
    /// Rank 0's line.
    founder: Option<OwnedFd>,
    ended: Mutex<Receiver<Result<(), ServeError>>>,
}

impl Served {
    fn new(ranks: usize) -> Self {
        let (listener, address) = listener();
        let (founder, theirs) = start::pair().unwrap();
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&founder, timeout, Some(PATIENCE)).unwrap();
        }
        let secret = Secret::new().unwrap();
        let setting = setting(&FabricConfig::default()).unwrap();
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            let _ = tell.send(server::serve(listener, theirs, secret, ranks, setting));
        });
        Self {
            address,
            secret,
            founder: Some(founder),
            ended: Mutex::new(ended),
        }
    }

    fn connect(&self) -> OwnedFd {
        let socket = socket(SocketFlags::CLOEXEC);
        connect(&socket, &self.address).unwrap();
        socket
    }

    /// Joins, and waits until all have.
    fn join(&self, rank: u32, line: OwnedFd) -> Result<Interface, String> {
        let config = rank_config(Placement::ONE, rank, 1);
        let client = Client::join(line, &self.secret, rank, &config)?;
        let attached = Attached::elsewhere(Box::new(client), config, Vec::new(), TRUST);
        Ok(portals_shim::fabric::Opened::from(attached).interface)
    }

    /// Has `n` ranks join, call and leave, each by a thread, rank 0 by its own line.
    fn run(&mut self, n: u32) {
        let mut founder = self.founder.take();
        let own = &*self;
        std::thread::scope(|s| {
            for rank in 0..n {
                let line = founder.take().unwrap_or_else(|| own.connect());
                s.spawn(move || {
                    let ni = own.join(rank, line).unwrap();
                    ni.status().unwrap();
                    ni.close().unwrap();
                });
            }
        });
    }

    /// A hello as no client says it.
    fn hello(&self, rank: u32, memory: Handed) -> Vec<u8> {
        hello(&self.secret, rank, memory)
    }

    /// What the simulation came to, which ends when its first rank is gone.
    fn end(self) -> Result<(), ServeError> {
        drop(self.founder);
        let ended = self.ended.into_inner().unwrap();
        ended
            .recv_timeout(PATIENCE)
            .expect("the simulation goes on")
    }
}

fn hello(secret: &Secret, rank: u32, memory: Handed) -> Vec<u8> {
    let config = rank_config(Placement::ONE, rank, 1);
    let hello = Hello {
        rank,
        config,
        memory,
    };
    let mut bytes = opening(HELLO, secret);
    bytes.extend(postcard::to_stdvec(&hello).unwrap());
    bytes
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    send(socket, bytes, SendFlags::NOSIGNAL).unwrap();
}

/// The note of the next answer; nothing when the connection was closed without one.
fn note(socket: &OwnedFd) -> String {
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return String::new(),
            Ok((n, _)) => {
                let reply: Reply = postcard::from_bytes(&buffer[..n]).unwrap();
                assert!(reply.result.is_err(), "{reply:?}");
                return reply.note;
            }
            Err(Errno::CONNRESET) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}

fn closed(socket: &OwnedFd) -> bool {
    loop {
        match recv(socket, &mut [0; 16][..], RecvFlags::empty()) {
            Ok((0, _)) => return true,
            Ok(_) | Err(Errno::CONNRESET) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn strangers_of_every_kind_join_nothing_and_delay_nobody() {
    let mut served = Served::new(2);
    let silent: Vec<_> = (0..200).map(|_| served.connect()).collect();
    let half_open: Vec<_> = (0..5).map(|_| served.connect()).collect();
    for socket in &half_open {
        shutdown(socket, Shutdown::Write).unwrap();
    }
    drop(served.connect());
    let wrong = Secret::new().unwrap();
    let forged = hello(&wrong, 1, Handed::Refused(String::new()));
    let babble: [(&[u8], &str); 6] = [
        (&[0xff; 20], "no hello"),
        (&[0, 5, 1, 1], "no hello"),
        (b"\x89SeaStar", "no hello"),
        (&[7; MAX_DATAGRAM + 1], "no hello"),
        (&forged, "secret"),
        (&forged[..28], "secret"),
    ];
    for (bytes, why) in babble {
        let socket = served.connect();
        say(&socket, bytes);
        // Told while the ranks are still to come, and only once.
        let told = note(&socket);
        assert!(told.contains(why), "{told}");
        assert!(closed(&socket));
    }
    served.run(2);
    // Nobody comes in behind them either.
    for socket in silent.iter().chain(&half_open) {
        assert!(closed(socket));
    }
    let late = socket(SocketFlags::CLOEXEC);
    assert_eq!(connect(&late, &served.address), Err(Errno::CONNREFUSED));
    served.end().unwrap();
}

#[test]
fn whoever_is_silent_is_dropped_in_time_and_before_there_are_too_many() {
    let (listener, address) = listener();
    let (_founder, theirs) = start::pair().unwrap();
    let secret = Secret::new().unwrap();
    let mut door = Door::new(secret, listener, 2, Some(theirs));
    let mut sockets = Vec::new();
    for _ in 0..=MOST_PENDING {
        let socket = socket(SocketFlags::CLOEXEC);
        connect(&socket, &address).unwrap();
        sockets.push(socket);
    }
    while door.pending.len() < MOST_PENDING {
        door.step().unwrap();
    }
    door.step().unwrap();
    // Rank 0 is one of them, and is not dropped for others.
    let told = note(&sockets[0]);
    assert!(told.contains("others came"), "{told}");
    assert!(door.pending.len() <= MOST_PENDING);
    assert!(door.pending[0].left.is_none());
    door.hello_within = Duration::ZERO;
    let socket = socket(SocketFlags::CLOEXEC);
    connect(&socket, &address).unwrap();
    // The oldest makes room, and the new one's time is over.
    let before = door.turned_away;
    while door.turned_away < before + 2 {
        door.step().unwrap();
    }
    let told = note(&socket);
    assert!(told.contains("no hello within"), "{told}");
}

/// As Ctrl-Z stops it with its ranks: nobody had the time that others have counted.
#[test]
fn the_time_in_which_the_simulation_is_stopped_is_nobodys() {
    let (listener, address) = listener();
    let (_founder, theirs) = start::pair().unwrap();
    let secret = Secret::new().unwrap();
    let mut door = Door::new(secret, listener, 2, Some(theirs));
    let socket = socket(SocketFlags::CLOEXEC);
    connect(&socket, &address).unwrap();
    while door.pending.len() < 2 {
        door.step().unwrap();
    }
    let time = Duration::from_secs(10);
    // It has looked for the last time before it was stopped.
    let stopped = || Some(Awake::since(time, Instant::now() - 4 * time));
    door.left = stopped();
    door.pending[1].left = stopped();
    door.step().unwrap();
    assert!(door.left.is_some());
    assert_eq!(door.pending.len(), 2, "who is connected has its time too");
}

/// A debugger may hold them. That they cannot be let in is another matter.
#[test]
fn ranks_that_have_not_come_in_time_are_waited_for() {
    let (listener, _) = listener();
    let (_founder, theirs) = start::pair().unwrap();
    let secret = Secret::new().unwrap();
    let mut door = Door::new(secret, listener, 2, Some(theirs));
    let over = || Some(Awake::new(Duration::ZERO));
    door.left = over();
    door.hello_within = Duration::ZERO;
    door.lack_ranks().unwrap();
    assert!(door.left.is_none());
    door.left = over();
    door.breath = Some((Instant::now(), Refused(Errno::MFILE)));
    let error = door.step().unwrap_err();
    let words = "rank 0 did not; a connection is not accepted: ";
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn another_user_is_turned_away_with_the_secret_too() {
    if host::ids::user().unwrap() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let mut served = Served::new(2);
    let dumpable = rustix::process::dumpable_behavior().unwrap();
    let bytes = served.hello(1, Handed::Refused(String::new()));
    let told = std::thread::scope(|s| {
        let other = s.spawn(|| {
            // Of this thread alone.
            let nobody = rustix::process::Uid::from_raw(65533);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let socket = served.connect();
            // It may have been turned away already.
            let _ = send(&socket, &bytes, SendFlags::NOSIGNAL);
            note(&socket)
        });
        other.join().unwrap()
    });
    // The kernel has closed the whole process's memory for that.
    rustix::process::set_dumpable_behavior(dumpable).unwrap();
    assert!(told.contains("runs as user 65533"), "{told}");
    served.run(2);
    served.end().unwrap();
}

#[test]
fn a_rank_that_cannot_take_part_ends_the_job_by_name_for_all() {
    let word = Box::new([9; Probe::LEN]);
    let at = |word: [u8; Probe::LEN], of: &[u8; Probe::LEN]| {
        Handed::Files(Probe {
            address: of.as_ptr().expose_provenance() as u64,
            word,
        })
    };
    let own = Files::own().unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let zeroes = [zero.as_fd(), zero.as_fd()];
    let swapped = { [own.descriptors()[1], own.descriptors()[0]] };
    let cases: [(Handed, &[_], &str); 6] = [
        (at(*word, &word), &own.descriptors(), "came twice"),
        (
            at([8; 16], &word),
            &own.descriptors(),
            "does not show its memory",
        ),
        (at(*word, &word), &swapped, "does not show its memory"),
        (at(*word, &word), &zeroes, "not of a /proc"),
        (at(*word, &word), &[], "did not arrive"),
        (
            Handed::Refused("of a reason".to_owned()),
            &[],
            "rank 1 cannot be reached: of a reason",
        ),
    ];
    for (memory, fds, why) in cases {
        let served = Served::new(3);
        // Rank 1 is here twice in the first case.
        let waits = served.connect();
        let rank = if why == "came twice" { 1 } else { 2 };
        let other = served.hello(rank, at(*word, &word));
        send_with(waits.as_fd(), &other, &own.descriptors()).unwrap();
        let socket = served.connect();
        send_with(socket.as_fd(), &served.hello(1, memory), fds).unwrap();
        for socket in [&socket, &waits, served.founder.as_ref().unwrap()] {
            let told = note(socket);
            assert!(told.contains(why), "{told}");
        }
        let error = served.end().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_founder_of_another_build_is_told_why_it_cannot_join() {
    let served = Served::new(1);
    // A hello that this build does not understand.
    say(served.founder.as_ref().unwrap(), &[0, 99, 0, 0]);
    let told = note(served.founder.as_ref().unwrap());
    assert!(told.contains("did not say hello"), "{told}");
    assert!(matches!(served.end(), Err(ServeError::Hello(_))));
}

#[test]
fn the_simulation_ends_when_a_rank_leaves_before_all_are_there() {
    // Rank 0 before its hello, and after it; another after its own.
    let mut served = Served::new(2);
    served.founder = None;
    assert!(matches!(served.end(), Err(ServeError::Left { rank: 0 })));
    let mut served = Served::new(2);
    let line = served.founder.take().unwrap();
    drop(Raw::hello(&served, 0, line));
    assert!(matches!(served.end(), Err(ServeError::Left { rank: 0 })));
    let served = Served::new(3);
    drop(Raw::hello(&served, 2, served.connect()));
    let told = note(served.founder.as_ref().unwrap());
    assert!(told.contains("rank 2 left before"), "{told}");
    assert!(matches!(served.end(), Err(ServeError::Left { rank: 2 })));
}

/// A rank of this process that says what a test has it say.
struct Raw(OwnedFd);

impl Raw {
    /// Says a hello that is right.
    fn hello(served: &Served, rank: u32, line: OwnedFd) -> Self {
        static WORD: [u8; Probe::LEN] = [3; Probe::LEN];
        let memory = Handed::Files(Probe {
            address: WORD.as_ptr().expose_provenance() as u64,
            word: WORD,
        });
        let own = Files::own().unwrap();
        send_with(
            line.as_fd(),
            &served.hello(rank, memory),
            &own.descriptors(),
        )
        .unwrap();
        Self(line)
    }

    fn hear(&self) -> Reply {
        let mut buffer = [0; MAX_DATAGRAM];
        let (n, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty()).unwrap();
        postcard::from_bytes(&buffer[..n]).unwrap()
    }

    fn ask(&self, call: Call) -> Reply {
        say(
            &self.0,
            &postcard::to_stdvec(&Question::Call(call)).unwrap(),
        );
        self.hear()
    }
}

/// The two ranks of a simulation that has begun.
fn two() -> (Served, Raw, Raw) {
    let mut served = Served::new(2);
    let line = served.founder.take().unwrap();
    let rank_0 = Raw::hello(&served, 0, line);
    let rank_1 = Raw::hello(&served, 1, served.connect());
    for rank in [&rank_0, &rank_1] {
        assert!(rank.hear().result.is_ok());
    }
    (served, rank_0, rank_1)
}

/// A rank that asks and never reads.
#[test]
fn a_rank_that_does_not_read_its_answers_delays_nobody() {
    let (served, rank, deaf) = two();
    let question = postcard::to_stdvec(&Question::Call(Call::Status)).unwrap();
    let dismissed = std::thread::spawn(move || {
        // Many times as many as there is room for.
        for _ in 0..100_000 {
            match send(&deaf.0, &question, SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return true,
                Err(_) => return false,
            }
        }
        false
    });
    while !dismissed.is_finished() {
        assert!(rank.ask(Call::Status).result.is_ok());
    }
    assert!(dismissed.join().unwrap(), "it has been hung up on");
    // It has left, so that whoever waits for it fails and does not hang.
    let Ok(Answer::Eq(eq)) = rank.ask(Call::EqAlloc(4)).result else {
        panic!("no event queue");
    };
    let waited = rank.ask(Call::EqPoll {
        eqs: EqList::from_slice(&[eq]),
        wait: Wait::Forever,
    });
    assert_eq!(waited.result.err(), Some(portals_core::Error::Fail));
    assert!(waited.note.contains("deadlock"), "{}", waited.note);
    assert!(rank.ask(Call::Close).result.is_ok());
    served.end().unwrap();
}

/// A rank that says what no rank says leaves, and the others go on.
#[test]
fn a_rank_that_babbles_leaves() {
    for babble in [vec![0xff; 9], vec![1; MAX_DATAGRAM + 1]] {
        let (served, rank, babbler) = two();
        say(&babbler.0, &babble);
        assert!(closed(&babbler.0));
        assert!(rank.ask(Call::Status).result.is_ok());
        assert!(rank.ask(Call::Close).result.is_ok());
        served.end().unwrap();
    }
}

/// Names the process that [`a_rank_whose_child_has_its_socket_is_gone_when_it_ends`] starts, and what it is to do.
const CHILD: &str = "PORTOLAN_TEST_RANK_OF";

/// Joins as rank 1, has a child of its own keep the socket, and waits to be killed.
#[test]
fn rank_of_another_process() {
    let Some(words) = std::env::var_os(CHILD).and_then(|w| w.into_string().ok()) else {
        return;
    };
    let (name, secret) = words.split_once(' ').unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let line = socket(SocketFlags::CLOEXEC);
    connect(&line, &address).unwrap();
    let keeps = line.try_clone().unwrap();
    let config = rank_config(Placement::ONE, 1, 1);
    let secret = Secret::from_hex(secret).unwrap();
    let _client = Client::join(line, &secret, 1, &config).unwrap();
    // It ends with the pipe of the test.
    let mut child = std::process::Command::new("cat")
        .stdout(std::process::Stdio::from(keeps))
        .spawn()
        .unwrap();
    println!("here");
    let _ = child.wait();
}

#[test]
fn a_rank_whose_child_has_its_socket_is_gone_when_it_ends() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let mut served = Served::new(2);
    let name = str::from_utf8(served.address.abstract_name().unwrap()).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "door::tests::rank_of_another_process",
            "--nocapture",
        ])
        .env(CHILD, format!("{name} {}", served.secret.to_hex()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = served.founder.take().unwrap();
    let rank = Raw::hello(&served, 0, line);
    assert!(rank.hear().result.is_ok());
    let out = BufReader::new(process.stdout.take().unwrap());
    assert!(
        out.lines()
            .any(|line| line.is_ok_and(|l| l.contains("here")))
    );
    // The child lives until then, and has the socket.
    let stdin = process.stdin.take();
    process.kill().unwrap();
    process.wait().unwrap();
    // Only when rank 1 runs no more does time pass for rank 0.
    assert!(rank.ask(Call::Status).result.is_ok());
    assert!(rank.ask(Call::Close).result.is_ok());
    drop(stdin);
    served.end().unwrap();
}

/// The ranks of a large job leave the launcher's fence together: all connect before one of them says its hello.
#[test]
fn ranks_of_a_large_job_may_all_connect_before_they_say_hello() {
    const RANKS: usize = 300;
    let (mut limits, files) = (limit(Resource::Nofile).unwrap(), Files::own().unwrap());
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits).unwrap();
    let (listener, address) = listener();
    let (founder, theirs) = start::pair().unwrap();
    let secret = Secret::new().unwrap();
    let mut door = Door::new(secret, listener, RANKS, Some(theirs));
    let mut lines = vec![founder];
    for _ in 1..RANKS {
        let line = socket(SocketFlags::CLOEXEC);
        connect(&line, &address).unwrap();
        lines.push(line);
    }
    while door.turned_away == 0 && door.pending.len() < RANKS {
        door.step().unwrap();
    }
    assert_eq!(door.turned_away, 0, "{} have come", door.pending.len());
    let word = [9; Probe::LEN];
    for (rank, line) in (0..).zip(&lines) {
        let memory = Handed::Files(Probe {
            address: word.as_ptr().expose_provenance() as u64,
            word,
        });
        let hello = hello(&secret, rank, memory);
        send_with(line.as_fd(), &hello, &files.descriptors()).unwrap();
    }
    assert_eq!(door.gather().unwrap().len(), RANKS);
}

/// Set for the process that has no descriptor left.
const FULL: &str = "PORTOLAN_TEST_FULL_SIMULATION";

/// A simulation without a descriptor for a rank that comes does not spin, does not end, and lets the rank in once it has one.
#[test]
fn a_simulation_without_descriptors_waits_and_loses_no_rank() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};
    if std::env::var_os(FULL).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("door::tests::a_simulation_without_descriptors_waits_and_loses_no_rank")
            .env(FULL, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned()
            + &String::from_utf8_lossy(&child.stderr);
        return assert!(child.status.success(), "{said}");
    }
    let mut served = Served::new(2);
    // It has all that it needs once it answers.
    let stranger = served.connect();
    say(&stranger, b"noise");
    assert!(!note(&stranger).is_empty() && closed(&stranger));
    let line = socket(SocketFlags::CLOEXEC);
    let limit = Rlimit {
        current: Some(200),
        maximum: Some(200),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let filling: Vec<OwnedFd> = std::iter::from_fn(|| line.try_clone().ok()).collect();
    connect(&line, &served.address).unwrap();
    let used = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let (before, window) = (used(), Duration::from_secs(1));
    let mut fds = [PollFd::new(&line, PollFlags::IN)];
    let most = Timespec::try_from(window).unwrap();
    assert_eq!(poll(&mut fds, Some(&most)).unwrap(), 0, "the rank is lost");
    let used = used() - before;
    assert!(used < window / 4, "{used:?} of the processor");
    drop(filling);
    let founder = served.founder.take().unwrap();
    std::thread::scope(|s| {
        for (rank, line) in [(0, founder), (1, line)] {
            let served = &served;
            s.spawn(move || {
                let ni = served.join(rank, line).unwrap();
                ni.status().unwrap();
                ni.close().unwrap();
            });
        }
    });
    served.end().unwrap();
}

/// A connection that the system refuses ends no simulation; the reason is said where a rank is missing in the end.
#[test]
fn a_refused_connection_ends_nothing_and_is_said_to_be_refused() {
    let test = "door::tests::a_refused_connection_ends_nothing_and_is_said_to_be_refused";
    if !fabric_testing::is_denied("EPERM", "accept4", test) {
        return;
    }
    let (listener, address) = listener();
    let (_founder, theirs) = start::pair().unwrap();
    let secret = Secret::new().unwrap();
    let mut door = Door::new(secret, listener, 2, Some(theirs));
    let line = socket(SocketFlags::CLOEXEC);
    connect(&line, &address).unwrap();
    door.step().unwrap();
    assert_eq!(
        door.missing().to_string(),
        "only 0 of 2 ranks joined the simulation within 30s; rank 0 did not; a connection is not accepted: Operation not \
         permitted (os error 1)"
    );
    // Whoever waits is not looked at until the pause is over.
    assert!(!door.wait(Instant::now()).unwrap().calls);
}
