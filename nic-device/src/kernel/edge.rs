//! The ioctls of VFIO, each as a function.
// UNSAFETY: ioctl is variadic and takes pointers to structures; memory given to the IOMMU must
// stay mapped.
#![expect(
    unsafe_code,
    reason = "ioctl is variadic and takes pointers to structures"
)]

use std::ffi::{CString, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vfio_bindings::bindings::vfio as abi;

use crate::error::DeviceError;
use crate::memory::DmaMemory;

/// Number `n` of VFIO's ioctls: `_IO(';', 100 + n)`, without a size.
const fn request(n: u32) -> libc::c_ulong {
    ((abi::VFIO_TYPE as u32) << 8 | (abi::VFIO_BASE + n)) as libc::c_ulong
}

const GET_API_VERSION: libc::c_ulong = request(0);
const CHECK_EXTENSION: libc::c_ulong = request(1);
const SET_IOMMU: libc::c_ulong = request(2);
const GROUP_GET_STATUS: libc::c_ulong = request(3);
const GROUP_SET_CONTAINER: libc::c_ulong = request(4);
const GROUP_GET_DEVICE_FD: libc::c_ulong = request(6);
const DEVICE_GET_INFO: libc::c_ulong = request(7);
const DEVICE_GET_REGION_INFO: libc::c_ulong = request(8);
const DEVICE_GET_IRQ_INFO: libc::c_ulong = request(9);
const DEVICE_SET_IRQS: libc::c_ulong = request(10);
const IOMMU_MAP_DMA: libc::c_ulong = request(13);
const IOMMU_UNMAP_DMA: libc::c_ulong = request(14);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// An ioctl whose argument is a number.
fn with_number(
    fd: &impl AsRawFd,
    request: libc::c_ulong,
    number: libc::c_ulong,
) -> io::Result<libc::c_int> {
    // SAFETY: the requests passed here (API version, extension, IOMMU type) take their argument
    // by value; another file refuses them.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request, number) })
}

/// An ioctl whose argument is a structure that begins with its own size, or a plain integer.
fn with<T>(fd: &impl AsRawFd, request: libc::c_ulong, value: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `value` is exclusively borrowed, and every caller in this file passes the type that
    // its request reads and writes, with `argsz` set to that type's size.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(value)) })
}

/// Whether `file` is VFIO's container with an IOMMU of type 1.
pub(super) fn is_container(file: &File) -> bool {
    let version = with_number(file, GET_API_VERSION, 0);
    let type1 = with_number(file, CHECK_EXTENSION, abi::VFIO_TYPE1_IOMMU.into());
    version.is_ok_and(|v| v.cast_unsigned() == abi::VFIO_API_VERSION) && type1.is_ok_and(|t| t == 1)
}

/// Whether all functions of a group are VFIO's.
pub(super) fn is_viable(group: &File) -> Result<bool, DeviceError> {
    let mut status = abi::vfio_group_status {
        argsz: size_of::<abi::vfio_group_status>() as u32,
        flags: 0,
    };
    with(group, GROUP_GET_STATUS, &mut status)
        .map_err(DeviceError::system("ask for the group's state"))?;
    Ok(status.flags & abi::VFIO_GROUP_FLAGS_VIABLE != 0)
}

/// Puts the group into the container and switches translation on.
pub(super) fn join(group: &File, container: &File) -> Result<(), DeviceError> {
    let mut fd = container.as_raw_fd();
    with(group, GROUP_SET_CONTAINER, &mut fd)
        .map_err(DeviceError::system("put the group into a container"))?;
    with_number(container, SET_IOMMU, abi::VFIO_TYPE1_IOMMU.into())
        .map_err(DeviceError::system("switch translation on"))?;
    Ok(())
}

/// The descriptor of a function of the group.
pub(super) fn device(group: &File, address: &str) -> Result<OwnedFd, DeviceError> {
    let name = CString::new(address).map_err(|_| DeviceError::Address(address.to_owned()))?;
    // SAFETY: `name` lives through the call and ends with a zero byte, which is where the kernel
    // stops reading.
    let got = unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD, name.as_ptr()) };
    let fd = checked(got).map_err(DeviceError::system(format!("open function {address}")))?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Regions and interrupts of a device.
pub(super) fn device_info(device: &OwnedFd) -> Result<(u32, u32), DeviceError> {
    let mut info = abi::vfio_device_info {
        argsz: size_of::<abi::vfio_device_info>() as u32,
        ..Default::default()
    };
    with(device, DEVICE_GET_INFO, &mut info)
        .map_err(DeviceError::system("ask what the function has"))?;
    Ok((info.num_regions, info.num_irqs))
}

