//! Which descriptors peers may reach with their NIC alone.
//!
//! The owner tells every peer the list of a portal whenever it changes; a peer answers once it uses
//! the new list only. Its NIC may still have operations under way that it posted before: they are
//! ordered before its answer on the same connection, so that after the answer none is left.
//!
//! # Invariants
//!
//! * What a peer believes of a portal is a list that was true at some moment between the last
//!   confirmed publication and now.
//! * A descriptor that leaves the list is gone from every peer's before the call that removed it
//!   returns ([`Verbs::withdraw`], [`Verbs::publish`]).
//! * The registration of an advertised descriptor covers exactly its memory and allows exactly its
//!   operations.

mod published;

use super::frame::{ADVERTS_PER_FRAME, Kind, RemoteMd, SLOT};
use super::memory::Use;
use super::peer::Peer;
use crate::verbs::{Beside, PATIENCE, Record, Verbs, Work};
use portals_core::{
    Advert, Error, MdHandle, MdOptions, Ni, ProcessId, Segment, THRESHOLD_INFINITE,
};
pub(super) use published::Published;
use published::Withdrawal;
use std::collections::BTreeSet;
use std::time::Duration;
use verbs_backend::Remote;

/// How long a confirmation may take before its peer is asked to look, and at most between two times that it is.
const SOON: Duration = Duration::from_millis(2);
const LATER: Duration = Duration::from_millis(64);

/// What of a list is shown to a peer that is told of descriptors with events, or not.
fn shown(list: &[Advert], writes: bool) -> impl Iterator<Item = &Advert> {
    list.iter().filter(move |a| writes || !a.events)
}

impl Verbs {
    /// Tells peers of changed portals. When something was taken back, waits until they have
    /// confirmed it.
    pub(super) fn publish_portals(&mut self, ni: &mut Ni, dirty: u64, beside: Beside<'_>) {
        if dirty == 0 || self.closed {
            return;
        }
        self.due.prune = true;
        let last = ni.config().limits.max_pt_index.clamp(0, 63) as u32;
        for portal in (0..=last).filter(|p| dirty & (1 << p) != 0) {
            self.show(ni, portal);
        }
        // The call that changed the list returns once the change holds for every peer, however
        // long one computes; a peer whose connection fails does not count any more.
        while !self.confirmed(ni, PATIENCE, beside, |v| v.published.waiting.is_empty()) {}
    }

    /// Makes progress until `done` by confirmations, for at most `limit`; `false` when the limit came first.
    fn confirmed(
        &mut self,
        ni: &mut Ni,
        limit: Duration,
        beside: Beside<'_>,
        done: impl Fn(&mut Self) -> bool,
    ) -> bool {
        let (mut left, mut turn) = (limit, SOON);
        loop {
            if self.progress_until(ni, turn.min(left), beside, &done) {
                return true;
            }
            left = left.saturating_sub(turn);
            if left.is_zero() {
                return false;
            }
            self.ask_to_look(self.published.awaited());
            turn = (turn * 2).min(LATER);
        }
    }

    /// Tells peers of a portal as it is.
    pub(super) fn show(&mut self, ni: &Ni, portal: u32) {
        let mut list = ni.adverts(portal, ADVERTS_PER_FRAME);
        let leaving = self.published.leaving;
        list.retain(|a| a.region.len > 0 && Some(a.md) != leaving);
        self.tell(ni, portal, list);
    }

    /// Takes a descriptor back from every peer, and waits for this process's own operations on it.
    /// [`Error::MdInUse`] when a peer does not answer in time.
    pub(crate) fn withdraw_beside(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        beside: Beside<'_>,
    ) -> Result<(), Error> {
        let reading = |v: &mut Self| {
            let into = |r: &Record| matches!(r.work, Work::Read(due) if due.md == md);
            !v.offloaded.reads_into(md) && !v.records.iter().any(|(_, r)| into(r))
        };
        if !self.progress_until(ni, PATIENCE, beside, reading) {
            return Err(Error::MdInUse);
        }
        // Its owner has made sure that no peer uses it.
        if let Ok(s) = ni.md_query(md)
            && self.registry.unpin(md, s.start)
        {
            return Ok(());
        }
        if let Some(portal) = self.published.holds(md) {
            let mut list = self
                .published
                .lists
                .get(&portal)
                .cloned()
                .unwrap_or_default();
            list.retain(|a| a.md != md);
            self.tell(ni, portal, list);
        }
        let settled = |v: &mut Self| !v.published.is_unconfirmed(md);
        // Long puts that come in frames meanwhile would have it shown (`proto/rma_write_send.rs`).
        self.published.leaving = Some(md);
        let confirmed = self.confirmed(ni, PATIENCE, beside, settled);
        self.published.leaving = None;
        if !confirmed {
            return Err(Error::MdInUse);
        }
        self.registry.retire(md);
        self.due.prune = true;
        Ok(())
    }

