//! Data movement: puts and gets.

use super::Interface;
use fabric_api::call::{Awaited, Call, RemoteKey, Target};
use portals_core::{AckRequest, Error, MdHandle};

impl Interface {
    /// `PtlPut`
    #[inline]
    pub fn put(
        &self,
        md: MdHandle,
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.open()?.put(md, None, ack, &to, hdr_data)
    }

    /// `PtlPutRegion`: `region` is (local offset, length), bytes.
    #[inline]
    pub fn put_region(
        &self,
        md: MdHandle,
        region: (u64, u64),
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.open()?.put(md, Some(region), ack, &to, hdr_data)
    }

    /// Puts a region and leaves out events that are not needed: `true` says that the fabric
    /// has taken the data, the memory is free again, and neither SEND_START nor SEND_END will come; an ack that was asked
    /// for does. After `false` they come as ever. What becomes of the descriptor is the same: its threshold counts, and an UNLINK
    /// event is posted.
    #[inline]
    pub fn put_region_silent(
        &self,
        md: MdHandle,
        region: (u64, u64),
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        self.open()?.put_silent(md, region, ack, &to, hdr_data)
    }

    /// Whether [`Interface::put_region_made`] may ever be true on this interface's fabric.
    pub fn makes_puts(&self) -> bool {
        self.inner.bridge.makes_puts()
    }

    /// Puts bytes that `fill` packs, with the events of [`Interface::put_region_silent`]: it writes into the memory that the fabric
    /// sends from, of the region's length; the region itself is not read, and `fill` not called where that is 0. `false`, and
    /// nothing has happened nor was `fill` called, if the fabric cannot take it so now: then the caller writes the bytes into
    /// the region and puts that. `fill` must not call this interface.
    pub fn put_region_made(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        hdr_data: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Error> {
        self.open()?.put_made(md, region, &to, hdr_data, fill)
    }

    /// Puts a region without an ack, if the fabric can promise that the data is in the target's memory
    /// before anything arrives that this process sends there afterwards; `false`, and nothing has happened, if it cannot.
    /// The put may have its effect before earlier messages (which `PtlPut` may not), and the target's descriptor must be one
    /// that needs no part of its library. Over verbs it is an RDMA write; should the connection break before a later message
    /// has arrived, the write is made again, so nobody may look at the memory before such a message says so.
    pub fn put_region_ahead(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        self.open()?.put_ahead(md, region, &to, hdr_data)
    }

    /// `PtlGet`
    #[inline]
    pub fn get(&self, md: MdHandle, from: Target) -> Result<(), Error> {
        self.open()?.get(md, None, &from)
    }

    /// `PtlGetRegion`: `region` is (local offset, length), bytes.
    #[inline]
    pub fn get_region(&self, md: MdHandle, region: (u64, u64), from: Target) -> Result<(), Error> {
        self.open()?.get(md, Some(region), &from)
    }

    /// Gets a region for a caller that waits for the data at once, and leaves out events that are not needed:
    /// after [`Awaited::Done`] it is in memory, and neither START nor END of a reply will come. The call tries for some looks at the
    /// fabric at most, and makes progress meanwhile, so that events of other operations may be there afterwards. After
    /// [`Awaited::Begun`] the get is under way, or has failed, and its events come as ever. What becomes of the
    /// descriptor is the same.
    #[inline]
    pub fn get_region_awaited(
        &self,
        md: MdHandle,
        region: (u64, u64),
        from: Target,
    ) -> Result<Awaited, Error> {
        self.open()?.get_awaited(md, region, &from)
    }

    /// Puts a region with an ack for a caller that waits for it at once, and leaves out events that are not needed; see
    /// [`Interface::get_region_awaited`]. After [`Awaited::Done`] the data is in the target's memory, and no event will come;
    /// after [`Awaited::Taken`] only the ack will.
    #[inline]
    pub fn put_region_awaited(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
    ) -> Result<Awaited, Error> {
        self.open()?.put_awaited(md, region, &to)
    }

    /// Pins the memory of a descriptor that was made with [`PINNED`](portals_core::MdOptions::PINNED), as far as the
    /// fabric pins memory; returns what peers' adapters need to reach it, and 0 where they need nothing. It stays so until the descriptor is unlinked, by
    /// when nobody may use the key any more: the call does not ask peers.
    ///
    /// # Errors
    /// On a fabric that pins, [`Error::MdIllegal`] for a descriptor without that option, in pieces, or with a threshold,
    /// at which it might unlink itself; [`Error::NoSpace`] where no more memory may be pinned.
    pub fn remote_key(&self, md: MdHandle) -> Result<u32, Error> {
        self.open()?.remote_key(md)
    }

    /// Puts a region with an ack to a descriptor that `key` reaches: a fabric that can serves it by the
    /// adapters alone.
    pub fn put_region_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        key: RemoteKey,
    ) -> Result<(), Error> {
        self.open()?.put_keyed(md, region, &to, key)
    }

    /// Puts a region to a descriptor that `key` reaches, if the fabric takes the data within this call. After `true` the memory is
    /// free, and neither SEND_START nor SEND_END will come, but the ack. After `false` nothing has happened.
    pub fn put_region_keyed_now(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        key: RemoteKey,
    ) -> Result<bool, Error> {
        self.open()?.put_keyed_now(md, region, &to, key)
    }

    /// Gets a region from a descriptor that `key` reaches.
    pub fn get_region_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        from: Target,
        key: RemoteKey,
    ) -> Result<(), Error> {
        self.open()?.get_keyed(md, region, &from, key)
    }

    /// Whether the fabric pins the memory of messages, so that it is of use to keep it pinned
    /// ([`PINNED`](portals_core::MdOptions::PINNED)).
    pub fn pins(&self) -> bool {
        self.inner.bridge.pins()
    }

    /// Most bytes that the fabric and the system let this process pin for its messages; `None` where that is not
    /// limited.
    pub fn pinnable(&self) -> Option<u64> {
        self.inner.bridge.pinnable()
    }

    /// Most bytes of memory that the fabric lets this process open to its peers from here on, each use of them counted;
    /// `None` where that is not limited, or where no peer needs it.
    pub fn exposable(&self) -> Option<u64> {
        self.inner.bridge.exposable()
    }

    /// `PtlGetPut`
    pub fn get_put(
        &self,
        get: MdHandle,
        put: MdHandle,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::GetPut {
            get,
            put,
            regions: None,
            to,
            hdr_data,
        })
    }

    /// `PtlGetPutRegion`: `regions` is (get offset, put offset, length), bytes.
    pub fn get_put_region(
        &self,
        get: MdHandle,
        put: MdHandle,
        regions: (u64, u64, u64),
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::GetPut {
            get,
            put,
            regions: Some(regions),
            to,
            hdr_data,
        })
    }
}
