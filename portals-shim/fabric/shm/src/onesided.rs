//! Descriptors that peers reach by themselves: the owner shows them in its block, and an initiator copies.
//!
//! ```text
//!  initiator   generation known? ─no─► copy the table        owner   generation odd
//!              own busy := 1                                          fence
//!              fence                                                  wait until nobody is busy
//!              generation as known? ─no─► busy := 0, again            write the table
//!              copy the bytes                                         generation even
//!              busy := 0
//! ```
//!
//! # Invariants
//!
//! * After a change of the table no copy by the old one is under way, and none begins. Between the two writes and the
//!   two reads stands a fence on each side, so the owner sees `busy` or the initiator sees the new generation.
//! * An initiator that dies while it copies is not waited for.
//! * A copy goes to a mapping of the initiator's own, which exists whatever the owner does, or through the kernel,
//!   which checks it; a table that lies costs nobody but its owner.

use super::attach::{self, CopyError, Way};
use super::layout::{ADVERTS, Block};
use super::map::{Cursor, Map};
use super::patience::{Patience, Verdict};
use super::{Core, PATIENCE};
use fabric_api::call::Target;
use fabric_api::region::{self, Share};
use host::awake::Awake;
use portals_core::{
    Ack, Advert, Body, Error, Header, Incoming, MdHandle, Ni, NiFail, ProcessId, Segment, Transmit,
};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What this rank shows.
#[derive(Debug, Default)]
pub(super) struct Published {
    lists: BTreeMap<u32, Vec<Advert>>,
    generation: u64,
    /// Initiators may still copy by the table before this one.
    unconfirmed: bool,
}

impl Published {
    fn holds(&self, md: MdHandle) -> bool {
        self.lists.values().flatten().any(|a| a.md == md)
    }
}

/// A descriptor of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    portal: u32,
    match_id: ProcessId,
    match_bits: u64,
    ignore_bits: u64,
    memory: Segment,
    ac_mask: u32,
    put: bool,
    get: bool,
    ack: bool,
    /// Where to map it from.
    share: Option<Share>,
}

impl Remote {
    fn of(a: &Advert) -> Self {
        Self {
            portal: a.pt_index,
            match_id: a.match_id,
            match_bits: a.match_bits,
            ignore_bits: a.ignore_bits,
            memory: a.region,
            ac_mask: a.ac_mask,
            put: a.put,
            get: a.get,
            ack: a.ack,
            share: region::share_of(a.region),
        }
    }

    fn write(&self, map: &Map, block: Block, index: usize) {
        let share = self.share.unwrap_or(Share {
            fd: -1,
            inode: 0,
            len: 0,
            offset: 0,
        });
        let rights = u64::from(self.put) | u64::from(self.get) << 1 | u64::from(self.ack) << 2;
        let words = [
            u64::from(self.portal) | rights << 32,
            u64::from(self.match_id.nid) | u64::from(self.match_id.pid) << 32,
            self.match_bits,
            self.ignore_bits,
            self.memory.addr,
            self.memory.len,
            u64::from(self.ac_mask) | u64::from(share.fd.cast_unsigned()) << 32,
            share.inode,
            share.len,
            share.offset,
        ];
        for (i, word) in words.into_iter().enumerate() {
            block.advert(map, index, i).store(word, Ordering::Relaxed);
        }
    }

    fn read(map: &Map, block: Block, index: usize) -> Self {
        let w: [u64; 10] =
            std::array::from_fn(|i| block.advert(map, index, i).load(Ordering::Relaxed));
        let (low, high) = (|v: u64| v as u32, |v: u64| (v >> 32) as u32);
        let rights = high(w[0]);
        let fd = high(w[6]).cast_signed();
        Self {
            portal: low(w[0]),
            match_id: ProcessId::new(low(w[1]), high(w[1])),
            match_bits: w[2],
            ignore_bits: w[3],
            memory: Segment {
                addr: w[4],
                len: w[5],
            },
            ac_mask: low(w[6]),
            put: rights & 1 != 0,
            get: rights & 2 != 0,
            ack: rights & 4 != 0,
            share: (fd >= 0).then_some(Share {
                fd,
                inode: w[7],
                len: w[8],
                offset: w[9],
            }),
        }
    }