    /// Ends registrations that no descriptor has and no operation uses.
    pub(super) fn prune(&mut self, ni: &Ni) {
        let alive = |md| ni.md_query(md).is_ok();
        self.registry.prune(alive, |md| ni.is_md_in_use(md));
    }

    /// The key of a descriptor that stays pinned until its owner unlinks it.
    pub(super) fn pinned_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        let s = ni.md_query(md)?;
        let in_one_piece = !s.options.contains(MdOptions::IOVEC);
        let stays = s.threshold == THRESHOLD_INFINITE;
        if !(s.options.contains(MdOptions::PINNED) && in_one_piece && stays) {
            return Err(Error::MdIllegal);
        }
        let region = Segment {
            addr: s.start,
            len: s.length,
        };
        let open = s.options.intersects(MdOptions::OP_PUT | MdOptions::OP_GET);
        self.registry.pin(md, region, open).map_err(|error| {
            tracing::debug!(%error, "a descriptor is not pinned");
            Error::NoSpace
        })
    }

    /// Publishes a list. What it takes back is remembered until every peer has confirmed it.
    fn tell(&mut self, ni: &Ni, portal: u32, mut list: Vec<Advert>) {
        list.truncate(ADVERTS_PER_FRAME);
        let old = self
            .published
            .lists
            .get(&portal)
            .cloned()
            .unwrap_or_default();
        if old == list {
            return;
        }
        let all = self.descriptions(ni, &list);
        let token = self.published.next_token;
        self.published.next_token = token.wrapping_add(1);
        let mut asked = BTreeSet::new();
        for rank in 0..self.peers.len() {
            let same = |p: &Peer| {
                let seen = |list| shown(list, p.received.notifies());
                seen(&old).eq(seen(&list))
            };
            // Others learn the list when they connect.
            if self
                .peer(rank)
                .is_some_and(|p| p.sq.is_connected() && !same(p))
            {
                self.advertise(rank, portal, token, &all);
                asked.insert(rank);
            }
        }
        let mds: Vec<MdHandle> = old
            .iter()
            .filter(|a| !list.contains(a))
            .map(|a| a.md)
            .collect();
        self.published.lists.insert(portal, list);
        if !mds.is_empty() && !asked.is_empty() {
            let withdrawal = Withdrawal { mds, peers: asked };
            self.published.waiting.insert(token, withdrawal);
        }
    }

    fn descriptions(&mut self, ni: &Ni, list: &[Advert]) -> Vec<(ProcessId, RemoteMd)> {
        list.iter()
            .filter_map(|a| Some((a.match_id, self.describe(ni, a)?)))
            .collect()
    }

    /// Sends a peer what it may reach of a portal.
    fn advertise(&mut self, rank: usize, portal: u32, token: u32, all: &[(ProcessId, RemoteMd)]) {
        let own = self.conn.who;
        let pool = self.send_pool.clone();
        let Some(peer) = self.peer(rank) else { return };
        // The access control masks speak of this process's own user and job; what another one may do is decided
        // for each of its messages.
        let akin = peer.session.who == Some(own);
        let its: Vec<RemoteMd> = all
            .iter()
            .filter(|(who, md)| {
                akin && who.admits(peer.id) && (md.events.is_none() || peer.received.notifies())
            })
            .map(|(_, md)| *md)
            .collect();
        peer.sq.send(&pool, Kind::Advertise, false, SLOT, |w| {
            w.token(token);
            w.adverts(portal, &its);
        });
    }

    /// Tells a new peer of every portal; of those that are empty too, since it may have heard otherwise.
    pub(super) fn advertise_all(&mut self, ni: &Ni, rank: usize) {
        let lists: Vec<(u32, Vec<Advert>)> = self
            .published
            .lists
            .iter()
            .map(|(portal, list)| (*portal, list.clone()))
            .collect();
        for (portal, list) in lists {
            let all = self.descriptions(ni, &list);
            let token = self.published.next_token;
            self.published.next_token = token.wrapping_add(1);
            self.advertise(rank, portal, token, &all);
        }
    }

    /// Registers an advertised descriptor and says how to reach it.
    fn describe(&mut self, ni: &Ni, a: &Advert) -> Option<RemoteMd> {
        let purpose = match (a.put, a.get) {
            (true, true) => Use::Open,
            (true, false) => Use::OpenPut,
            _ => Use::OpenGet,
        };
        // Without it, puts to one with events come in frames.
        let (rkey, _) = match a.events {
            true => self.keys(ni, a.md, a.region, purpose).ok(),
            false => self.registered(ni, a.md, a.region, purpose),
        }?;
        Some(RemoteMd {
            match_id: a.match_id,
            match_bits: a.match_bits,
            ignore_bits: a.ignore_bits,
            start: Remote {
                address: a.region.addr,
                rkey,
            },
            length: a.region.len,
            ac_mask: a.ac_mask,
            put: a.put,
            get: a.get,
            ack: a.ack,
            events: a.events.then_some(a.md),
        })
    }
}
