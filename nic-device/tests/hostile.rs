//! Clients and servers that do not keep to the protocol: answered or turned away, never a panic,
//! and never in the way of others.

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use nic_device::{
    Chips, DeviceError, DmaMemory, Function, Listeners, ServeOptions, UserFunction, serve,
};
use nic_model::defs::command::{Command as _, InitEq, InitProcess, MarkAlive, OpCode};
use nic_model::defs::niccb::Counter;
use nic_model::defs::{mailbox, map};
use nic_model::{Machine, RegisterIo};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use zerocopy::FromZeros as _;

/// A server in a thread; ends when its clients are gone.
struct Server {
    thread: Option<JoinHandle<Result<(), DeviceError>>>,
    paths: Vec<PathBuf>,
    folder: TempDir,
}

impl Server {
    fn new(nodes: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listeners = Listeners::bind(&folder.path().join("device"), nodes).unwrap();
        let paths = listeners.paths().map(PathBuf::from).collect();
        let thread = std::thread::spawn(move || {
            let mut chips = Chips::new(Machine::named("xt4").unwrap(), nodes).unwrap();
            serve(&listeners, &mut chips, ServeOptions::once())
        });
        Self {
            thread: Some(thread),
            paths,
            folder,
        }
    }

    fn raw(&self, node: usize) -> Raw {
        let stream = UnixStream::connect(&self.paths[node]).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Raw(stream)
    }

    fn function(&self, node: usize) -> UserFunction {
        UserFunction::connect(&self.paths[node]).unwrap()
    }

    /// The server ends well once all clients have left; the folder that its sockets were in.
    fn end(mut self) -> TempDir {
        self.thread.take().unwrap().join().unwrap().unwrap();
        assert!(!self.paths[0].exists(), "the socket is removed");
        self.folder
    }
}

/// A client that says whatever it wants.
struct Raw(UnixStream);

