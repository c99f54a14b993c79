//! Who connects to an open simulation and is no endpoint of it.

use super::*;
use crate::proto::{ARRIVAL, Arrival, HELLO, Handed, MAX_DATAGRAM, Question, Reply, opening};
use crate::usermem::Probe;
use fabric_api::call::{Answer, Call};
use fabric_api::identity::rank_config;
use host::secret::Secret;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The note of the refusal, with which the connection ends.
fn refused(socket: &OwnedFd) -> String {
    let mut buffer = [0; MAX_DATAGRAM];
    let (mut note, mut said) = (String::new(), 0);
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return note,
            Ok((n, _)) => {
                let reply: Reply = postcard::from_bytes(&buffer[..n]).unwrap();
                assert!(reply.result.is_err() && said == 0, "{reply:?}");
                (note, said) = (reply.note, 1);
            }
            Err(Errno::CONNRESET) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// No memory.
fn none() -> Handed {
    Handed::Refused(String::new())
}

fn arrival(secret: &Secret, kind: [u8; 8], memory: Handed) -> Vec<u8> {
    let arrival = Arrival {
        config: rank_config(Placement::ONE, 0, 1),
        owner: Owner::alone(1),
        memory,
    };
    let mut bytes = opening(kind, secret);
    bytes.extend(postcard::to_stdvec(&arrival).unwrap());
    bytes
}

impl Served {
    fn connect(&self) -> OwnedFd {
        let socket = self.place.connect(&Job::singleton()).unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
        socket
    }

    /// What somebody is told who says this.
    fn answer(&self, bytes: &[u8]) -> String {
        let socket = self.connect();
        let _ = send(&socket, bytes, SendFlags::NOSIGNAL);
        refused(&socket)
    }
}

#[test]
fn strangers_join_nothing_and_delay_nobody() {
    let served = Served::new(2);
    let _silent: Vec<_> = (0..300).map(|_| served.connect()).collect();
    let secret = served.place.secret;
    let wrong = arrival(&Secret::new().unwrap(), ARRIVAL, none());
    let rank = arrival(&secret, HELLO, none());
    let mut older = arrival(&secret, ARRIVAL, none());
    older[8] -= 1;
    let nowhere = Probe {
        address: 8,
        word: [0; Probe::LEN],
    };
    for (bytes, why) in [
        (&[0xff; 20][..], "no hello of this build"),
        (&[7; MAX_DATAGRAM + 1], "no hello of this build"),
        (&wrong, "the hello does not have this simulation's secret"),
        (
            &wrong[..28],
            "the hello does not have this simulation's secret",
        ),
        (&rank, "no hello of this build"),
        (&older, "it is of version"),
        (&opening(ARRIVAL, &secret), "no hello of this build"),
        (
            &arrival(&secret, ARRIVAL, Handed::Files(nowhere)),
            "its descriptors did not arrive",
        ),
        (
            &arrival(&secret, ARRIVAL, Handed::Refused("it will not".to_owned())),
            "it will not",
        ),
    ] {
        let told = served.answer(bytes);
        assert!(told.contains(why), "{told:?} and not {why:?}");
    }
    let (one, other) = (served.join(1), served.join(1));
    one.meets(&other);
    one.reaches(&other, b"all the same");
    served.end().unwrap();
}

#[test]
fn another_user_is_turned_away_with_the_secret_too() {
    if host::ids::user().unwrap() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let served = Served::new(2);
    let dumpable = rustix::process::dumpable_behavior().unwrap();
    let bytes = arrival(&served.place.secret, ARRIVAL, none());
    let told = std::thread::scope(|s| {
        let other = s.spawn(|| {
            // Of this thread alone.
            let nobody = rustix::process::Uid::from_raw(65533);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let socket = socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
            .unwrap();
            rustix::net::connect(&socket, &served.place.socket_address().unwrap()).unwrap();
            let _ = send(&socket, &bytes, SendFlags::NOSIGNAL);
            refused(&socket)
        });
        other.join().unwrap()
    });
    // The kernel has closed the whole process's memory for that.
    rustix::process::set_dumpable_behavior(dumpable).unwrap();
    assert!(told.contains("runs as user 65533"), "{told}");
    served.join(1).ni.close().unwrap();
    served.end().unwrap();
}

/// Questions of endpoints are none of ranks, and an endpoint that does not keep to the rules leaves.
#[test]
fn an_endpoint_that_babbles_leaves() {
    let served = Served::new(1);
    let wished = NiConfig {
        ..rank_config(Placement::ONE, 0, 1)
    };
    let socket = served.connect();
    let watch = socket.try_clone().unwrap();
    let (_client, _) =
        Client::arrive(socket, &served.place.secret, &wished, Owner::alone(1)).unwrap();
    send(&watch, &[0xff; 9], SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(
        recv(&watch, &mut [0; 16][..], RecvFlags::empty()),
        Ok((0, _)) | Err(Errno::CONNRESET)
    ));
    // Its place is free.
    let next = served.join(1);
    next.ni.close().unwrap();
    served.end().unwrap();
}

/// What only endpoints say is nonsense of a rank.
#[test]
fn a_rank_of_a_job_cannot_ask_as_an_endpoint() {
    for question in [
        Question::Enter,
        Question::Forget(ProcessId::new(1, 128)),
        Question::Strayed(Call::Status),
    ] {
        let mut ranks = crate::in_threads(2, "xt4").unwrap();
        let (one, other) = (ranks.remove(0), ranks.remove(0));
        std::thread::scope(|s| {
            s.spawn(move || {
                let _end = EndOnPanic::guard();
                let ni = Opened::from(other.join().unwrap()).interface;
                ni.compute(5).unwrap();
                ni.close().unwrap();
            });
            let config = rank_config(Placement::ONE, 0, 1);
            let client = Client::join_thread(one.into_rank(), &config).unwrap();
            assert_eq!(client.ask(question), Err(Error::Fail));
        });
    }
}

/// A process with one thread asks once. Others ask for one slice after the other.
#[test]
fn a_wait_for_ever_in_one_question_ends_when_a_peer_leaves() {
    let served = Served::with(2, Placement::ONE, None);
    let wished = rank_config(Placement::ONE, 0, 1);
    let socket = served.connect();
    let (client, id) =
        Client::arrive(socket, &served.place.secret, &wished, Owner::alone(1)).unwrap();
    let Ok(Answer::Eq(eq)) = client.ask(Question::Call(Call::EqAlloc(4))) else {
        panic!("no event queue");
    };
    let leaves = served.join(2);
    let address = Address::new(FabricKind::Seastar, id, leaves.book.own().contact()).unwrap();
    leaves.book.insert(&address).unwrap();
    leaves.put(id, b"to nobody who takes it");
    drop(leaves);
    let eqs = [eq].into_iter().collect();
    let wait = Wait::Forever;
    let ended = client.ask(Question::Call(Call::EqPoll { eqs, wait }));
    assert_eq!(ended, Err(Error::Fail));
}