    /// Rules 3 to 5 of address translation, as the owner would apply them, and whether the bytes are there.
    #[inline]
    fn takes(&self, h: &Header, put: bool, ac_index: u32, offset: u64, length: u64) -> bool {
        self.admits(h.pt_index, h.source, ac_index, h.match_bits)
            && (if put { self.put } else { self.get })
            && offset
                .checked_add(length)
                .is_some_and(|end| end <= self.memory.len)
    }

    fn admits(&self, portal: u32, initiator: ProcessId, ac_index: u32, bits: u64) -> bool {
        self.portal == portal
            && ac_index < 32
            && self.ac_mask & (1 << ac_index) != 0
            && self.match_id.admits(initiator)
            && (self.match_bits ^ bits) & !self.ignore_bits == 0
    }
}

/// A file that a peer has handed over.
#[derive(Debug)]
struct Handed {
    inode: u64,
    file: OwnedFd,
    /// A copy of the table has named it.
    named: bool,
}

/// What is known of a peer's table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Of the copy; 0 before there is one, as long as the owner shows nothing.
    generation: u64,
    list: Vec<Remote>,
    /// Mappings by inode; none where the file could not be mapped.
    maps: Vec<(u64, Option<Arc<Map>>)>,
    /// Files that the owner has handed over.
    handed: Vec<Handed>,
}

impl Table {
    /// Copies the table if it has changed. `false`: it is changing now.
    #[inline]
    fn refresh(&mut self, map: &Map, block: Block) -> bool {
        let generation = block.generation(map).load(Ordering::Acquire);
        generation == self.generation || self.copy(map, block, generation)
    }

    /// Whether the owner may show a descriptor that would take a put, as far as this process knows.
    #[inline]
    pub(super) fn may_take(&mut self, map: &Map, block: Block, put: &Header) -> bool {
        let Body::Put {
            length,
            remote_offset,
            ac_index,
            ..
        } = put.body
        else {
            return true;
        };
        self.refresh(map, block)
            && length > 0
            && (self.list.iter()).any(|r| r.takes(put, true, ac_index, remote_offset, length))
    }

    #[cold]
    fn copy(&mut self, map: &Map, block: Block, generation: u64) -> bool {
        if !generation.is_multiple_of(2) {
            return false;
        }
        let count = block.count(map).load(Ordering::Relaxed);
        let count = usize::try_from(count).unwrap_or(ADVERTS).min(ADVERTS);
        let list: Vec<Remote> = (0..count).map(|i| Remote::read(map, block, i)).collect();
        fence(Ordering::Acquire);
        if block.generation(map).load(Ordering::Relaxed) != generation {
            return false;
        }
        self.maps.retain(|(inode, _)| {
            list.iter()
                .any(|r| r.share.is_some_and(|s| s.inode == *inode))
        });
        // One that no copy has named yet is of a newer table.
        self.handed.retain_mut(|h| {
            let named = (list.iter()).any(|r| r.share.is_some_and(|s| s.inode == h.inode));
            let over = h.named && !named;
            h.named |= named;
            !over
        });
        self.list = list;
        self.generation = generation;
        true
    }

    /// Whether nothing was tried yet to map a file.
    #[inline]
    fn is_new(&self, inode: u64) -> bool {
        self.maps.iter().all(|(known, _)| *known != inode)
    }

    /// The owner, by what it says, has handed over a file.
    fn hand(&mut self, file: OwnedFd) {
        let Ok(stat) = rustix::fs::fstat(&file) else {
            return;
        };
        // As many as a table has names for.
        if self.handed.len() < ADVERTS {
            self.handed.push(Handed {
                inode: stat.st_ino,
                file,
                named: false,
            });
        }
    }

