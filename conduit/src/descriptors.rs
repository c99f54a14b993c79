//! The Portals objects of a rank.
//!
//! ```text
//!  portal 38   RAR ─ RARAM ─ RARSRC            the segment, three times
//!  portal 39   SYS ─ ReqRB … ReqRB ─ CB ─ ReqSB ─ BOOT
//!  portal 40   units of pinned memory (pinning/), in jobs without segments
//!  floating    RplSB, SYS_Send, BOOT source, TMPMDs
//!
//!  SYS_EQ   SYS, BOOT
//!  SAFE_EQ  RARSRC, ReqSB, RplSB, CB, TMPMD    handled anywhere
//!  AM_EQ    RARAM, ReqRB                       handled only with a reply's resources in hand
//! ```
//!
//! Every descriptor's `user_ptr` is its [`Md`], which is how an event finds its handler.

use crate::chunks::{CHUNK, Chunks};
use crate::credits::{BUFFER_BYTES, Plan};
use crate::dissemination::distances;
use crate::env::Env;
use crate::matchbits::{AM_PORTAL, IGNORE, RAR_PORTAL, select};
use portals_shim::{
    EqHandle, Error, InsertPosition, Interface, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle,
    MeSpec, ProcessId, Region, THRESHOLD_INFINITE, Unlink,
};

/// Which descriptor an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Md {
    Sys,
    Boot,
    RarAm,
    RarSrc,
    ReqSb,
    RplSb,
    CatchBasin,
    /// A request buffer by index.
    ReqRb(usize),
    /// A temporary descriptor by index.
    Tmp(usize),
    /// A descriptor over all memory by index.
    Lane(usize),
}

impl Md {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Self::Sys => 1,
            Self::Boot => 2,
            Self::RarAm => 3,
            Self::RarSrc => 4,
            Self::ReqSb => 5,
            Self::RplSb => 6,
            Self::CatchBasin => 7,
            Self::ReqRb(i) => 8 | (i as u64) << 8,
            Self::Tmp(i) => 9 | (i as u64) << 8,
            Self::Lane(i) => 10 | (i as u64) << 8,
        }
    }

    /// The index of a request buffer.
    #[inline]
    pub(crate) fn request_buffer(user_ptr: u64) -> Option<usize> {
        (user_ptr & 0xff == 8).then_some((user_ptr >> 8) as usize)
    }

    pub(crate) fn decode(user_ptr: u64) -> Option<Self> {
        let index = usize::try_from(user_ptr >> 8).ok()?;
        Some(match user_ptr & 0xff {
            1 => Self::Sys,
            2 => Self::Boot,
            3 => Self::RarAm,
            4 => Self::RarSrc,
            5 => Self::ReqSb,
            6 => Self::RplSb,
            7 => Self::CatchBasin,
            8 => Self::ReqRb(index),
            9 => Self::Tmp(index),
            10 => Self::Lane(index),
            _ => return None,
        })
    }
}

/// Queue handles, in the order they are polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub(crate) sys: EqHandle,
    pub(crate) safe: EqHandle,
    pub(crate) am: EqHandle,
}

impl Queues {
    /// All, in that order.
    #[inline]
    pub(crate) fn list(&self) -> [EqHandle; 3] {
        [self.sys, self.safe, self.am]
    }
}

/// What exists from start-up to the end.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub(crate) queues: Queues,
    pub(crate) sys_send: MdHandle,
    pub(crate) reqsb: MdHandle,
    pub(crate) rplsb: MdHandle,
    pub(crate) boot_source: MdHandle,
    pub(crate) boot: Region,
    pub(crate) reqrb: Vec<Region>,
    catch_basin: MeHandle,
}

/// The interface refused an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) what: &'static str,
    pub(crate) error: Error,
}

fn refused(what: &'static str) -> impl Fn(Error) -> Refused {
    move |error| Refused { what, error }
}

