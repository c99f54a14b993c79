//! A PCI function of this machine, through the kernel's VFIO.

mod edge;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nic_model::RegisterIo;
use nic_model::defs::map::WINDOW_LEN;
use rustix::event::{EventfdFlags, eventfd};
use vfio_bindings::bindings::vfio as abi;

use crate::bar::MappedBar;
use crate::client::count;
use crate::dma::DmaMapError;
use crate::error::DeviceError;
use crate::function::Function;
use crate::memory::{DmaMemory, read_at, write_at};
use crate::pci::{COMMAND, DEVICE_ID, MEMORY_AND_MASTER, VENDOR_ID};
use edge::MappedMemory;

/// A SeaStar in a slot of this machine.
///
/// Opening it is all that has been tried: no such card is at hand.
#[derive(Debug)]
pub struct KernelFunction {
    bar: MappedBar,
    interrupt: OwnedFd,
    mapped: BTreeMap<u64, MappedMemory>,
    /// Ends the device's use when closed, before the group and the container.
    _device: OwnedFd,
    _group: File,
    container: File,
}

/// Where the kernel shows devices and VFIO.
#[derive(Debug, Clone, Copy)]
struct Roots<'a> {
    sys: &'a Path,
    dev: &'a Path,
}

/// Whether `text` is `domain:bus:device.function`.
fn is_address(text: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut parts = text.split([':', '.']);
    let mut part = |length| parts.next().is_some_and(|p| hex(p, length));
    let fields = part(4) && part(2) && part(2) && part(1);
    let separators = text
        .match_indices([':', '.'])
        .map(|(_, s)| s)
        .collect::<String>();
    fields && parts.next().is_none() && separators == "::."
}

/// Says what an error of opening `path` means for the user.
fn opening(
    path: PathBuf,
    missing: impl FnOnce(PathBuf) -> DeviceError,
    error: io::Error,
) -> DeviceError {
    match error.kind() {
        io::ErrorKind::NotFound => missing(path),
        io::ErrorKind::PermissionDenied => DeviceError::NotPermitted { path },
        io::ErrorKind::ResourceBusy => DeviceError::Busy { path },
        _ => DeviceError::system(format!("open {}", path.display()))(error),
    }
}

fn open_file(
    path: PathBuf,
    missing: impl FnOnce(PathBuf) -> DeviceError,
) -> Result<File, DeviceError> {
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => Ok(file),
        Err(error) => Err(opening(path, missing, error)),
    }
}

impl KernelFunction {
    /// Opens the function at `address` (`0000:03:00.0`), which must be bound to `vfio-pci`.
    ///
    /// # Errors
    /// Each step's failure is an error of its own that says what to do about it.
    pub fn open(address: &str) -> Result<Self, DeviceError> {
        let roots = Roots {
            sys: Path::new("/sys"),
            dev: Path::new("/dev"),
        };
        Self::open_at(roots, address)
    }

    fn open_at(roots: Roots<'_>, address: &str) -> Result<Self, DeviceError> {
        let address = address.to_ascii_lowercase();
        if !is_address(&address) {
            return Err(DeviceError::Address(address));
        }
        let function = roots.sys.join("bus/pci/devices").join(&address);
        if !function.exists() {
            return Err(DeviceError::NoFunction {
                address,
                path: function,
            });
        }
        let group = std::fs::read_link(function.join("iommu_group"))
            .ok()
            .and_then(|link| link.file_name().map(|n| n.to_string_lossy().into_owned()));
        let Some(number) = group else {
            return Err(DeviceError::NoGroup(address));
        };
        let path = roots.dev.join("vfio/vfio");
        let container = open_file(path.clone(), |path| DeviceError::NoVfio { path })?;
        if !edge::is_container(&container) {
            return Err(DeviceError::NotVfio { path });
        }
        let path = roots.dev.join("vfio").join(&number);
        let missing = |path| DeviceError::NotBound {
            address: address.clone(),
            path,
        };
        let group = open_file(path.clone(), missing)?;
        if !edge::is_viable(&group)? {
            return Err(DeviceError::NotViable { group: number });
        }
        edge::join(&group, &container)?;
        let device = edge::device(&group, &address)?;
        Self::set_up(container, group, device)
    }

    fn set_up(container: File, group: File, device: OwnedFd) -> Result<Self, DeviceError> {
        let (regions, interrupts) = edge::device_info(&device)?;
        if regions <= abi::VFIO_PCI_CONFIG_REGION_INDEX {
            return Err(DeviceError::Lacks("PCI regions"));
        }
        let config = edge::region_info(&device, abi::VFIO_PCI_CONFIG_REGION_INDEX)?;
        let mut ids = [0; 4];
        read_at(device.as_fd(), config.offset, &mut ids)
            .map_err(DeviceError::system("read the configuration space"))?;
        let [v0, v1, d0, d1] = ids;
        let (vendor, id) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([d0, d1]));
        if (vendor, id) != (VENDOR_ID, DEVICE_ID) {
            return Err(DeviceError::NotSeaStar { vendor, device: id });
        }
        write_at(
            device.as_fd(),
            config.offset + COMMAND as u64,
            &MEMORY_AND_MASTER.to_le_bytes(),
        )
        .map_err(DeviceError::system("switch the function on"))?;
        let window = edge::region_info(&device, abi::VFIO_PCI_BAR0_REGION_INDEX)?;
        if window.size != u64::from(WINDOW_LEN)
            || window.flags & abi::VFIO_REGION_INFO_FLAG_MMAP == 0
        {
            return Err(DeviceError::Lacks("register window of 2 MiB at BAR 0"));
        }
        let bar = MappedBar::map(device.as_fd(), window.offset)?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(DeviceError::system("make an event descriptor"))?;
        let kinds = [abi::VFIO_PCI_MSI_IRQ_INDEX, abi::VFIO_PCI_INTX_IRQ_INDEX];
        let mut offered = kinds
            .into_iter()
            .filter(|&kind| kind < interrupts && edge::has_interrupt(&device, kind));
        let kind = offered.next().ok_or(DeviceError::Lacks("interrupt"))?;
        edge::set_interrupt(&device, kind, &interrupt)?;
        Ok(Self {
            bar,
            interrupt,
            mapped: BTreeMap::new(),
            _device: device,
            _group: group,
            container,
        })
    }
}

