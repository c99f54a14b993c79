//! A function in another process, over vfio-user.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use host::peer::Credentials;
use nic_model::RegisterIo;
use nic_model::defs::map::{WINDOW, WINDOW_LEN};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio as abi;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bar::MappedBar;
use crate::dma::DmaMapError;
use crate::error::DeviceError;
use crate::function::Function;
use crate::memory::DmaMemory;
use crate::pci::{COMMAND, DEVICE_ID, MEMORY_AND_MASTER, VENDOR_ID};
use crate::proto::{
    Command, DeviceInfo, DmaMapRequest, DmaUnmapRequest, IrqInfo, MAX_DATA, MAX_FDS, RegionAccess,
    RegionInfo, SetIrqs, VERSION, Version, flags, message,
};
use crate::server::{BAR0, CONFIG, MSI};
use crate::socket::{Connection, Message, timespec};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A SeaStar behind a vfio-user socket.
///
/// Register writes are posted: no reply is awaited. A register read waits for its reply, which
/// comes after the effects of everything before it.
#[derive(Debug)]
pub struct UserFunction {
    link: Link,
    interrupt: OwnedFd,
    /// Sizes of what is mapped, by address.
    mapped: BTreeMap<u64, u64>,
    /// The register window, where the server lets it be mapped.
    bar: Option<MappedBar>,
    fault: Option<DeviceError>,
}

/// Whether user `own` takes `user` for somebody to hand memory to.
const fn trusts(own: u32, user: u32) -> bool {
    const ROOT: u32 = 0;
    user == own || user == ROOT || own == ROOT
}

impl UserFunction {
    /// Connects to the function served at `path` and sets its interrupt up.
    ///
    /// # Errors
    /// Nobody serves it, somebody does who is neither root nor the caller's user, the server does not keep to the protocol,
    /// or it serves something else.
    pub fn connect(path: &Path) -> Result<Self, DeviceError> {
        Self::connect_within(path, PATIENCE)
    }

    fn connect_within(path: &Path, patience: Duration) -> Result<Self, DeviceError> {
        let stream = UnixStream::connect(path).map_err(|source| DeviceError::NotServed {
            path: path.to_owned(),
            source,
        })?;
        // The server is given the driver's memory. The path may have become another's meanwhile; the connection has not.
        let own = host::ids::user().map_err(DeviceError::system("ask which user this is"))?;
        let peer = Credentials::of(&stream).map_err(DeviceError::system("ask who serves"))?;
        let user = peer.uid;
        if !trusts(own, user) {
            return Err(DeviceError::OtherUser {
                path: path.to_owned(),
                user,
            });
        }
        Self::over(stream, patience)
    }

    /// A function over a connected socket, with another patience; see [`UserFunction::connect`].
    ///
    /// # Errors
    /// Those of [`UserFunction::connect`].
    pub fn over(stream: UnixStream, patience: Duration) -> Result<Self, DeviceError> {
        let connection = Connection::new(stream).map_err(DeviceError::system("use the socket"))?;
        let mut link = Link {
            connection,
            next: 0,
            patience,
        };
        link.version()?;
        let bar = link.check()?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(DeviceError::system("make an event descriptor"))?;
        link.set_interrupt(interrupt.as_fd())?;
        Ok(Self {
            link,
            interrupt,
            mapped: BTreeMap::new(),
            bar,
            fault: None,
        })
    }

    fn offset(address: u32) -> Option<u64> {
        let offset = address.checked_sub(WINDOW)?;
        (offset < WINDOW_LEN).then_some(u64::from(offset))
    }

    /// Keeps the first failure; nothing is asked after it.
    fn note<T>(&mut self, result: Result<T, DeviceError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            // A single refused access is no end; everything else is.
            Err(DeviceError::Refused { .. }) => None,
            Err(error) => {
                self.fault.get_or_insert(error);
                None
            }
        }
    }
}

impl RegisterIo for UserFunction {
    fn read32(&mut self, address: u32) -> u32 {
        if let Some(bar) = &mut self.bar {
            return bar.read32(address);
        }
        let Some(offset) = Self::offset(address).filter(|_| self.fault.is_none()) else {
            return u32::MAX;
        };
        let mut word = [0; 4];
        let read = self.link.region_read(BAR0, offset, &mut word);
        self.note(read)
            .map_or(u32::MAX, |()| u32::from_le_bytes(word))
    }

