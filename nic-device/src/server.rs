//! What one function answers to the messages of its client.
//!
//! No I/O here but that of the descriptors a client hands over. Whatever a client says is
//! answered, with an errno where it cannot be meant.

use nic_model::NodeId;
use nic_model::defs::map::{WINDOW, WINDOW_LEN};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio as abi;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::chips::Chips;
use crate::dma::DmaMapError;
use crate::pci::{CONFIG_LEN, ConfigSpace};
use crate::proto::{
    Command, DeviceInfo, DmaMapRequest, DmaUnmapRequest, Header, IrqInfo, MAX_DATA, MAX_FDS,
    RegionAccess, RegionInfo, SetIrqs, VERSION, Version, error_reply, flags, message,
};
use crate::signal::Bell;
use crate::socket::Message;

pub(crate) const BAR0: u32 = abi::VFIO_PCI_BAR0_REGION_INDEX;
pub(crate) const CONFIG: u32 = abi::VFIO_PCI_CONFIG_REGION_INDEX;
pub(crate) const MSI: u32 = abi::VFIO_PCI_MSI_IRQ_INDEX;
const UNMAP_ALL: u32 = 1 << 2;

/// What comes of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Reply(Vec<u8>),
    /// The client wants no reply.
    Quiet,
    /// The client cannot be talked to.
    Close,
}

/// A message refused, with the errno of the reply.
type Refused = Errno;

/// The device side of one connection.
#[derive(Debug)]
pub(crate) struct Endpoint {
    node: NodeId,
    config: ConfigSpace,
    interrupt: Option<Bell>,
    agreed: bool,
}

fn body<T>(message: &Message) -> Result<T, Refused>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::read_from_prefix(&message.body)
        .map(|(body, _)| body)
        .map_err(|_| Errno::INVAL)
}

/// A body that begins with its own size.
fn sized<T>(message: &Message, argsz: impl Fn(&T) -> u32) -> Result<T, Refused>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let body: T = body(message)?;
    if (argsz(&body) as usize) < size_of::<T>() {
        return Err(Errno::INVAL);
    }
    Ok(body)
}

impl From<DmaMapError> for Errno {
    fn from(error: DmaMapError) -> Self {
        match error {
            DmaMapError::Overlap { .. } => Self::EXIST,
            DmaMapError::NotMapped { .. } => Self::NOENT,
            DmaMapError::Full => Self::NOSPC,
            DmaMapError::Range { .. } | DmaMapError::File { .. } | DmaMapError::Kind => Self::INVAL,
        }
    }
}