fn bytes(command: u16, size: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![7, 0];
    message.extend(command.to_le_bytes());
    message.extend(size.to_le_bytes());
    message.extend(flags.to_le_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

impl Raw {
    /// The next message's flags, errno and body; `None` when the server has hung up.
    fn hear(&mut self) -> Option<(u32, u32, Vec<u8>)> {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).ok()?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).unwrap();
        Some((word(8), word(12), body))
    }

    fn ask(&mut self, command: u16, body: &[u8]) -> Result<Vec<u8>, u32> {
        let message = bytes(command, 16 + body.len() as u32, 0, body);
        self.0.write_all(&message).unwrap();
        let (flags, errno, body) = self.hear().expect("an answer");
        assert_eq!(flags & 0xF, 1, "a reply");
        if flags & 0x20 != 0 {
            Err(errno)
        } else {
            Ok(body)
        }
    }

    /// Says something with a descriptor beside it, which the server takes.
    fn give(&mut self, (command, body): &(u16, [u32; 5]), fd: impl AsFd) {
        self.hand(*command, &words(body), fd.as_fd());
    }

    fn hand(&mut self, command: u16, body: &[u8], fd: BorrowedFd<'_>) {
        let message = bytes(command, 16 + body.len() as u32, 0, body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let parts = [std::io::IoSlice::new(&message)];
        sendmsg(&self.0, &parts, &mut control, SendFlags::empty()).unwrap();
        assert!(self.hear().is_some_and(|(flags, ..)| flags == 1));
    }

    fn agree(&mut self) {
        let reply = self.ask(1, b"\0\0\x01\0{}\0").unwrap();
        assert_eq!(reply[..4], [0, 0, 1, 0]);
        assert_eq!(*reply.last().unwrap(), 0);
    }
}

/// A client that wants no answers: what it says, to be sent at once.
struct Quiet(Vec<u8>);

impl Quiet {
    fn write32(&mut self, address: u32, value: u32) {
        let body = [at(address), words(&[value])].concat();
        self.0.extend(bytes(10, 36, 0x10, &body));
    }

    fn read32(&mut self, address: u32) {
        self.0.extend(bytes(9, 32, 0x10, &at(address)));
    }
}

impl RegisterIo for Raw {
    fn read32(&mut self, address: u32) -> u32 {
        let body = self.ask(9, &at(address)).unwrap();
        u32::from_le_bytes(body[16..20].try_into().unwrap())
    }

    fn write32(&mut self, address: u32, value: u32) {
        let body = [at(address), words(&[value])].concat();
        self.ask(10, &body).unwrap();
    }
}

/// The body of an access to one register.
fn at(address: u32) -> Vec<u8> {
    access(u64::from(address - map::WINDOW), 0, 4)
}

/// The message that sets the interrupt to the descriptor beside it, and the body of the one that triggers it.
const SET_INTERRUPT: (u16, [u32; 5]) = (8, [20, 0x24, 1, 0, 1]);
const TRIGGER: [u32; 5] = [20, 0x21, 1, 0, 1];

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The body of a region access.
fn access(offset: u64, region: u32, count: u32) -> Vec<u8> {
    words(&[offset as u32, (offset >> 32) as u32, region, count])
}

const INVALID: u32 = 22;
const NOT_SUPPORTED: u32 = 95;

#[test]
fn bad_messages_are_answered_with_an_errno() {
    let server = Server::new(1);
    let mut client = server.raw(0);
    client.agree();
    let cases: Vec<(u16, Vec<u8>, u32)> = vec![
        (1, b"\0\0\x01\0".to_vec(), INVALID),
        (2, vec![], INVALID),
        (2, words(&[32, 3, 0, 0, 0, 0, 4096, 0]), NOT_SUPPORTED),
        (2, words(&[8, 3, 0, 0, 0, 0, 4096, 0]), INVALID),
        (3, words(&[24, 0, 0, 0, 4096, 0]), 2),
        (3, words(&[24, 2, 0, 0, 4096, 0]), INVALID),
        (4, words(&[4, 0, 0, 0]), INVALID),
        (5, words(&[32, 0, 9, 0, 0, 0, 0, 0]), INVALID),
        (5, words(&[32, 0, u32::MAX, 0, 0, 0, 0, 0]), INVALID),
        (6, words(&[32, 0, 0, 0]), NOT_SUPPORTED),
        (7, words(&[16, 0, 77, 0]), INVALID),
        (8, words(&[20, 0x24, 0, 0, 1]), INVALID),
        (8, words(&[20, 0x24, 1, 0, u32::MAX]), INVALID),
        (8, words(&[20, 0x0C, 1, 0, 1]), NOT_SUPPORTED),
        (9, access(0, 0, 2), INVALID),
        (9, access(2, 0, 4), INVALID),
        (9, access(0x1F_FFFC, 0, 8), INVALID),
        (9, access(u64::MAX - 3, 0, 4), INVALID),
        (9, access(0, 0, u32::MAX), INVALID),
        (9, access(255, 7, 4), INVALID),
        (9, access(0, 3, 4), INVALID),
        (9, words(&[0]), INVALID),
        (10, access(0, 0, 4), INVALID),
        (10, [access(0, 0, 4), words(&[1, 2])].concat(), INVALID),
        (10, [access(0x20_0000, 0, 4), words(&[1])].concat(), INVALID),
        (11, words(&[0, 0, 4, 0]), NOT_SUPPORTED),
        (4711, vec![1; 100], NOT_SUPPORTED),
    ];
    for (command, body, errno) in cases {
        assert_eq!(client.ask(command, &body), Err(errno), "{command} {body:?}");
    }
    // After all that it is a device still.
    let nid = client.ask(9, &access(0x108, 0, 4)).unwrap();
    assert_eq!(nid[16..], [0; 4]);
    assert_eq!(client.ask(9, &access(0x20_0000, 0, 0)).unwrap().len(), 16);
    assert!(client.ask(13, &[]).is_ok(), "a reset");
    drop(client);
    server.end();
}

#[test]
fn who_cannot_be_talked_to_is_hung_up_on() {
    let server = Server::new(2);
    let mut good = server.function(1);
    for message in [
        bytes(1, 15, 0, &[]),
        bytes(1, 0, 0, &[]),
        bytes(1, u32::MAX, 0, &[]),
        bytes(1, 1 << 20, 0, &[]),
        // Nothing was agreed on.
        bytes(9, 32, 0, &[0; 16]),
        // A reply to nothing.
        bytes(1, 20, 1, &[0, 0, 1, 0]),
    ] {
        let mut client = server.raw(0);
        client.0.write_all(&message).unwrap();
        assert!(client.hear().is_none(), "{message:?}");
    }
    // Half a message, and gone.
    let mut client = server.raw(0);
    client.0.write_all(&bytes(1, 30, 0, &[0; 3])).unwrap();
    drop(client);
    assert_eq!(good.read32(map::NID), 1);
    drop(good);
    server.end();
}

#[test]
fn a_client_that_says_half_a_sentence_holds_nobody_up() {
    let server = Server::new(2);
    let mut slow = server.raw(0);
    slow.0.write_all(&bytes(1, 30, 0, &[0; 3])).unwrap();
    let mut good = server.function(1);
    assert_eq!(good.read32(map::NID), 1);
    // A second client of a function is turned away.
    let mut second = server.raw(1);
    assert!(second.hear().is_none());
    drop((slow, good));
    server.end();
}

/// Whoever connects first and says nothing, or half a version, is no client yet.
#[test]
fn a_client_finds_its_function_behind_those_who_never_agree() {
    let server = Server::new(1);
    let silent: Vec<Raw> = (0..30).map(|_| server.raw(0)).collect();
    let mut half = server.raw(0);
    half.0.write_all(&bytes(1, 30, 0, &[0; 3])).unwrap();
    let wrong = server.raw(0);
    (&wrong.0)
        .write_all(&bytes(1, 23, 0, b"\x07\0\x01\0{}\0"))
        .unwrap();
    let mut good = server.function(0);
    assert_eq!(good.read32(map::NID), 0);
    // Who is late to agree is turned away, as there is a client.
    half.0.write_all(b"\0{}\0\0\0\0\0\0\0\0").unwrap();
    while half.hear().is_some() {}
    // The silent ones are hung up on in time, while the client goes on.
    let mut last = silent.into_iter().next_back().unwrap();
    assert!(last.hear().is_none());
    assert_eq!(good.read32(map::NID), 0);
    drop(good);
    server.end();
}

#[test]
fn a_socket_is_for_its_user_alone_whatever_the_umask_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::new(1);
    let mode = std::fs::metadata(&server.paths[0])
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(server.function(0));
    server.end();
}

