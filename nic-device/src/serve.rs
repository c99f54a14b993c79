//! The server: a socket for each chip, one client on each, one thread for all.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nic_model::{NodeId, SimDuration};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::callers::{Agreed, Callers};
use crate::chips::{Chips, TOUCH};
use crate::error::DeviceError;
use crate::server::{Endpoint, Outcome};
use crate::socket::{Connection, Received, timespec};

/// Virtual time that passes for each millisecond in which no client says anything.
pub const IDLE_STEP: SimDuration = SimDuration::from_us(1_000);
/// How long time waits for a client that has been interrupted, in wall time.
const HOLD: Duration = Duration::from_secs(1);
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;
/// Messages of one client before the others' turn.
const TURN: usize = 64;
/// Connections to one socket that are accepted before the clients' turn.
const AT_ONCE: usize = 64;
/// How long no client says anything before [`IDLE_STEP`] passes.
const TICK: Duration = Duration::from_millis(1);

/// How long a server serves.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Ends when the last client has left.
    pub once: bool,
}

impl ServeOptions {
    /// A server that ends when the last client has left.
    #[must_use]
    pub fn once() -> Self {
        Self { once: true }
    }
}

/// The sockets of a server; their files go with this value.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<(UnixListener, PathBuf)>,
}

impl Listeners {
    /// A socket for each of `nodes` functions: `PATH.0`, `PATH.1` and so on. A file that a server
    /// left behind is replaced.
    ///
    /// # Errors
    /// Another server is there, or the path cannot be used.
    pub fn bind(path: &Path, nodes: u16) -> Result<Self, DeviceError> {
        let mut sockets = Self {
            sockets: Vec::new(),
        };
        for node in 0..nodes {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{node}"));
            let name = PathBuf::from(name);
            match UnixStream::connect(&name) {
                Ok(_) => return Err(DeviceError::InUse { path: name }),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(&name)
                        .map_err(DeviceError::system(format!("remove {}", name.display())))?;
                }
                Err(_) => {}
            }
            let listener = listen_at(&name).map_err(DeviceError::system(format!(
                "make socket {}",
                name.display()
            )))?;
            sockets.sockets.push((listener, name));
        }
        Ok(sockets)
    }

    /// The paths, by node.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sockets.iter().map(|(_, path)| path.as_path())
    }
}

/// A socket that only the user of this process, and root, can connect to: whoever connects must be permitted to write to its
/// file, which is made with this mode whatever the umask is.
fn listen_at(path: &Path) -> rustix::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for (_, path) in &self.sockets {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

struct Client {
    connection: Connection,
    endpoint: Endpoint,
    /// Since when time waits for it.
    held: Option<Instant>,
}

/// Serves `chips` on `listeners`, function `n` on socket `n`.
///
/// When a client leaves, its memory and its interrupt are forgotten; when the last one leaves,
/// the world begins anew.
///
/// # Errors
/// The system refuses to wait. Nothing a client does ends the server.
pub fn serve(
    listeners: &Listeners,
    chips: &mut Chips,
    options: ServeOptions,
) -> Result<(), DeviceError> {
    let mut clients: Vec<Option<Client>> = listeners.sockets.iter().map(|_| None).collect();
    let mut callers = Callers::default();
    let mut came = false;
    let mut quiet = Quiet {
        since: Instant::now(),
    };
    loop {
        let ready = wait(listeners, &clients, &callers, !chips.at_rest())?;
        let mut said = false;
        // From the last to the first, as they are taken out.
        for &at in ready.newcomers.iter().rev() {
            if let Some(agreed) = callers.hear(at, chips) {
                said = true;
                came |= admit(listeners, agreed, &mut clients, chips);
            }
        }
        callers.lose_patience();
        for node in ready.callers {
            said |= accept(listeners, node, &mut clients, chips, &mut callers);
        }
        for node in ready.speakers {
            said |= turn(&mut clients, node, chips);
        }
        lose_patience(&mut clients, chips);
        if quiet.is_over(said, Instant::now()) {
            chips.advance(IDLE_STEP);
        }
        if !said {
            signal(&clients, chips);
        }
        let connected = clients.iter().flatten().count();
        if came && connected == 0 {
            if options.once {
                return Ok(());
            }
            came = false;
            chips.reset();
        }
    }
}

/// A while in which no client says anything.
struct Quiet {
    since: Instant,
}

impl Quiet {
    /// Whether [`TICK`] of it is over, of which the next begins then. Whoever wakes the server and says nothing, such as by
    /// connecting, neither ends nor shortens it.
    fn is_over(&mut self, said: bool, now: Instant) -> bool {
        let is_over = !said && now.saturating_duration_since(self.since) >= TICK;
        if said || is_over {
            self.since = now;
        }
        is_over
    }
}

/// Lets time go on past clients that do not listen to their interrupts, so that they do not hold
/// the others up.
fn lose_patience(clients: &mut [Option<Client>], chips: &mut Chips) {
    for (node, client) in clients.iter_mut().enumerate() {
        let node = NodeId(node as u16);
        let Some(client) = client.as_mut().filter(|_| chips.is_held_by(node)) else {
            continue;
        };
        let since = *client.held.get_or_insert_with(Instant::now);
        if since.elapsed() > HOLD {
            client.held = None;
            chips.touched(node);
        }
    }
}

/// Who is to be heard, by node. The others are not looked at: a look is a call of the system, and one client's access
/// to a register would cost one for every other client.
#[derive(Debug, Default)]
struct Ready {
    /// Somebody connects.
    callers: Vec<usize>,
    /// Who has connected and is no client yet has said something, in order.
    newcomers: Vec<usize>,
    /// The client has said something, hears again, or is gone.
    speakers: Vec<usize>,
}

/// Waits until somebody says something, or a millisecond while the world moves.
fn wait(
    listeners: &Listeners,
    clients: &[Option<Client>],
    callers: &Callers,
    moving: bool,
) -> Result<Ready, DeviceError> {
    let mut fds = Vec::new();
    let mut who = Vec::new();
    let mut add = |fd, what, is| {
        fds.push(PollFd::from_borrowed_fd(fd, what));
        who.push(is);
    };
    if callers.accepts() {
        for (node, (listener, _)) in listeners.sockets.iter().enumerate() {
            add(listener.as_fd(), PollFlags::IN, Who::Listener(node));
        }
    }
    for (node, client) in clients.iter().enumerate() {
        let Some(client) = client else { continue };
        let what = if client.connection.is_backed_up() {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        add(client.connection.as_fd(), what, Who::Client(node));
    }
    for (at, fd) in callers.fds().enumerate() {
        add(fd, PollFlags::IN, Who::Newcomer(at));
    }
    let tick = moving.then_some(TICK);
    let limit = tick.into_iter().chain(callers.rest()).min().map(timespec);
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Ready::default()),
        Err(e) => return Err(DeviceError::system("wait for clients")(e)),
    }
    let mut ready = Ready::default();
    for (fd, is) in fds.iter().zip(who) {
        match is {
            _ if fd.revents().is_empty() => {}
            Who::Listener(node) => ready.callers.push(node),
            Who::Client(node) => ready.speakers.push(node),
            Who::Newcomer(at) => ready.newcomers.push(at),
        }
    }
    Ok(ready)
}