fn entry(bits: u64, unlink: Unlink) -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits: bits,
        ignore_bits: IGNORE,
        unlink,
    }
}

/// A descriptor of memory that is the conduit's until the job ends, so a kernel need not pin it for each message.
fn spec(memory: MdMemory, options: MdOptions, eq: Option<EqHandle>, md: Md) -> MdSpec {
    MdSpec {
        memory,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: options | MdOptions::EVENT_START_DISABLE | MdOptions::RESIDENT,
        user_ptr: md.encode(),
        eq,
    }
}

fn part(region: &Region, len: usize) -> MdMemory {
    MdMemory::Region {
        region: region.clone(),
        offset: 0,
        len,
    }
}

/// Start of the list of a portal, or its end.
fn attach(
    ni: &Interface,
    portal: u32,
    bits: u64,
    md: MdSpec,
    what: &'static str,
) -> Result<(MeHandle, MdHandle), Refused> {
    let me = ni
        .me_attach(portal, entry(bits, Unlink::Retain), InsertPosition::After)
        .map_err(refused(what))?;
    let md = ni
        .md_attach(me, md, Unlink::Retain)
        .map_err(refused(what))?;
    Ok((me, md))
}

const REMOTE_PUT: MdOptions = MdOptions::OP_PUT.union(MdOptions::MANAGE_REMOTE);

impl Descriptors {
    /// Everything but the segment. `boot` is the memory of the start-up exchange.
    pub(crate) fn new<A, B>(
        ni: &Interface,
        env: &Env,
        plan: &Plan,
        nodes: u32,
        (reqsb, rplsb): (&Chunks<A>, &Chunks<B>),
        reqrb: Vec<Region>,
        boot: (Region, usize),
    ) -> Result<Self, Refused> {
        let eq = |count: u64, what| ni.eq_alloc(count).map_err(refused(what));
        // A put answers twice, a request's chunk sees its own send, the reply and its payload.
        let safe =
            2 * u64::from(env.msg_limit) + u64::from(env.rpl_chunks) + 3 * u64::from(env.sb_chunks);
        let safe = if safe > 10_000 { safe * 3 / 4 } else { safe };
        let queues = Queues {
            // From each rank a revoke and a return, and word that it is given up; of each of six dissemination rounds (two barriers
            // in two phases, the exit, the least value) one message for each power of two below the number of ranks.
            sys: eq(
                3 * u64::from(nodes) + 10 + 6 * distances(nodes).count() as u64,
                "SYS_EQ",
            )?,
            safe: eq(safe, "SAFE_EQ")?,
            // Credits count messages; a buffer that retires posts one event more.
            am: eq(plan.events + u64::from(plan.buffers), "AM_EQ")?,
        };

        let sys = spec(
            MdMemory::Empty,
            MdOptions::OP_PUT | MdOptions::TRUNCATE,
            Some(queues.sys),
            Md::Sys,
        );
        attach(ni, AM_PORTAL, select::SYS, sys, "SYS descriptor")?;
        let cb = spec(
            MdMemory::Empty,
            MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::ACK_DISABLE,
            Some(queues.safe),
            Md::CatchBasin,
        );
        let (catch_basin, _) = attach(ni, AM_PORTAL, select::REQRB, cb, "catch basin")?;
        let sb = spec(
            part(reqsb.region(), reqsb.bytes()),
            REMOTE_PUT,
            Some(queues.safe),
            Md::ReqSb,
        );
        let (_, reqsb) = attach(ni, AM_PORTAL, select::REQSB, sb, "request send buffer")?;
        let (boot, boot_len) = boot;
        let b = spec(
            part(&boot, boot_len),
            REMOTE_PUT,
            Some(queues.sys),
            Md::Boot,
        );
        attach(ni, AM_PORTAL, select::BOOT, b, "start-up buffer")?;

        let bind = |s: MdSpec, what| ni.md_bind(s, Unlink::Retain).map_err(refused(what));
        let rplsb = bind(
            spec(
                part(rplsb.region(), rplsb.bytes()),
                MdOptions::empty(),
                Some(queues.safe),
                Md::RplSb,
            ),
            "reply send buffer",
        )?;
        // Of its messages only those are told of that failed, and of ranks that are given up.
        let failures = MdOptions::EVENT_END_DISABLE | MdOptions::EVENT_FAILURE_ENABLE;
        let sys_send = bind(
            spec(MdMemory::Empty, failures, Some(queues.sys), Md::Sys),
            "system source",
        )?;
        let boot_source = bind(
            spec(part(&boot, boot_len), MdOptions::empty(), None, Md::Boot),
            "start-up source",
        )?;

        let made = Self {
            queues,
            sys_send,
            reqsb,
            rplsb,
            boot_source,
            boot,
            reqrb,
            catch_basin,
        };
        for i in 0..made.reqrb.len() {
            made.relink(ni, i).map_err(refused("request buffer"))?;
        }
        Ok(made)
    }