#[test]
fn a_client_that_does_not_listen_is_not_heard() {
    let server = Server::new(2);
    let mut deaf = server.raw(0);
    deaf.agree();
    let mut good = server.function(1);
    // Asks for 64 KiB again and again until nothing more is taken.
    deaf.0.set_nonblocking(true).unwrap();
    let ask = bytes(9, 32, 0, &access(0, 0, 0x1_0000));
    let mut asked = 0u64;
    while deaf.0.write(&ask).is_ok_and(|n| n == ask.len()) {
        asked += 1;
        assert!(asked < 100_000, "the server buffers without end");
    }
    assert_eq!(good.read32(map::NID), 1);
    drop((deaf, good));
    server.end();
}

/// Boots a chip whose host memory begins at `base`, as the generic process.
fn boot(function: &mut impl RegisterIo, base: u64) {
    let entry = map::HtMapEntry::mapping(base).unwrap();
    function.write32(map::ht_slot(8), entry.0);
    function.write32(map::HT_INTERRUPT, 1);
    let mut init = InitProcess::new_zeroed();
    init.op = OpCode::INIT_PROCESS;
    init.process_index = 1;
    init.num_pendings = 16.into();
    init.pending_tx_limit = 8.into();
    init.num_eqcbs = 1.into();
    init.pending_table = map::HOST_SRAM.into();
    init.eqcb_table = (map::HOST_SRAM + 16 * map::LOWER_PENDING_LEN).into();
    init.up_pending_table_ht = map::firmware_address(8, 0x4000).into();
    let mut eq = InitEq::new_zeroed();
    eq.op = OpCode::INIT_EQ;
    eq.base = map::firmware_address(8, 0).into();
    eq.count = 1024.into();
    let mut alive = MarkAlive::new_zeroed();
    alive.op = OpCode::MARK_ALIVE;
    alive.process_index = 1;
    command(function, 0, &init.to_entry());
    command(function, 1, &eq.to_entry());
    command(function, 2, &alive.to_entry());
}