    /// The file of a region, and makes sure that it is that one.
    fn open(&self, pid: Option<i32>, share: &Share) -> io::Result<OwnedFd> {
        match self.handed.iter().find(|h| h.inode == share.inode) {
            Some(handed) => handed.file.try_clone(),
            None => open_share(pid, share),
        }
    }

    fn map(&self, pid: Option<i32>, share: &Share) -> io::Result<Map> {
        let len = usize::try_from(share.len).map_err(io::Error::other)?;
        Map::new(self.open(pid, share)?, len)
    }

    /// The mapping that holds a descriptor.
    #[inline]
    fn mapping(&mut self, pid: Option<i32>, share: &Share) -> Option<&Arc<Map>> {
        let at = match self.maps.iter().position(|(i, _)| *i == share.inode) {
            Some(at) => at,
            None => {
                let made = self.map(pid, share);
                if let Err(error) = &made {
                    tracing::debug!(%error, "a peer's memory cannot be mapped");
                }
                self.maps.push((share.inode, made.ok().map(Arc::new)));
                self.maps.len() - 1
            }
        };
        self.maps[at].1.as_ref()
    }
}

/// Opens the file of a peer's region, and makes sure that it is that one.
fn open_share(pid: Option<i32>, share: &Share) -> io::Result<OwnedFd> {
    let pid = pid.ok_or(io::ErrorKind::Unsupported)?;
    let folder = host::procfs::folder(pid).ok_or(io::ErrorKind::Unsupported)?;
    let path = folder.join(format!("fd/{}", share.fd));
    let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    if rustix::fs::fstat(&fd)?.st_ino != share.inode {
        return Err(io::Error::other("the region is gone"));
    }
    Ok(fd)
}

impl Core {
    /// Shows changed portals. Returns once no peer copies by the old table, however long one takes.
    pub(super) fn publish(&mut self, map: &Map, ni: &Ni, dirty: u64) {
        if dirty == 0 || self.closed {
            return;
        }
        let last = ni.config().limits.max_pt_index.clamp(0, 63) as u32;
        let mut changed = false;
        for portal in (0..=last).filter(|p| dirty & (1 << p) != 0) {
            let mut list = ni.adverts(portal, ADVERTS);
            list.retain(|a| a.region.len > 0 && !a.events);
            let old = self.published.lists.get(&portal);
            if old.map_or(!list.is_empty(), |old| *old != list) {
                changed = true;
                self.published.lists.insert(portal, list);
            }
        }
        if changed && let Err(rank) = self.show(map, self.patient()) {
            let why = "has been copying for too long, by what it says";
            let first = self.peers[rank].nonsense == 0;
            self.peers[rank].nonsense += 1;
            self.on_fault.found((self.rank, rank), &why, first);
        }
    }

    /// Takes a descriptor back; [`Error::MdInUse`] when a living peer does not leave it in time.
    pub(super) fn withdraw(&mut self, map: &Map, md: MdHandle) -> Result<(), Error> {
        if self.published.holds(md) {
            for list in self.published.lists.values_mut() {
                list.retain(|a| a.md != md);
            }
        } else if !self.published.unconfirmed {
            return Ok(());
        }
        let mut left = Awake::new(PATIENCE);
        let shown = self.show(map, move |_, _| left.is_over());
        shown.map_err(|_| Error::MdInUse)
    }

    /// Takes everything back.
    pub(super) fn withdraw_all(&mut self, map: &Map) {
        if self.published.unconfirmed || self.published.lists.values().any(|l| !l.is_empty()) {
            self.published.lists.clear();
            let _ = self.show(map, self.patient());
        }
    }

    /// Waits for peers as [`Patience`] does.
    fn patient(&self) -> impl FnMut(usize, Option<i32>) -> bool + use<> {
        let (all, own, on_fault) = (self.patience, self.rank, self.on_fault);
        let mut of: Option<(usize, Patience)> = None;
        move |rank, pid| {
            let (_, patience) = match &mut of {
                Some(of) if of.0 == rank => of,
                other => other.insert((rank, Patience::new(all))),
            };
            match patience.look(pid) {
                Verdict::Wait => false,
                Verdict::Say(why) => {
                    on_fault.waits((own, rank), &why);
                    false
                }
                Verdict::GiveUp => true,
            }
        }
    }

