//! Data movement: puts and gets.

use super::Interface;
use fabric_api::call::{Call, Target};
use fabric_api::op::{Get, Posted, Put};
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
        let put = Put::new(md, to).ack(ack).hdr_data(hdr_data);
        self.post_put(put).map(|_| ())
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
        let put = Put::new(md, to).region(region.0, region.1);
        self.post_put(put.ack(ack).hdr_data(hdr_data)).map(|_| ())
    }

    /// Makes a put; how far it is afterwards is said by [`Posted`]. What becomes of the descriptor is the same in each way: its
    /// threshold counts, and an UNLINK event is posted.
    ///
    /// One that waits ([`Report::Wait`](fabric_api::op::Report)) looks for its end a few times, and makes progress meanwhile, so that events of other
    /// operations may be there afterwards.
    ///
    /// # Errors
    /// Those of `PtlPutRegion`.
    #[inline]
    pub fn post_put(&self, put: Put<'_>) -> Result<Posted, Error> {
        self.open()?.put(put)
    }

    /// `PtlGet`
    #[inline]
    pub fn get(&self, md: MdHandle, from: Target) -> Result<(), Error> {
        self.post_get(Get::new(md, from)).map(|_| ())
    }

    /// `PtlGetRegion`: `region` is (local offset, length), bytes.
    #[inline]
    pub fn get_region(&self, md: MdHandle, region: (u64, u64), from: Target) -> Result<(), Error> {
        self.post_get(Get::new(md, from).region(region.0, region.1))
            .map(|_| ())
    }

    /// Makes a get; how far it is afterwards is said by [`Posted`], as for [`Interface::post_put`]. After [`Posted::Done`] the data is
    /// in memory, and neither START nor END of a reply comes.
    ///
    /// # Errors
    /// Those of `PtlGetRegion`.
    #[inline]
    pub fn post_get(&self, get: Get<'_>) -> Result<Posted, Error> {
        self.open()?.get(get)
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