/// Writes the command of slot `slot` and takes the result if there is one.
fn command(function: &mut impl RegisterIo, slot: u32, entry: &[u8; 64]) {
    mailbox::write_command(function, 0, slot, entry);
    function.write32(mailbox::address(0, mailbox::COMMAND_WRITE), slot + 1);
    let write = function.read32(mailbox::address(0, mailbox::RESULT_WRITE));
    function.write32(mailbox::address(0, mailbox::RESULT_READ), write);
}

#[test]
fn memory_that_was_never_mapped_or_went_away_is_a_fault_of_the_transfer() {
    let server = Server::new(1);
    let mut function = server.function(0);
    let memory = DmaMemory::new(1 << 20).unwrap();
    function.map(&memory, 0).unwrap();
    assert!(matches!(
        function.map(&memory, 0x1000),
        Err(DeviceError::Refused { .. })
    ));
    assert!(function.fault().is_none());
    function.unmap(0).unwrap();
    assert!(function.unmap(0).is_err());
    function.map(&memory, 1 << 30).unwrap();
    boot(&mut function, 1 << 30);
    assert_eq!(function.read32(Counter::HOST_FAULTS.address()), 0);
    // The file is cut off behind the server's back; the event of a refused command has no place.
    rustix::fs::ftruncate(&memory, 0).unwrap();
    let mut bad = [0; 64];
    bad[0] = 77;
    command(&mut function, 3, &bad);
    assert!(function.read32(Counter::HOST_FAULTS.address()) > 0);
    assert!(function.fault().is_none());
    drop(function);
    server.end();
}

#[test]
fn any_descriptor_may_be_handed_over_as_interrupt() {
    let server = Server::new(1);
    let mut client = server.raw(0);
    client.agree();
    // A pipe that nobody reads: it fills, and must not hold the server up.
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    client.give(&SET_INTERRUPT, &writer);
    // Triggered by hand more often than a pipe has room for.
    for _ in 0..10_000 {
        assert!(client.ask(8, &words(&TRIGGER)).is_ok());
    }
    drop(client);
    server.end();
}

/// Two interrupts at once are more than an event descriptor has room for that takes one: a write of both would block.
#[test]
fn an_event_descriptor_near_its_limit_holds_nobody_up() {
    for below in [0u64, 1, 2] {
        let server = Server::new(2);
        let mut good = server.function(1);
        let mut client = server.raw(0);
        client.agree();
        let memory = DmaMemory::new(1 << 20).unwrap();
        let map = words(&[32, 3, 0, 0, 0, 0, 1 << 20, 0]);
        client.hand(2, &map, memory.as_fd());
        boot(&mut client, 0);
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let full = u64::MAX - 1 - below;
        rustix::io::write(&event, &full.to_ne_bytes()).unwrap();
        client.give(&SET_INTERRUPT, &event);
        let mut quiet = Quiet(Vec::new());
        let mut bad = [0; 64];
        bad[0] = 77;
        for slot in 3..6 {
            let mut at = mailbox::command(0, slot);
            for word in bad.as_chunks::<4>().0 {
                quiet.write32(at, u32::from_le_bytes(*word));
                at += 4;
            }
            quiet.write32(mailbox::address(0, mailbox::COMMAND_WRITE), slot + 1);
            quiet.read32(mailbox::address(0, mailbox::RESULT_WRITE));
            quiet.read32(mailbox::address(0, mailbox::RESULT_WRITE));
        }
        client.0.write_all(&quiet.0).unwrap();
        assert_eq!(client.read32(map::NID), 0);
        assert_eq!(good.read32(map::NID), 1);
        drop((client, good));
        server.end();
    }
}

