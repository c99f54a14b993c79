//! Descriptors of regions, handed to peers that cannot open them by the owner's number.
//!
//! A peer opens a region's file as `/proc/PID/fd/N`. Where it may not, or that names nobody, as in a PID or user namespace
//! of its own, the owner hands the descriptor over: to those whose own probe of a neighbour failed at the start, or who are
//! in another PID namespace.
//!
//! ```text
//!   owner                                       initiator
//!   a descriptor over a region is linked        ·
//!   send the file to the inboxes of those peers ·
//!   write the table (onesided.rs)               copy the table: an inode that is not known
//!                                               take out of the inbox what is there, map the file of that inode
//! ```
//!
//! # Invariants
//!
//! * A region is handed over only while a descriptor shows it. So a peer can map what it may reach, and nothing else.
//! * A file is sent before the table that names it is written: whoever reads the table finds it in its inbox.
//! * Nobody waits: what finds no room in an inbox, or too many descriptors on their way, is not sent, and operations on
//!   that region go as messages.
//! * What a peer sends is believed as little as its table: a file counts if it has the inode that the table says, and is
//!   mapped if it has its length and is sealed.

use super::door::receive;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Messages that are taken out at once. A peer that sends without end costs that much.
const MOST: usize = 4096;

/// Where a rank gets descriptors.
#[derive(Debug)]
pub struct Inbox {
    read: OwnedFd,
    write: OwnedFd,
}

impl Inbox {
    /// An inbox without messages.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Self { read, write })
    }

    /// The end that peers have.
    pub fn line(&self) -> io::Result<OwnedFd> {
        self.write.try_clone()
    }
}

/// What one rank hands over and is handed.
#[derive(Debug)]
pub(super) struct Handing {
    rank: usize,
    inbox: Option<OwnedFd>,
    /// By number: the inboxes of peers that need it.
    lines: Vec<Option<OwnedFd>>,
    /// Who has which file, by its inode.
    sent: BTreeSet<(usize, u64)>,
}

impl Handing {
    /// `lines`: everybody's inboxes, by number; `needs`: whether a rank is handed descriptors, and `gets`: whether this one
    /// is. `None`: nobody is.
    pub(super) fn new(
        rank: usize,
        (inbox, lines): (Inbox, Vec<OwnedFd>),
        needs: impl Fn(usize) -> bool,
        gets: bool,
    ) -> Option<Self> {
        let lines = lines.into_iter().enumerate();
        let lines: Vec<_> = lines.map(|(r, line)| needs(r).then_some(line)).collect();
        let some = gets || lines.iter().any(Option::is_some);
        some.then(|| Self {
            rank,
            inbox: gets.then_some(inbox.read),
            lines,
            sent: BTreeSet::new(),
        })
    }

    /// The files of all that this rank is about to show.
    pub(super) fn show(&mut self, files: &[(u64, Arc<OwnedFd>)]) {
        (self.sent).retain(|(_, inode)| files.iter().any(|(shown, _)| shown == inode));
        for (peer, line) in self.lines.iter().enumerate() {
            let Some(line) = line else { continue };
            for (inode, file) in files {
                if self.sent.contains(&(peer, *inode)) {
                    continue;
                }
                match send(line, self.rank, file) {
                    Ok(()) => drop(self.sent.insert((peer, *inode))),
                    Err(error) => tracing::debug!(peer, %error, "a region is not handed over"),
                }
            }
        }
    }

    /// Takes what has come, with the ranks that the senders say they are.
    #[cold]
    pub(super) fn take(&self, mut each: impl FnMut(usize, OwnedFd)) {
        let Some(inbox) = &self.inbox else { return };
        for _ in 0..MOST {
            let mut from = [0; 5];
            match receive(inbox, &mut from) {
                Ok((0, _)) | Err(_) => return,
                Ok((4, files)) => {
                    let [from @ .., _] = from;
                    files
                        .into_iter()
                        .for_each(|fd| each(u32::from_le_bytes(from) as usize, fd));
                }
                Ok(_) => {}
            }
        }
    }
}

fn send(line: &OwnedFd, rank: usize, file: &OwnedFd) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    with.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let rank = (rank as u32).to_le_bytes();
    sendmsg(line, &[IoSlice::new(&rank)], &mut with, flags).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::shared_file::create;

    fn files(count: usize) -> Vec<(u64, Arc<OwnedFd>)> {
        let files = (0..count).map(|_| create("test", 4096).unwrap());
        files
            .map(|fd| (rustix::fs::fstat(&fd).unwrap().st_ino, Arc::new(fd)))
            .collect()
    }

    fn taken(by: &Handing) -> Vec<(usize, u64)> {
        let mut taken = Vec::new();
        by.take(|from, fd| taken.push((from, rustix::fs::fstat(&fd).unwrap().st_ino)));
        taken
    }

    /// The handing of ranks of a job, of which only those that need it get something.
    fn ranks(needs: &[bool]) -> Vec<Option<Handing>> {
        let inboxes: Vec<Inbox> = needs.iter().map(|_| Inbox::new().unwrap()).collect();
        let lines = || inboxes.iter().map(|i| i.line().unwrap()).collect();
        let lines: Vec<Vec<OwnedFd>> = needs.iter().map(|_| lines()).collect();
        let all = (0..).zip(inboxes.into_iter().zip(lines));
        all.map(|(rank, both)| {
            let others = |r: usize| r != rank && needs[r];
            Handing::new(rank, both, others, needs[rank])
        })
        .collect()
    }

    #[test]
    fn who_needs_a_file_gets_it_once_while_it_is_shown() {
        let mut ranks = ranks(&[false, true, false]);
        let files = files(2);
        let mut owner = ranks[2].take().unwrap();
        let got = ranks[1].take().unwrap();
        owner.show(&files[..1]);
        owner.show(&files);
        assert_eq!(taken(&got), [(2, files[0].0), (2, files[1].0)]);
        owner.show(&files[1..]);
        assert!(taken(&got).is_empty());
        owner.show(&files);
        assert_eq!(taken(&got), [(2, files[0].0)], "shown again");
    }

    #[test]
    fn where_nobody_needs_it_nothing_is_kept() {
        assert!(ranks(&[false, false]).iter().all(Option::is_none));
    }

    /// A peer that takes nothing out of its inbox holds nobody up.
    #[test]
    fn a_deaf_peer_holds_nobody_up() {
        let mut ranks = ranks(&[false, true]);
        let mut owner = ranks[0].take().unwrap();
        let some = files(4);
        for _ in 0..2000 {
            owner.show(&[]);
            owner.show(&some);
        }
        let deaf = ranks[1].take().unwrap();
        let taken = taken(&deaf).len();
        assert!((4..8000).contains(&taken), "{taken}");
        owner.show(&[]);
        owner.show(&some);
        assert_eq!(self::taken(&deaf).len(), 4, "there is room again");
    }

    #[test]
    fn what_strangers_say_is_passed_over() {
        let inbox = Inbox::new().unwrap();
        let line = inbox.line().unwrap();
        let got = Handing::new(0, (inbox, Vec::new()), |_| false, true).unwrap();
        for words in [&b"x"[..], b"too long", b"four"] {
            rustix::net::send(&line, words, SendFlags::NOSIGNAL).unwrap();
        }
        assert!(taken(&got).is_empty(), "no descriptors");
    }
}