    /// Writes the table of what [`Published`] lists; see the picture. Fails with the peer that does not leave the old one,
    /// is not proven to be dead, and `is_late`, which is asked by its number and that of its process.
    fn show(
        &mut self,
        map: &Map,
        mut is_late: impl FnMut(usize, Option<i32>) -> bool,
    ) -> Result<(), usize> {
        if let Some(handing) = &mut self.handing {
            let shown = self.published.lists.values().flatten().take(ADVERTS);
            let mut files: Vec<_> = shown.filter_map(|a| region::file_of(a.region)).collect();
            files.dedup_by_key(|(inode, _)| *inode);
            handing.show(&files);
        }
        let block = self.layout.block(self.rank);
        let generation = self.published.generation | 1;
        self.published.generation = generation;
        self.published.unconfirmed = true;
        block.generation(map).store(generation, Ordering::Release);
        fence(Ordering::SeqCst);
        for rank in 0..self.peers.len() {
            let busy = self.layout.block(rank).busy(map, self.rank);
            let mut spins = 0u32;
            while rank != self.rank && busy.load(Ordering::Acquire) != 0 {
                spins += 1;
                std::thread::yield_now();
                if spins.is_multiple_of(1024) {
                    if self.peers[rank].is_dead() {
                        break;
                    } else if is_late(rank, self.peers[rank].pid) {
                        return Err(rank);
                    }
                }
            }
        }
        let mut count = 0;
        for a in self.published.lists.values().flatten().take(ADVERTS) {
            Remote::of(a).write(map, block, count);
            count += 1;
        }
        block.count(map).store(count as u64, Ordering::Relaxed);
        self.published.generation = generation + 1;
        self.published.unconfirmed = false;
        block
            .generation(map)
            .store(generation + 1, Ordering::Release);
        Ok(())
    }

    /// Serves a put or get by copying, if the peer shows the descriptor that would take it and nothing of ours is
    /// under way there. `false`: its owner must.
    #[inline]
    pub(super) fn one_sided(&mut self, map: &Map, ni: &mut Ni, rank: usize, tx: &Transmit) -> bool {
        let h = &tx.header;
        let (length, offset, ac_index, put) = match h.body {
            Body::Put {
                length,
                remote_offset,
                ac_index,
                ..
            } => (length, remote_offset, ac_index, true),
            Body::Get {
                length,
                remote_offset,
                ac_index,
                ..
            } => (length, remote_offset, ac_index, false),
            _ => return false,
        };
        let block = self.layout.block(rank);
        let peer = &mut self.peers[rank];
        let ring = peer.to;
        if !peer.table.refresh(map, block) || peer.table.list.is_empty() || length == 0 {
            return false;
        }
        let generation = peer.table.generation;
        let takes = |r: &&Remote| r.takes(h, put, ac_index, offset, length);
        let Some(found) = peer.table.list.iter().find(takes).copied() else {
            return false;
        };
        // The access control masks speak of the owner's own user and job. Whether all is settled is looked at last: it
        // takes a line of memory that the peer writes.
        if peer.who != self.who || !peer.is_settled(map, ring) {
            return false;
        }
        let (pid, there) = (peer.pid, peer.there);
        if found.share.is_some_and(|s| peer.table.is_new(s.inode)) {
            self.take_files();
        }
        let peer = &mut self.peers[rank];
        let mapping = found
            .share
            .as_ref()
            .and_then(|s| peer.table.mapping(pid, s))
            .filter(|m| {
                let start = found.share.map_or(u64::MAX, |s| s.offset);
                let end = start.checked_add(found.memory.len);
                end.is_some_and(|end| end <= m.len() as u64)
            });
        if mapping.is_none() && there.is_none() {
            return false;
        }
        let busy = self.layout.block(self.rank).busy(map, rank);
        busy.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if block.generation(map).load(Ordering::Acquire) != generation {
            busy.store(0, Ordering::Release);
            return false;
        }
        let local = if put { &tx.payload } else { &tx.landing };
        let copied = match (mapping, there) {
            (Some(m), _) => {
                // Checked above: offset and length are within the descriptor, and that within the mapping.
                let start = found.share.map_or(0, |s| s.offset) + offset;
                let mut cursor = Cursor::new(local, 0);
                if put {
                    m.gather(start as usize, &mut cursor, length as usize);
                } else {
                    m.scatter(start as usize, &mut cursor, length as usize);
                }
                Ok(())
            }
            (None, None) => Err(CopyError::Refused(io::ErrorKind::Unsupported.into())),
            (None, Some(there)) => {
                let remote = [Segment {
                    addr: found.memory.addr.wrapping_add(offset),
                    len: length,
                }];
                let way = if put { Way::Write } else { Way::Read };
                attach::copy(way, &there, local, &remote, length)
            }
        };
        busy.store(0, Ordering::Release);
        self.peers[rank].believe(&copied);
        let fail = match copied {
            Ok(()) => NiFail::OK,
            Err(error @ (CopyError::Memory(_) | CopyError::Own(_) | CopyError::Closed)) => {
                tracing::error!(%error, peer = rank, "the operation fails");
                attach::failure(&error)
            }
            // As a message it takes another way, or finds nobody.
            Err(CopyError::Refused(_) | CopyError::Stranger(_)) => return false,
        };
        self.counters.paths.one_sided += 1;
        complete(ni, tx, fail, found.ack);
        true
    }