impl RegisterIo for KernelFunction {
    fn read32(&mut self, address: u32) -> u32 {
        self.bar.read32(address)
    }

    fn write32(&mut self, address: u32, value: u32) {
        self.bar.write32(address, value);
    }
}

impl Function for KernelFunction {
    fn map(&mut self, memory: &DmaMemory, address: u64) -> Result<(), DeviceError> {
        let mapped = MappedMemory::new(&self.container, memory, address)?;
        self.mapped.insert(address, mapped);
        Ok(())
    }

    fn unmap(&mut self, address: u64) -> Result<(), DeviceError> {
        let mapped = self
            .mapped
            .remove(&address)
            .ok_or(DmaMapError::NotMapped { address, size: 0 })?;
        mapped.unmap(&self.container)
    }

    fn interrupts(&mut self, patience: Duration) -> Result<u64, DeviceError> {
        count(self.interrupt.as_fd(), patience)
    }

    fn fault(&self) -> Option<&DeviceError> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const FUNCTION: &str = "0000:03:00.0";

    /// A folder that stands for `/sys` and `/dev`, removed at the end.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            for folder in ["dev/vfio", "sys/bus/pci/devices"] {
                std::fs::create_dir_all(root.path().join(folder)).unwrap();
            }
            Self(root)
        }

        fn function(&self) -> PathBuf {
            let folder = self.0.path().join("sys/bus/pci/devices").join(FUNCTION);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        }

        fn open(&self) -> DeviceError {
            let roots = Roots {
                sys: &self.0.path().join("sys"),
                dev: &self.0.path().join("dev"),
            };
            KernelFunction::open_at(roots, FUNCTION).unwrap_err()
        }
    }

    #[test]
    fn only_pci_addresses_are_looked_for() {
        assert!(is_address("0000:03:00.0") && is_address("00ff:a0:1f.7"));
        for bad in [
            "",
            "3:0.0",
            "0000:03:00",
            "../../etc",
            "0000:03:00.0.0",
            "0000.03:00:0",
            "000g:03:00.0",
        ] {
            assert!(!is_address(bad), "{bad}");
            let error = KernelFunction::open(bad).unwrap_err().to_string();
            assert!(error.contains("lspci -D"), "{error}");
        }
    }

    #[test]
    fn each_missing_step_says_what_to_do() {
        let machine = Machine::new();
        let error = machine.open();
        assert!(matches!(error, DeviceError::NoFunction { .. }), "{error}");
        let folder = machine.function();
        let error = machine.open();
        assert!(matches!(error, DeviceError::NoGroup(_)), "{error}");
        assert!(error.to_string().contains("iommu=on"));
        symlink(
            "../../../kernel/iommu_groups/17",
            folder.join("iommu_group"),
        )
        .unwrap();
        let error = machine.open();
        assert!(matches!(error, DeviceError::NoVfio { .. }), "{error}");
        assert!(error.to_string().contains("modprobe vfio-pci"));
        std::fs::write(machine.0.path().join("dev/vfio/vfio"), "").unwrap();
        let error = machine.open();
        assert!(matches!(error, DeviceError::NotVfio { .. }), "{error}");
    }

    #[test]
    fn a_group_that_cannot_be_opened_says_why() {
        let path = || PathBuf::from("/dev/vfio/17");
        let missing = |path| DeviceError::NotBound {
            address: FUNCTION.to_owned(),
            path,
        };
        let said = |kind: io::ErrorKind| opening(path(), missing, kind.into()).to_string();
        assert!(said(io::ErrorKind::NotFound).contains("driver_override"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("chown"));
        assert!(said(io::ErrorKind::ResourceBusy).contains("in use"));
        assert!(said(io::ErrorKind::OutOfMemory).contains("cannot open /dev/vfio/17"));
    }

    #[test]
    fn a_file_that_is_no_group_is_refused() {
        let file = File::open("/dev/null").unwrap();
        assert!(edge::is_viable(&file).is_err());
        assert!(!edge::is_container(&file));
        assert!(edge::join(&file, &file).is_err());
        assert!(edge::device(&file, FUNCTION).is_err());
        let fd = OwnedFd::from(file);
        assert!(edge::device_info(&fd).is_err());
        assert!(edge::region_info(&fd, 0).is_err());
        assert!(!edge::has_interrupt(&fd, 1));
        assert!(edge::set_interrupt(&fd, 1, &fd).is_err());
        let memory = DmaMemory::new(4096).unwrap();
        assert!(MappedMemory::new(&File::from(fd), &memory, 0).is_err());
    }
}