/// Where a region is.
pub(super) fn region_info(
    device: &OwnedFd,
    index: u32,
) -> Result<abi::vfio_region_info, DeviceError> {
    let mut info = abi::vfio_region_info {
        argsz: size_of::<abi::vfio_region_info>() as u32,
        index,
        ..Default::default()
    };
    with(device, DEVICE_GET_REGION_INFO, &mut info)
        .map_err(DeviceError::system(format!("ask for region {index}")))?;
    Ok(info)
}

/// Whether interrupts of a kind can be had as events.
pub(super) fn has_interrupt(device: &OwnedFd, index: u32) -> bool {
    let mut info = abi::vfio_irq_info {
        argsz: size_of::<abi::vfio_irq_info>() as u32,
        index,
        ..Default::default()
    };
    with(device, DEVICE_GET_IRQ_INFO, &mut info).is_ok()
        && info.count > 0
        && info.flags & abi::VFIO_IRQ_INFO_EVENTFD != 0
}

/// [`abi::vfio_irq_set`] with room for one descriptor.
#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    fd: i32,
}

const _: () =
    assert!(std::mem::offset_of!(IrqSet, fd) == std::mem::offset_of!(abi::vfio_irq_set, data));

/// Has interrupts of a kind counted by `event`.
pub(super) fn set_interrupt(
    device: &OwnedFd,
    index: u32,
    event: &OwnedFd,
) -> Result<(), DeviceError> {
    let mut set = IrqSet {
        argsz: size_of::<IrqSet>() as u32,
        flags: abi::VFIO_IRQ_SET_DATA_EVENTFD | abi::VFIO_IRQ_SET_ACTION_TRIGGER,
        index,
        start: 0,
        count: 1,
        fd: event.as_raw_fd(),
    };
    with(device, DEVICE_SET_IRQS, &mut set).map_err(DeviceError::system("set the interrupt up"))?;
    Ok(())
}

/// Memory that the IOMMU translates to. Dropping it without [`MappedMemory::unmap`] leaves the
/// pages pinned until the container is closed; they are not reused, because the mapping's file
/// pages are the kernel's to keep.
#[derive(Debug)]
pub(super) struct MappedMemory {
    base: NonNull<c_void>,
    length: usize,
    address: u64,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for MappedMemory {}

impl MappedMemory {
    /// Maps `memory` into this process, and for the devices of `container` at `address`.
    pub(super) fn new(
        container: &File,
        memory: &DmaMemory,
        address: u64,
    ) -> Result<Self, DeviceError> {
        let length = usize::try_from(memory.length())
            .ok()
            .filter(|&length| length > 0)
            .ok_or(DeviceError::Lacks("memory to map"))?;
        // SAFETY: without an address hint or MAP_FIXED a new mapping touches nothing that exists.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory.as_fd(),
                0,
            )
        }
        .map_err(DeviceError::system("map memory"))?;
        let base = NonNull::new(base).ok_or(DeviceError::Lacks("memory to map"))?;
        let mapped = Self {
            base,
            length,
            address,
        };
        let mut map = abi::vfio_iommu_type1_dma_map {
            argsz: size_of::<abi::vfio_iommu_type1_dma_map>() as u32,
            flags: abi::VFIO_DMA_MAP_FLAG_READ | abi::VFIO_DMA_MAP_FLAG_WRITE,
            vaddr: base.as_ptr().expose_provenance() as u64,
            iova: address,
            size: memory.length(),
        };
        with(container, IOMMU_MAP_DMA, &mut map).map_err(DeviceError::system(format!(
            "map {length} bytes for the device at {address:#x}"
        )))?;
        Ok(mapped)
    }

    /// Takes the memory away from the devices.
    pub(super) fn unmap(self, container: &File) -> Result<(), DeviceError> {
        let mut unmap = abi::vfio_iommu_type1_dma_unmap {
            argsz: size_of::<abi::vfio_iommu_type1_dma_unmap>() as u32,
            iova: self.address,
            size: self.length as u64,
            ..Default::default()
        };
        with(container, IOMMU_UNMAP_DMA, &mut unmap)
            .map_err(DeviceError::system("unmap memory of the device"))?;
        Ok(())
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped. Nothing in this process points into it; a device
        // that still has it keeps the pages themselves.
        let _ = unsafe { munmap(self.base.as_ptr(), self.length) };
    }
}