#[test]
fn random_messages_do_no_harm_seed_5() {
    let server = Server::new(2);
    let mut good = server.function(1);
    let mut rng = fastrand::Rng::with_seed(5);
    let mut answered = 0;
    for _ in 0..60 {
        let mut client = server.raw(0);
        client.agree();
        for _ in 0..100 {
            let mut body: Vec<u8> = (0..rng.usize(0..60)).map(|_| rng.u8(..)).collect();
            // Often nearly right.
            if rng.bool() {
                for byte in &mut body {
                    *byte &= 0x23;
                }
            }
            let wild = rng.u8(0..50) == 0;
            let size = if wild {
                rng.u32(..)
            } else {
                16 + body.len() as u32
            };
            let message = bytes(rng.u16(0..16), size, 0, &body);
            if client.0.write_all(&message).is_err() || wild {
                break;
            }
            match client.hear() {
                Some(_) => answered += 1,
                None => break,
            }
        }
        assert_eq!(good.read32(map::NID), 1);
    }
    assert!(answered > 500, "only {answered} answers");
    drop(good);
    server.end();
}

/// What a client makes of a server that answers its first message with `reply` and then hangs
/// up or stays silent.
fn bad_server(reply: Vec<u8>, hang_up: bool) -> DeviceError {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut hello = [0; 16];
        theirs.read_exact(&mut hello).unwrap();
        let size = u32::from_le_bytes(hello[4..8].try_into().unwrap());
        let mut rest = vec![0; size as usize - 16];
        theirs.read_exact(&mut rest).unwrap();
        theirs.write_all(&reply).unwrap();
        if !hang_up {
            // Until the client gives up.
            let _ = theirs.read_to_end(&mut Vec::new());
        }
    });
    let error = UserFunction::over(ours, Duration::from_millis(300)).unwrap_err();
    thread.join().unwrap();
    error
}

#[test]
fn bad_servers_are_errors() {
    let reply = |id: u8, command: u16, size: u32, flags: u32, errno: u8, body: &[u8]| {
        let mut message = bytes(command, size, flags, body);
        (message[0], message[12]) = (id, errno);
        message
    };
    let version = b"\0\0\x01\0{}\0";
    for message in [
        reply(0, 1, 3, 1, 0, &[]),
        reply(0, 1, u32::MAX, 1, 0, &[]),
        reply(9, 1, 23, 1, 0, version),
        reply(0, 2, 23, 1, 0, version),
        reply(0, 1, 23, 0, 0, version),
        reply(0, 1, 16, 1, 0, &[]),
        reply(0, 1, 23, 1, 0, b"\x07\0\x01\0{}\0"),
        reply(0, 1, 23, 1, 0, b"\0\0\x01\0{x\0"),
    ] {
        let error = bad_server(message.clone(), true);
        assert!(
            matches!(error, DeviceError::Protocol(_)),
            "{message:?}: {error}"
        );
    }
    let error = bad_server(reply(0, 1, 16, 0x21, 13, &[]), true);
    assert!(error.to_string().contains("refused version"), "{error}");
    let error = bad_server(vec![0; 7], true);
    assert!(matches!(error, DeviceError::Closed), "{error}");
    let error = bad_server(reply(0, 1, 23, 1, 0, version), true);
    assert!(matches!(error, DeviceError::Closed), "{error}");
    let error = bad_server(reply(0, 1, 23, 1, 0, version), false);
    assert!(matches!(error, DeviceError::Silent { .. }), "{error}");
}

#[test]
fn a_socket_in_use_is_not_taken_and_a_stale_one_is() {
    let server = Server::new(1);
    let socket = server.paths[0].clone();
    let base = socket.with_extension("");
    // That somebody looks does not end a server that waits for its client.
    let error = Listeners::bind(&base, 1).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { .. }), "{error}");
    let held = server.function(0);
    let error = Listeners::bind(&base, 1).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { .. }), "{error}");
    drop(held);
    let _folder = server.end();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    drop(Listeners::bind(&base, 1).unwrap());
    assert!(!socket.exists());
}
