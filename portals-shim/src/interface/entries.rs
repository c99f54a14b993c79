//! Match entries, memory descriptors and access control: what others may reach.

use super::Interface;
use fabric_api::call::{Answer, Call};
use fabric_api::region::{RawMemory, Region};
use portals_core::{
    AcEntry, EqHandle, Error, InsertPosition, MdDesc, MdHandle, MdOptions, MdSnapshot, MeHandle,
    MeSpec, Memory, Segment, Unlink,
};

/// The memory of a new descriptor.
#[derive(Clone, Debug)]
pub enum MdMemory {
    /// Part of a region, which stays mapped as long as an operation may touch it by the descriptor: until the descriptor is
    /// gone, however it goes, or the interface closed. Nothing else keeps it.
    Region {
        /// The region.
        region: Region,
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// Addresses somebody vouches for.
    Raw(RawMemory),
    /// No bytes at all.
    Empty,
}

impl MdMemory {
    /// A whole region.
    pub fn whole(region: &Region) -> Self {
        Self::Region {
            region: region.clone(),
            offset: 0,
            len: region.len(),
        }
    }
}

/// Part of a region that is lent ([`MdMemory::Region`]). None of its bytes is
/// [`MdMemory::Empty`].
#[derive(Clone, Copy, Debug)]
pub struct RegionPart<'a> {
    /// The region.
    pub region: &'a Region,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// A new descriptor (`ptl_md_t`).
#[derive(Clone, Debug)]
pub struct MdSpec<M = MdMemory> {
    /// The memory.
    pub memory: M,
    /// Operations before it becomes inactive; -1 for no limit.
    pub threshold: i32,
    /// See [`MdDesc::max_size`].
    pub max_size: u64,
    /// Options.
    pub options: MdOptions,
    /// Returned in every event.
    pub user_ptr: u64,
    /// Where events go.
    pub eq: Option<EqHandle>,
}

impl<M> MdSpec<M> {
    fn split(self) -> (M, MdSpec<()>) {
        let rest = MdSpec {
            memory: (),
            threshold: self.threshold,
            max_size: self.max_size,
            options: self.options,
            user_ptr: self.user_ptr,
            eq: self.eq,
        };
        (self.memory, rest)
    }
}

impl MdSpec<()> {
    fn of(self, memory: Memory) -> MdDesc {
        MdDesc {
            memory,
            threshold: self.threshold,
            max_size: self.max_size,
            options: self.options,
            user_ptr: self.user_ptr,
            eq: self.eq,
        }
    }
}

impl Interface {
    /// `PtlMEAttach`
    pub fn me_attach(
        &self,
        pt_index: u32,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        match self.call(Call::MeAttach {
            pt_index,
            spec,
            position,
        })? {
            Answer::Me(me) => Ok(me),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEAttachAny`
    pub fn me_attach_any(&self, spec: MeSpec) -> Result<(u32, MeHandle), Error> {
        match self.call(Call::MeAttachAny { spec })? {
            Answer::PortalMe(pt_index, me) => Ok((pt_index, me)),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEInsert`
    pub fn me_insert(
        &self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        match self.call(Call::MeInsert {
            base,
            spec,
            position,
        })? {
            Answer::Me(me) => Ok(me),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEUnlink`
    pub fn me_unlink(&self, me: MeHandle) -> Result<(), Error> {
        self.done(Call::MeUnlink(me))
    }

    /// Where the part of a region is.
    #[inline]
    fn place(part: RegionPart<'_>) -> Result<Memory, Error> {
        let RegionPart {
            region,
            offset,
            len,
        } = part;
        if offset.checked_add(len).is_none_or(|end| end > region.len()) {
            return Err(Error::MdIllegal);
        }
        Ok(Memory::Contiguous(Segment {
            addr: region.addr() + offset as u64,
            len: len as u64,
        }))
    }

    /// Describes memory to the library; the region that it is part of, if it is one.
    fn describe(spec: MdSpec) -> Result<(MdDesc, Option<Region>), Error> {
        let (memory, spec) = spec.split();
        Ok(match memory {
            MdMemory::Region {
                region,
                offset,
                len,
            } => {
                let memory = Self::place(RegionPart {
                    region: &region,
                    offset,
                    len,
                })?;
                (spec.of(memory), Some(region))
            }
            MdMemory::Raw(raw) => (spec.of(raw.into_memory()), None),
            MdMemory::Empty => (spec.of(Memory::contiguous(0, 0)), None),
        })
    }

    fn new_md(&self, call: Call, region: Option<&Region>) -> Result<MdHandle, Error> {
        match self.open()?.call_with(call, region)? {
            Answer::Md(md) => Ok(md),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMDAttach`
    pub fn md_attach(&self, me: MeHandle, spec: MdSpec, unlink: Unlink) -> Result<MdHandle, Error> {
        let (desc, region) = Self::describe(spec)?;
        self.new_md(Call::MdAttach { me, desc, unlink }, region.as_ref())
    }

    /// `PtlMDBind`
    pub fn md_bind(&self, spec: MdSpec, unlink: Unlink) -> Result<MdHandle, Error> {
        let (desc, region) = Self::describe(spec)?;
        self.new_md(Call::MdBind { desc, unlink }, region.as_ref())
    }

    /// `PtlMDUnlink`
    pub fn md_unlink(&self, md: MdHandle) -> Result<(), Error> {
        self.done(Call::MdUnlink(md))
    }

    fn snapshot(&self, call: Call, region: Option<&Region>) -> Result<MdSnapshot, Error> {
        match self.open()?.call_with(call, region)? {
            Answer::Snapshot(s, _) => Ok(s),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMDUpdate` without new values.
    pub fn md_query(&self, md: MdHandle) -> Result<MdSnapshot, Error> {
        self.snapshot(Call::MdQuery(md), None)
    }

    /// `PtlMDUpdate` with new values; returns the old ones.
    pub fn md_update(
        &self,
        md: MdHandle,
        new: MdSpec,
        test: Option<EqHandle>,
    ) -> Result<MdSnapshot, Error> {
        let (new, region) = Self::describe(new)?;
        self.snapshot(Call::MdUpdate { md, new, test }, region.as_ref())
    }

    /// `PtlMEMDPost`
    pub fn me_md_post(
        &self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
        md: MdSpec,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        let (desc, region) = Self::describe(md)?;
        let memory = (&desc, region.as_ref());
        self.open()?
            .me_md_post(base, &spec, position, memory, unlink, test)
    }

    /// Posts an entry with a descriptor over part of a region; otherwise [`Interface::me_md_post`].
    #[inline]
    pub fn me_md_post_part(
        &self,
        base: MeHandle,
        spec: &MeSpec,
        position: InsertPosition,
        md: &MdSpec<RegionPart<'_>>,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        let (memory, region) = match md.memory.len {
            0 => (Memory::contiguous(0, 0), None),
            _ => (Self::place(md.memory)?, Some(md.memory.region)),
        };
        let desc = MdDesc {
            memory,
            threshold: md.threshold,
            max_size: md.max_size,
            options: md.options,
            user_ptr: md.user_ptr,
            eq: md.eq,
        };
        self.open()?
            .me_md_post(base, spec, position, (&desc, region), unlink, test)
    }

    /// `PtlMDUpdate` of the threshold and the user's value alone: for a program that awaits the same message again, and keeps
    /// the descriptor that took the last one.
    ///
    /// # Errors
    /// Those of an update; [`Error::MdIllegal`] for a descriptor without a threshold, or if it is to have none;
    /// [`Error::Fail`] where there is no such call.
    #[inline]
    pub fn md_renew(
        &self,
        md: MdHandle,
        threshold: i32,
        user_ptr: u64,
        test: Option<EqHandle>,
    ) -> Result<(), Error> {
        self.open()?.md_renew(md, threshold, user_ptr, test)
    }

    /// `PtlACEntry`
    pub fn ac_entry(&self, index: u32, entry: AcEntry) -> Result<(), Error> {
        self.done(Call::AcEntry { index, entry })
    }
}