    fn write32(&mut self, address: u32, value: u32) {
        if let Some(bar) = &mut self.bar {
            return bar.write32(address, value);
        }
        let Some(offset) = Self::offset(address).filter(|_| self.fault.is_none()) else {
            return;
        };
        let posted = self.link.region_post(BAR0, offset, &value.to_le_bytes());
        self.note(posted);
    }
}

impl Function for UserFunction {
    fn map(&mut self, memory: &DmaMemory, address: u64) -> Result<(), DeviceError> {
        let request = DmaMapRequest {
            argsz: (size_of::<DmaMapRequest>() as u32).into(),
            flags: 0b11.into(),
            offset: 0.into(),
            address: address.into(),
            size: memory.length().into(),
        };
        self.link.ask(
            "dma map",
            Command::DMA_MAP,
            &[request.as_bytes()],
            &[memory.as_fd()],
        )?;
        self.mapped.insert(address, memory.length());
        Ok(())
    }

    fn unmap(&mut self, address: u64) -> Result<(), DeviceError> {
        let size = *self
            .mapped
            .get(&address)
            .ok_or(DmaMapError::NotMapped { address, size: 0 })?;
        let request = DmaUnmapRequest {
            argsz: (size_of::<DmaUnmapRequest>() as u32).into(),
            flags: 0.into(),
            address: address.into(),
            size: size.into(),
        };
        self.link
            .ask("dma unmap", Command::DMA_UNMAP, &[request.as_bytes()], &[])?;
        self.mapped.remove(&address);
        Ok(())
    }

    fn interrupts(&mut self, patience: Duration) -> Result<u64, DeviceError> {
        count(self.interrupt.as_fd(), patience)
    }

    fn fault(&self) -> Option<&DeviceError> {
        self.fault.as_ref()
    }
}

/// What an event descriptor has counted, waiting up to `patience`.
pub(crate) fn count(fd: BorrowedFd<'_>, patience: Duration) -> Result<u64, DeviceError> {
    let waited = poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&timespec(patience)),
    );
    match waited {
        Ok(0) | Err(Errno::INTR) => return Ok(0),
        Ok(_) => {}
        Err(e) => return Err(DeviceError::system("wait for an interrupt")(e)),
    }
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => Ok(u64::from_ne_bytes(count)),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(e) => Err(DeviceError::system("count interrupts")(e)),
    }
}

/// Room for the capabilities of a region.
const INFO_ROOM: usize = 4096;

/// Whether the region of an answer may be mapped from its first to its last byte: it has no list
/// of areas, or one area that is all of it.
fn maps_whole(info: &RegionInfo, body: &[u8]) -> bool {
    if info.flags.get() & abi::VFIO_REGION_INFO_FLAG_CAPS == 0 {
        return true;
    }
    let Some(capability) = body.get(info.cap_offset.get() as usize..) else {
        return false;
    };
    // Id, version, next; areas, zero; offset, size.
    let Some((head, areas)) = capability.split_at_checked(16) else {
        return false;
    };
    let Some(area) = areas.first_chunk::<16>() else {
        return false;
    };
    let sparse = abi::VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
    let whole = [0u64.to_le_bytes(), info.size.get().to_le_bytes()].concat();
    head[..2] == sparse.to_le_bytes() && head[8..12] == 1u32.to_le_bytes() && area[..] == whole
}

/// The connection, and one command after the other over it.
#[derive(Debug)]
struct Link {
    connection: Connection,
    next: u16,
    patience: Duration,
}

fn parse<T>(body: &[u8], what: &'static str) -> Result<T, DeviceError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::read_from_prefix(body)
        .map(|(value, _)| value)
        .map_err(|_| DeviceError::Protocol(format!("a reply of {} bytes to {what}", body.len())))
}