/// Whose descriptor it is.
#[derive(Clone, Copy)]
enum Who {
    Listener(usize),
    Client(usize),
    Newcomer(usize),
}

/// Takes in some who have connected; whether a client said something.
fn accept(
    listeners: &Listeners,
    node: usize,
    clients: &mut [Option<Client>],
    chips: &mut Chips,
    callers: &mut Callers,
) -> bool {
    let mut said = false;
    let Some((listener, path)) = listeners.sockets.get(node) else {
        return said;
    };
    for _ in 0..AT_ONCE {
        let Some(stream) = callers.accept(listener) else {
            break;
        };
        // The one before may have hung up and not been heard of since.
        said |= turn(clients, node, chips);
        if clients[node].is_some() {
            tracing::warn!("{} has a client; another was turned away", path.display());
            continue;
        }
        if let Ok(connection) = Connection::new(stream) {
            callers.push(node, connection);
        }
    }
    said
}

/// Makes a client of a connection whose other end keeps to the protocol; whether there was none before.
fn admit(
    listeners: &Listeners,
    agreed: Agreed,
    clients: &mut [Option<Client>],
    chips: &mut Chips,
) -> bool {
    let Agreed {
        node,
        connection,
        endpoint,
    } = agreed;
    turn(clients, node, chips);
    if clients[node].is_some() {
        if let Some((_, path)) = listeners.sockets.get(node) {
            tracing::warn!("{} has a client; another was turned away", path.display());
        }
        return false;
    }
    clients[node] = Some(Client {
        connection,
        endpoint,
        held: None,
    });
    true
}

/// Hears what one client has to say; whether it said something.
fn turn(clients: &mut [Option<Client>], node: usize, chips: &mut Chips) -> bool {
    let mut said = false;
    for _ in 0..TURN {
        let alone = clients.iter().flatten().count() == 1;
        let Some(client) = &mut clients[node] else {
            break;
        };
        if client.connection.flush().is_err() {
            leave(clients, node, chips);
            break;
        }
        // A client that does not hear its replies is not heard.
        if client.connection.is_backed_up() {
            break;
        }
        let outcome = match client.connection.receive() {
            Ok(Received::Message(message)) => {
                let own = NodeId(node as u16);
                chips.touched(own);
                client.held = None;
                if Endpoint::waits(&message) {
                    chips.advance(TOUCH);
                }
                let outcome = client.endpoint.handle(chips, message, alone);
                chips.listen(own, client.endpoint.listens());
                outcome
            }
            Ok(Received::Partial) => break,
            Ok(Received::Closed) => Outcome::Close,
            Err(error) => {
                tracing::warn!("client of node {node}: {error}");
                Outcome::Close
            }
        };
        said = true;
        match outcome {
            Outcome::Close => {
                leave(clients, node, chips);
                break;
            }
            Outcome::Quiet => {}
            Outcome::Reply(bytes) => {
                // What the reply says has been signalled before it is said.
                signal(clients, chips);
                if let Some(client) = &mut clients[node] {
                    client.connection.queue(&bytes);
                }
            }
        }
    }
    if let Some(client) = &mut clients[node]
        && client.connection.flush().is_err()
    {
        leave(clients, node, chips);
    }
    said
}

fn leave(clients: &mut [Option<Client>], node: usize, chips: &mut Chips) {
    clients[node] = None;
    chips.listen(NodeId(node as u16), false);
    if let Some(map) = chips.memory(NodeId(node as u16)) {
        map.clear();
    }
}

fn signal(clients: &[Option<Client>], chips: &mut Chips) {
    for (node, client) in clients.iter().enumerate() {
        let count = chips.take_interrupts(NodeId(node as u16));
        if let Some(client) = client {
            client.endpoint.signal(count);
        }
    }
}

#[cfg(test)]
mod tests;
