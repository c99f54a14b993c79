//! A put over verbs between two endpoints of this process: what the library, the fabric and the device's provider cost the processor
//! for the post and for the completion. The device itself, and the time until it has written, do not count.

use crate::BYTES;
use portals_shim::endpoint::{AddressError, Endpoint};
use portals_shim::fabric::{FabricConfig, FabricError, FabricKind};
use portals_shim::{
    AckRequest, EqHandle, Error, EventKind, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec,
    MeSpec, ProcessId, Region, THRESHOLD_INFINITE, Target, Unlink,
};
use std::time::{Duration, Instant};

/// Longer than a put takes.
const LIMIT: Duration = Duration::from_secs(20);
/// From when the data is there until the completion is, at most, on a machine with time.
const COMPLETION: Duration = Duration::from_millis(1);

/// Why there are no two endpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// One does not open.
    #[error(transparent)]
    Open(#[from] FabricError),
    /// It cannot be reached.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The library refused.
    #[error("the library refuses: {0}")]
    Library(#[from] Error),
    /// There is no memory.
    #[error("there is no memory")]
    Memory,
    /// The first puts did not end.
    #[error("no put has ended within {LIMIT:?}")]
    Silent,
}

/// The device to count on, if there is one.
pub fn device() -> Option<String> {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").ok();
    device.filter(|device| !device.is_empty())
}

/// Two endpoints, of which one puts 8 bytes into memory of the other, by an RDMA WRITE.
#[derive(Debug)]
pub struct Written {
    from: Endpoint,
    to: Endpoint,
    source: MdHandle,
    eq: EqHandle,
    from_memory: Region,
    to_memory: Region,
    target: Target,
    puts: u64,
}

fn whole(region: &Region, eq: Option<EqHandle>, options: MdOptions) -> MdSpec {
    MdSpec {
        memory: MdMemory::whole(region),
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: options | MdOptions::EVENT_START_DISABLE | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq,
    }
}

impl Written {
    /// Both, after puts that went another way because the endpoints had to meet.
    ///
    /// # Errors
    /// The device cannot be used.
    pub fn over(device: &str) -> Result<Self, DeviceError> {
        let config = FabricConfig {
            fabric: FabricKind::Verbs.into(),
            device: Some(device.to_owned()),
            ..FabricConfig::default()
        };
        let (from, to) = (Endpoint::open(&config)?, Endpoint::open(&config)?);
        let id = from.connect(&to.address())?;
        to.connect(&from.address())?;
        let region = || Region::new(BYTES as usize).map_err(|_| DeviceError::Memory);
        let (from_memory, to_memory) = (region()?, region()?);
        let spec = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: 7,
            ignore_bits: 0,
            unlink: Unlink::Retain,
        };
        let (a, b) = (from.interface(), to.interface());
        let me = b.me_attach(4, spec, InsertPosition::After)?;
        b.md_attach(
            me,
            whole(&to_memory, None, MdOptions::OP_PUT),
            Unlink::Retain,
        )?;
        let eq = a.eq_alloc(8)?;
        let source = a.md_bind(
            whole(&from_memory, Some(eq), MdOptions::empty()),
            Unlink::Retain,
        )?;
        let target = Target {
            process: id,
            pt_index: 4,
            ac_index: 0,
            match_bits: 7,
            remote_offset: 0,
        };
        let mut pair = Self {
            from,
            to,
            source,
            eq,
            from_memory,
            to_memory,
            target,
            puts: 0,
        };
        pair.meet()?;
        Ok(pair)
    }

    /// Puts until the adapter carries them alone.
    fn meet(&mut self) -> Result<(), DeviceError> {
        let begun = Instant::now();
        loop {
            let before = self.from.interface().paths()?.one_sided;
            let ended = self.put_in(|pair| pair.post(), |pair| pair.ends());
            if ended && self.from.interface().paths()?.one_sided > before {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                return Err(DeviceError::Silent);
            }
        }
    }

    fn post(&self) -> bool {
        let put = (self.from.interface()).put(self.source, AckRequest::Ack, self.target, 0);
        put.is_ok()
    }

    /// Takes SEND_END and ACK, looking as often as that needs.
    fn ends(&self) -> bool {
        [EventKind::SendEnd, EventKind::Ack].iter().all(|kind| {
            let begun = Instant::now();
            loop {
                match self.from.interface().eq_get(self.eq) {
                    Ok(Some(polled)) => return polled.event.kind == *kind,
                    Ok(None) if begun.elapsed() < LIMIT => {}
                    Ok(None) | Err(_) => return false,
                }
            }
        })
    }

    fn put_in(&mut self, post: fn(&Self) -> bool, ends: fn(&Self) -> bool) -> bool {
        self.puts += 1;
        let data = self.puts.to_le_bytes();
        if self.from_memory.write(0, &data).is_err() || !post(self) {
            return false;
        }
        let (begun, mut seen) = (Instant::now(), [0; 8]);
        while self.to_memory.read(0, &mut seen).is_ok() && seen != data {
            // The target's part, where a put needs one.
            let _ = self.to.interface().progress(portals_shim::Wait::No);
            if begun.elapsed() > LIMIT {
                return false;
            }
        }
        std::thread::sleep(COMPLETION);
        ends(self)
    }

    /// One put, of which the post and the looks for its events count; whether it ended well.
    pub fn put(&mut self) -> bool {
        self.put_in(counted_post, counted_end)
    }
}

/// What callgrind counts of a put, by this name: its post.
#[inline(never)]
fn counted_post(pair: &Written) -> bool {
    pair.post()
}

/// And its two events; looks that come before the completion count too.
#[inline(never)]
fn counted_end(pair: &Written) -> bool {
    pair.ends()
}