    /// Puts request buffer `index`, empty, behind the others and before the catch basin. One step
    /// for the interface, so no message meets an entry without memory.
    pub(crate) fn relink(&self, ni: &Interface, index: usize) -> Result<(), Error> {
        let region = self.reqrb.get(index).ok_or(Error::MdIllegal)?;
        let options = MdOptions::OP_PUT | MdOptions::MAX_SIZE | MdOptions::ACK_DISABLE;
        let mut md = spec(
            part(region, BUFFER_BYTES),
            options,
            Some(self.queues.am),
            Md::ReqRb(index),
        );
        md.max_size = CHUNK as u64;
        ni.me_md_post(
            self.catch_basin,
            entry(select::REQRB, Unlink::Unlink),
            InsertPosition::Before,
            md,
            Unlink::Unlink,
            None,
        )
        .map(|_| ())
    }

    /// The segment's three descriptors; returns RARSRC, the source of local operations.
    pub(crate) fn attach_segment(
        &self,
        ni: &Interface,
        segment: &Region,
        size: usize,
    ) -> Result<MdHandle, Refused> {
        let both = REMOTE_PUT | MdOptions::OP_GET | MdOptions::EVENT_END_DISABLE;
        // No queue: a fabric may serve this one without the processor.
        let rar = spec(part(segment, size), both, None, Md::RarSrc);
        attach(ni, RAR_PORTAL, select::RAR, rar, "segment")?;
        let am = spec(
            part(segment, size),
            REMOTE_PUT,
            Some(self.queues.am),
            Md::RarAm,
        );
        attach(ni, RAR_PORTAL, select::RARAM, am, "segment for requests")?;
        let src = spec(
            part(segment, size),
            REMOTE_PUT,
            Some(self.queues.safe),
            Md::RarSrc,
        );
        let (_, md) = attach(ni, RAR_PORTAL, select::RARSRC, src, "segment for replies")?;
        Ok(md)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_has_its_own_number() {
        let all = [
            Md::Sys,
            Md::Boot,
            Md::RarAm,
            Md::RarSrc,
            Md::ReqSb,
            Md::RplSb,
            Md::CatchBasin,
            Md::ReqRb(0),
            Md::ReqRb(300),
            Md::Tmp(0),
            Md::Tmp(1023),
            Md::Lane(0),
            Md::Lane(249),
        ];
        for (i, a) in all.iter().enumerate() {
            assert_eq!(Md::decode(a.encode()), Some(*a));
            assert!(all[..i].iter().all(|b| b.encode() != a.encode()));
            let buffer = match a {
                Md::ReqRb(buffer) => Some(*buffer),
                _ => None,
            };
            assert_eq!(Md::request_buffer(a.encode()), buffer);
        }
        assert_eq!(Md::decode(0), None);
    }
}