    /// Takes the files that peers have handed over.
    #[cold]
    fn take_files(&mut self) {
        if let Some(handing) = &self.handing {
            let peers = &mut self.peers;
            handing.take(|rank, file| {
                if let Some(peer) = peers.get_mut(rank) {
                    peer.table.hand(file);
                }
            });
        }
    }

    /// Where a peer's memory can be mapped from that a message to `to` would reach: the file, its length, and the
    /// place of the descriptor in it.
    pub(super) fn window(&mut self, map: &Map, to: &Target) -> Option<(OwnedFd, Share, u64)> {
        let rank = self.rank_of(to.process)?;
        self.take_files();
        let block = self.layout.block(rank);
        let peer = &mut self.peers[rank];
        if peer.who != self.who || !peer.table.refresh(map, block) {
            return None;
        }
        let own = self.members.ids().get(self.rank)?;
        let found =
            peer.table.list.iter().find(|r| {
                r.admits(to.pt_index, *own, to.ac_index, to.match_bits) && r.put && r.get
            })?;
        let share = found.share?;
        let fd = peer.table.open(peer.pid, &share).ok()?;
        Some((fd, share, found.memory.len))
    }
}

/// The events of an operation that was served by copying; `acks`: the descriptor acknowledges puts.
fn complete(ni: &mut Ni, tx: &Transmit, fail: NiFail, acks: bool) {
    let h = &tx.header;
    if let Some(op) = tx.op {
        let sent = if matches!(h.body, Body::Get { .. }) {
            NiFail::OK
        } else {
            fail
        };
        ni.send_end(op, sent);
    }
    let answer = |body| Header {
        target: h.source,
        source: h.target,
        body,
        ..*h
    };
    match h.body {
        Body::Put { .. } if acks => match Ack::of_all(&h.body) {
            Some(ack) if fail == NiFail::OK => {
                ni.handle_header(&answer(Body::Ack(ack)));
            }
            Some(_) => ni.ack_lost(h, fail),
            None => {}
        },
        Body::Get {
            length,
            reply_md,
            reply_offset,
            ..
        } => {
            let reply = answer(Body::Reply {
                md: reply_md,
                local_offset: reply_offset,
                rlength: length,
                mlength: length,
            });
            if let Incoming::Deposit(d) = ni.handle_header(&reply) {
                ni.deposit_end(d.op, fail);
            }
        }
        _ => {}
    }
}