impl Link {
    fn ask(
        &mut self,
        what: &'static str,
        command: Command,
        parts: &[&[u8]],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message, DeviceError> {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let bytes = message(id, command, 0, parts);
        self.connection.send(&bytes, fds, self.patience)?;
        let reply = self.connection.next(self.patience)?;
        let header = &reply.header;
        if header.id.get() != id
            || header.command != command
            || header.flags.get() & flags::TYPE != flags::REPLY
        {
            return Err(DeviceError::Protocol(format!(
                "message {} of command {} came in reply to {what}",
                header.id.get(),
                header.command.0.get()
            )));
        }
        if header.flags.get() & flags::ERROR != 0 {
            return Err(DeviceError::Refused {
                command: what,
                source: std::io::Error::from_raw_os_error(header.error.get().cast_signed()),
            });
        }
        Ok(reply)
    }

    fn version(&mut self) -> Result<(), DeviceError> {
        let capabilities = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{MAX_FDS},\"max_data_xfer_size\":{MAX_DATA}}}}}\0"
        );
        let parts = [VERSION.as_bytes(), capabilities.as_bytes()];
        let reply = self.ask("version", Command::VERSION, &parts, &[])?;
        let (version, data) = Version::read_from_prefix(&reply.body)
            .map_err(|_| DeviceError::Protocol("a reply without version".to_owned()))?;
        if version.major != VERSION.major {
            return Err(DeviceError::Protocol(format!(
                "version {}.{}, not 0.1",
                version.major, version.minor
            )));
        }
        // Nothing of the server's abilities matters here, but it must be what it says it is.
        let text = data.strip_suffix(&[0]).unwrap_or(data);
        if !text.is_empty() && serde_json::from_slice::<serde_json::Value>(text).is_err() {
            return Err(DeviceError::Protocol(
                "a version that is no JSON".to_owned(),
            ));
        }
        Ok(())
    }