impl Endpoint {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            config: ConfigSpace::default(),
            interrupt: None,
            agreed: false,
        }
    }

    /// Answers a message; `alone` says that no other function has a client.
    pub(crate) fn handle(&mut self, chips: &mut Chips, message: Message, alone: bool) -> Outcome {
        let header = message.header;
        let quiet = header.flags.get() & flags::NO_REPLY != 0;
        if header.flags.get() & flags::TYPE != 0 {
            // The server asks nothing, so nothing can be a reply.
            return Outcome::Close;
        }
        if !self.agreed && header.command != Command::VERSION {
            return Outcome::Close;
        }
        match self.command(chips, message, alone) {
            Ok(_) if quiet => Outcome::Quiet,
            Ok(body) => Outcome::Reply(reply(&header, &body)),
            Err(errno) => {
                tracing::debug!(node = self.node.0, command = header.command.0.get(), %errno, "refused");
                if quiet {
                    Outcome::Quiet
                } else {
                    Outcome::Reply(error_reply(&header, errno.raw_os_error().unsigned_abs()))
                }
            }
        }
    }

    fn command(
        &mut self,
        chips: &mut Chips,
        message: Message,
        alone: bool,
    ) -> Result<Vec<u8>, Refused> {
        match message.header.command {
            Command::VERSION => self.version(&message),
            Command::DMA_MAP => self.dma_map(chips, message),
            Command::DMA_UNMAP => self.dma_unmap(chips, &message),
            Command::DEVICE_INFO => device_info(&message),
            Command::REGION_INFO => region_info(&message),
            Command::IRQ_INFO => irq_info(&message),
            Command::SET_IRQS => self.set_irqs(message),
            Command::REGION_READ => self.region_read(chips, &message),
            Command::REGION_WRITE => self.region_write(chips, &message),
            Command::RESET if alone => {
                self.reset(chips);
                Ok(Vec::new())
            }
            // Other hosts drive the other chips of this world.
            Command::RESET => Err(Errno::BUSY),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn version(&mut self, message: &Message) -> Result<Vec<u8>, Refused> {
        let wanted: Version = body(message)?;
        if wanted.major != VERSION.major || self.agreed {
            return Err(Errno::INVAL);
        }
        self.agreed = true;
        let minor = wanted.minor.get().min(VERSION.minor.get());
        let version = Version {
            minor: minor.into(),
            ..VERSION
        };
        let capabilities = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{MAX_FDS},\"max_data_xfer_size\":{MAX_DATA},\
             \"migration\":{{\"pgsize\":4096}}}}}}\0"
        );
        Ok([version.as_bytes(), capabilities.as_bytes()].concat())
    }

    fn dma_map(&self, chips: &mut Chips, message: Message) -> Result<Vec<u8>, Refused> {
        let request: DmaMapRequest = sized(&message, |b: &DmaMapRequest| b.argsz.get())?;
        // Memory without a descriptor would have to be asked for by messages.
        let file = message.fds.into_iter().next().ok_or(Errno::OPNOTSUPP)?;
        let access = request.flags.get();
        if access & !0b11 != 0 {
            return Err(Errno::INVAL);
        }
        let map = chips.memory(self.node).ok_or(Errno::NODEV)?;
        map.map(
            request.address.get(),
            request.size.get(),
            (file, request.offset.get()),
            (access & 0b01 != 0, access & 0b10 != 0),
        )?;
        Ok(Vec::new())
    }

    fn dma_unmap(&self, chips: &mut Chips, message: &Message) -> Result<Vec<u8>, Refused> {
        let request: DmaUnmapRequest = sized(message, |b: &DmaUnmapRequest| b.argsz.get())?;
        let map = chips.memory(self.node).ok_or(Errno::NODEV)?;
        match request.flags.get() {
            0 => map.unmap(request.address.get(), request.size.get())?,
            UNMAP_ALL if request.address.get() == 0 && request.size.get() == 0 => map.clear(),
            _ => return Err(Errno::INVAL),
        }
        Ok(request.as_bytes().to_vec())
    }

    fn set_irqs(&mut self, message: Message) -> Result<Vec<u8>, Refused> {
        let set: SetIrqs = sized(&message, |b: &SetIrqs| b.argsz.get())?;
        if set.index.get() != MSI || set.start.get() != 0 || set.count.get() > 1 {
            return Err(Errno::INVAL);
        }
        const TRIGGER: u32 = abi::VFIO_IRQ_SET_ACTION_TRIGGER;
        match set.flags.get() & !TRIGGER {
            _ if set.flags.get() & TRIGGER == 0 => return Err(Errno::OPNOTSUPP),
            abi::VFIO_IRQ_SET_DATA_EVENTFD => {
                let event = message.fds.into_iter().next();
                self.interrupt = match event.filter(|_| set.count.get() > 0) {
                    None => None,
                    Some(event) => Some(Bell::new(event).map_err(|_| Errno::NOMEM)?),
                };
            }
            abi::VFIO_IRQ_SET_DATA_NONE if set.count.get() == 0 => self.interrupt = None,
            abi::VFIO_IRQ_SET_DATA_NONE => self.signal(1),
            _ => return Err(Errno::INVAL),
        }
        Ok(Vec::new())
    }

    fn region_read(&self, chips: &mut Chips, message: &Message) -> Result<Vec<u8>, Refused> {
        let access: RegionAccess = body(message)?;
        let count = access.count.get() as usize;
        if count > MAX_DATA {
            return Err(Errno::INVAL);
        }
        let mut data = vec![0; count];
        match access.region.get() {
            BAR0 => {
                let first = registers(access.offset.get(), count)?;
                for (address, word) in (first..).step_by(4).zip(data.as_chunks_mut::<4>().0) {
                    *word = chips.read32(self.node, address).to_le_bytes();
                }
            }
            CONFIG => self
                .config
                .read(access.offset.get(), &mut data)
                .ok_or(Errno::INVAL)?,
            _ => return Err(Errno::INVAL),
        }
        Ok([access.as_bytes(), &data].concat())
    }

    fn region_write(&mut self, chips: &mut Chips, message: &Message) -> Result<Vec<u8>, Refused> {
        let (access, data) =
            RegionAccess::read_from_prefix(&message.body).map_err(|_| Errno::INVAL)?;
        let count = access.count.get() as usize;
        if count != data.len() {
            return Err(Errno::INVAL);
        }
        match access.region.get() {
            BAR0 => {
                let first = registers(access.offset.get(), count)?;
                for (address, word) in (first..).step_by(4).zip(data.as_chunks::<4>().0) {
                    chips.write32(self.node, address, u32::from_le_bytes(*word));
                }
            }
            CONFIG => self
                .config
                .write(access.offset.get(), data)
                .ok_or(Errno::INVAL)?,
            _ => return Err(Errno::INVAL),
        }
        Ok(access.as_bytes().to_vec())
    }

    fn reset(&mut self, chips: &mut Chips) {
        chips.reset();
        self.config = ConfigSpace::default();
    }

    /// Whether the client has said which version it speaks.
    pub(crate) fn has_agreed(&self) -> bool {
        self.agreed
    }

    /// Whether the client hears of interrupts.
    pub(crate) fn listens(&self) -> bool {
        self.interrupt.is_some()
    }

    /// Whether a message is one with which a client waits for the device.
    pub(crate) fn waits(message: &Message) -> bool {
        message.header.command == Command::REGION_READ
    }

    /// Tells the client of `count` interrupts.
    pub(crate) fn signal(&self, count: u64) {
        let Some(bell) = &self.interrupt else { return };
        // The client may have handed over anything.
        if let Err(error) = bell.ring(count) {
            tracing::debug!(node = self.node.0, %error, "the interrupt's descriptor takes nothing");
        }
    }
}

/// The SeaStar address of `count` bytes from `offset` of BAR 0: whole registers of the window.
fn registers(offset: u64, count: usize) -> Result<u32, Refused> {
    let end = offset.checked_add(count as u64).ok_or(Errno::INVAL)?;
    if !offset.is_multiple_of(4) || !count.is_multiple_of(4) || end > u64::from(WINDOW_LEN) {
        return Err(Errno::INVAL);
    }
    // An empty access at the end is at no register.
    Ok(WINDOW + (offset as u32).min(WINDOW_LEN - 4))
}

fn reply(to: &Header, body: &[u8]) -> Vec<u8> {
    message(to.id.get(), to.command, flags::REPLY, &[body])
}

fn device_info(message: &Message) -> Result<Vec<u8>, Refused> {
    let asked: DeviceInfo = sized(message, |b: &DeviceInfo| b.argsz.get())?;
    let info = DeviceInfo {
        argsz: asked.argsz,
        flags: (abi::VFIO_DEVICE_FLAGS_PCI | abi::VFIO_DEVICE_FLAGS_RESET).into(),
        regions: abi::VFIO_PCI_NUM_REGIONS.into(),
        irqs: abi::VFIO_PCI_NUM_IRQS.into(),
    };
    Ok(info.as_bytes().to_vec())
}

fn region_info(message: &Message) -> Result<Vec<u8>, Refused> {
    let asked: RegionInfo = sized(message, |b: &RegionInfo| b.argsz.get())?;
    let both = abi::VFIO_REGION_INFO_FLAG_READ | abi::VFIO_REGION_INFO_FLAG_WRITE;
    let (size, access) = match asked.index.get() {
        BAR0 => (u64::from(WINDOW_LEN), both),
        CONFIG => (CONFIG_LEN as u64, both),
        index if index < abi::VFIO_PCI_NUM_REGIONS => (0, 0),
        _ => return Err(Errno::INVAL),
    };
    let info = RegionInfo {
        argsz: (size_of::<RegionInfo>() as u32).into(),
        flags: access.into(),
        index: asked.index,
        cap_offset: 0.into(),
        size: size.into(),
        offset: 0.into(),
    };
    Ok(info.as_bytes().to_vec())
}

fn irq_info(message: &Message) -> Result<Vec<u8>, Refused> {
    let asked: IrqInfo = sized(message, |b: &IrqInfo| b.argsz.get())?;
    let (count, ability) = match asked.index.get() {
        MSI => (1, abi::VFIO_IRQ_INFO_EVENTFD | abi::VFIO_IRQ_INFO_NORESIZE),
        index if index < abi::VFIO_PCI_NUM_IRQS => (0, 0),
        _ => return Err(Errno::INVAL),
    };
    let info = IrqInfo {
        argsz: asked.argsz,
        flags: ability.into(),
        index: asked.index,
        count: count.into(),
    };
    Ok(info.as_bytes().to_vec())
}