    /// Looks at what the device is; maps its window if that is offered.
    fn check(&mut self) -> Result<Option<MappedBar>, DeviceError> {
        let ask = DeviceInfo {
            argsz: (size_of::<DeviceInfo>() as u32).into(),
            flags: 0.into(),
            regions: 0.into(),
            irqs: 0.into(),
        };
        let reply = self.ask("device info", Command::DEVICE_INFO, &[ask.as_bytes()], &[])?;
        let info: DeviceInfo = parse(&reply.body, "device info")?;
        if info.regions.get() <= CONFIG || info.irqs.get() <= MSI {
            return Err(DeviceError::Lacks("PCI regions and interrupts"));
        }
        let (config, ..) = self.region_info(CONFIG)?;
        if config.size.get() < 64 {
            return Err(DeviceError::Lacks("configuration space"));
        }
        let mut ids = [0; 4];
        self.region_read(CONFIG, 0, &mut ids)?;
        let [v0, v1, d0, d1] = ids;
        let (vendor, device) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([d0, d1]));
        if (vendor, device) != (VENDOR_ID, DEVICE_ID) {
            return Err(DeviceError::NotSeaStar { vendor, device });
        }
        self.region_post(CONFIG, COMMAND as u64, &MEMORY_AND_MASTER.to_le_bytes())?;
        let (window, body, file) = self.region_info(BAR0)?;
        if window.size.get() != u64::from(WINDOW_LEN) {
            return Err(DeviceError::Lacks("register window of 2 MiB at BAR 0"));
        }
        match file {
            Some(file)
                if window.flags.get() & abi::VFIO_REGION_INFO_FLAG_MMAP != 0
                    && maps_whole(&window, &body) =>
            {
                MappedBar::map(file.as_fd(), window.offset.get()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What a region is, all of the answer, and the descriptor that came along.
    fn region_info(
        &mut self,
        index: u32,
    ) -> Result<(RegionInfo, Vec<u8>, Option<OwnedFd>), DeviceError> {
        let ask = RegionInfo {
            argsz: (INFO_ROOM as u32).into(),
            flags: 0.into(),
            index: index.into(),
            cap_offset: 0.into(),
            size: 0.into(),
            offset: 0.into(),
        };
        let reply = self.ask("region info", Command::REGION_INFO, &[ask.as_bytes()], &[])?;
        let info: RegionInfo = parse(&reply.body, "region info")?;
        if info.index.get() != index {
            return Err(DeviceError::Protocol("info of another region".to_owned()));
        }
        Ok((info, reply.body, reply.fds.into_iter().next()))
    }

    fn set_interrupt(&mut self, fd: BorrowedFd<'_>) -> Result<(), DeviceError> {
        let ask = IrqInfo {
            argsz: (size_of::<IrqInfo>() as u32).into(),
            flags: 0.into(),
            index: MSI.into(),
            count: 0.into(),
        };
        let reply = self.ask("interrupt info", Command::IRQ_INFO, &[ask.as_bytes()], &[])?;
        let info: IrqInfo = parse(&reply.body, "interrupt info")?;
        if info.count.get() == 0 || info.flags.get() & abi::VFIO_IRQ_INFO_EVENTFD == 0 {
            return Err(DeviceError::Lacks("MSI interrupt"));
        }
        let set = SetIrqs {
            argsz: (size_of::<SetIrqs>() as u32).into(),
            flags: (abi::VFIO_IRQ_SET_DATA_EVENTFD | abi::VFIO_IRQ_SET_ACTION_TRIGGER).into(),
            index: MSI.into(),
            start: 0.into(),
            count: 1.into(),
        };
        self.ask(
            "set interrupts",
            Command::SET_IRQS,
            &[set.as_bytes()],
            &[fd],
        )?;
        Ok(())
    }

    fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), DeviceError> {
        let access = RegionAccess {
            offset: offset.into(),
            region: region.into(),
            count: (data.len() as u32).into(),
        };
        let reply = self.ask(
            "region read",
            Command::REGION_READ,
            &[access.as_bytes()],
            &[],
        )?;
        match reply.body.get(size_of::<RegionAccess>()..) {
            Some(bytes) if bytes.len() == data.len() => data.copy_from_slice(bytes),
            _ => {
                return Err(DeviceError::Protocol(format!(
                    "{} bytes in reply to a read of {}",
                    reply.body.len(),
                    data.len()
                )));
            }
        }
        Ok(())
    }

    /// Writes without waiting for a reply.
    fn region_post(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let access = RegionAccess {
            offset: offset.into(),
            region: region.into(),
            count: (data.len() as u32).into(),
        };
        let id = self.next;
        self.next = id.wrapping_add(1);
        let parts = [access.as_bytes(), data];
        let bytes = message(id, Command::REGION_WRITE, flags::NO_REPLY, &parts);
        self.connection.send(&bytes, &[], self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_handed_to_no_other_user() {
        assert!(trusts(1000, 1000) && trusts(1000, 0) && trusts(0, 1000));
        assert!(!trusts(1000, 1001) && !trusts(1000, 65534));
    }

    /// The file of a socket says nothing of who serves it.
    #[test]
    fn who_serves_counts_and_not_whose_the_file_is() {
        use rustix::fs::{Gid, Mode, Uid, chmod, chown};
        use rustix::thread::set_thread_res_uid;
        use std::os::unix::net::UnixListener;
        if host::ids::user().unwrap() != 0 {
            eprintln!("skipped: only root can become another user");
            return;
        }
        let (client, server) = (65532, 65533);
        let folder = tempfile::tempdir().unwrap();
        // Both users go in.
        chmod(folder.path(), Mode::RWXU | Mode::RWXG | Mode::RWXO).unwrap();
        let path = folder.path().join("socket");
        // Of one thread alone.
        let become_user = |user| {
            let user = Uid::from_raw(user);
            set_thread_res_uid(user, user, user).unwrap();
        };
        let _listener = std::thread::scope(|s| {
            let listen = || {
                become_user(server);
                UnixListener::bind(&path).unwrap()
            };
            s.spawn(listen).join().unwrap()
        });
        chown(&path, Some(Uid::from_raw(client)), None::<Gid>).unwrap();
        chmod(&path, Mode::RWXU | Mode::RWXG | Mode::RWXO).unwrap();
        let error = std::thread::scope(|s| {
            let connect = || {
                become_user(client);
                let stream = UserFunction::connect_within(&path, Duration::from_millis(300));
                stream.unwrap_err()
            };
            s.spawn(connect).join().unwrap()
        });
        std::fs::remove_file(&path).unwrap();
        let refused = matches!(error, DeviceError::OtherUser { user, .. } if user == server);
        assert!(refused, "{error}");
    }
}
