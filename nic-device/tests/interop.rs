//! Client and server against those of the crate `vfio_user`, which are not this project's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nic_device::{
    Chips, DEVICE_ID, DmaMemory, Function, Listeners, ServeOptions, UserFunction, VENDOR_ID, serve,
};
use nic_model::defs::map;
use nic_model::{Machine, RegisterIo};
use tempfile::TempDir;
use vfio_bindings::bindings::vfio as abi;
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

/// A folder for sockets, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    (folder, path)
}

#[test]
fn a_foreign_client_finds_a_seastar() {
    let (_folder, path) = place();
    let listeners = Listeners::bind(&path, 1).unwrap();
    let socket = listeners.paths().next().unwrap().to_owned();
    let thread = std::thread::spawn(move || {
        let mut chips = Chips::new(Machine::named("xt4").unwrap(), 1).unwrap();
        serve(&listeners, &mut chips, ServeOptions::once())
    });
    let mut client = vfio_user::Client::new(&socket).unwrap();
    let window = client.region(abi::VFIO_PCI_BAR0_REGION_INDEX).unwrap();
    assert_eq!(window.size, u64::from(map::WINDOW_LEN));
    let mut ids = [0; 4];
    client
        .region_read(abi::VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut ids)
        .unwrap();
    assert_eq!(ids[..2], VENDOR_ID.to_le_bytes());
    assert_eq!(ids[2..], DEVICE_ID.to_le_bytes());
    let slot = u64::from(map::ht_slot(8) - map::WINDOW);
    client.region_write(0, slot, &[1, 2, 3, 4]).unwrap();
    let mut back = [0; 4];
    client.region_read(0, slot, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    let msi = abi::VFIO_PCI_MSI_IRQ_INDEX;
    assert_eq!(client.get_irq_info(msi).unwrap().count, 1);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let trigger = abi::VFIO_IRQ_SET_ACTION_TRIGGER;
    let by_event = abi::VFIO_IRQ_SET_DATA_EVENTFD | trigger;
    client
        .set_irqs(msi, by_event, 0, 1, &[event.as_raw_fd()])
        .unwrap();
    let by_hand = abi::VFIO_IRQ_SET_DATA_NONE | trigger;
    client.set_irqs(msi, by_hand, 0, 1, &[]).unwrap();
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    let memory = DmaMemory::new(1 << 20).unwrap();
    client
        .dma_map(0, 0x1000_0000, 1 << 20, memory.as_fd().as_raw_fd())
        .unwrap();
    client.dma_unmap(0x1000_0000, 1 << 20).unwrap();
    client.reset().unwrap();
    client.region_read(0, slot, &mut back).unwrap();
    assert_eq!(back, [0; 4], "as at the start");
    drop(client);
    thread.join().unwrap().unwrap();
}

/// A function that is nothing but a window of memory and the ids of a SeaStar.
#[derive(Default)]
struct Dummy {
    words: BTreeMap<u64, [u8; 4]>,
    interrupt: Option<File>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Dummy {
    fn saw(&self, line: String) {
        self.seen.lock().unwrap().push(line);
    }
}

impl ServerBackend for Dummy {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> std::io::Result<()> {
        if region == abi::VFIO_PCI_CONFIG_REGION_INDEX && offset == 0 {
            data.copy_from_slice(&[VENDOR_ID.to_le_bytes(), DEVICE_ID.to_le_bytes()].concat());
        } else if let Some(word) = self.words.get(&offset) {
            data.copy_from_slice(word);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if region == abi::VFIO_PCI_BAR0_REGION_INDEX {
            self.words.insert(offset, data.try_into().unwrap());
            if let Some(file) = &mut self.interrupt {
                file.write_all(&1u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> std::io::Result<()> {
        self.saw(format!("map {offset} {address:#x} {size} {}", fd.is_some()));
        Ok(())
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, address: u64, size: u64) -> std::io::Result<()> {
        self.saw(format!("unmap {address:#x} {size}"));
        Ok(())
    }

    fn reset(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _flags: u32,
        _start: u32,
        _count: u32,
        mut fds: Vec<File>,
    ) -> std::io::Result<()> {
        assert_eq!(index, abi::VFIO_PCI_MSI_IRQ_INDEX);
        self.interrupt = fds.pop();
        Ok(())
    }
}

fn region(index: u32, size: u64, flags: u32, memory: Option<&DmaMemory>) -> ServerRegion {
    ServerRegion {
        region_info: abi::vfio_region_info {
            argsz: size_of::<abi::vfio_region_info>() as u32,
            flags,
            index,
            cap_offset: 0,
            size,
            offset: 0,
        },
        sparse_areas: memory
            .map(|_| SparseArea {
                area: abi::vfio_region_sparse_mmap_area { offset: 0, size },
            })
            .into_iter()
            .collect(),
        mmap_fd: memory.map(|m| m.as_fd().as_raw_fd()),
    }
}

/// The foreign server with a window that is `memory`, or goes by messages; what it was told, and
/// the function.
fn foreign(memory: Option<&DmaMemory>) -> (Arc<Mutex<Vec<String>>>, UserFunction) {
    let both = abi::VFIO_REGION_INFO_FLAG_READ | abi::VFIO_REGION_INFO_FLAG_WRITE;
    let mapped = memory.map_or(0, |_| abi::VFIO_REGION_INFO_FLAG_MMAP);
    let regions = (0..abi::VFIO_PCI_NUM_REGIONS)
        .map(|index| match index {
            abi::VFIO_PCI_BAR0_REGION_INDEX => {
                region(index, map::WINDOW_LEN.into(), both | mapped, memory)
            }
            abi::VFIO_PCI_CONFIG_REGION_INDEX => region(index, 256, both, None),
            _ => region(index, 0, 0, None),
        })
        .collect();
    let irqs = (0..abi::VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo {
            index,
            flags: abi::VFIO_IRQ_INFO_EVENTFD,
            count: u32::from(index == abi::VFIO_PCI_MSI_IRQ_INDEX),
        })
        .collect();
    let (_folder, path) = place();
    let server = Server::new(&path, true, irqs, regions).unwrap();
    let mut dummy = Dummy::default();
    let seen = Arc::clone(&dummy.seen);
    std::thread::spawn(move || {
        let _ = server.run(&mut dummy);
    });
    let function = UserFunction::connect(&path).unwrap();
    (seen, function)
}

#[test]
fn a_foreign_server_is_driven() {
    let (seen, mut function) = foreign(None);
    function.write32(map::SRAM, 0x1234_5678);
    assert_eq!(function.read32(map::SRAM), 0x1234_5678);
    assert_eq!(function.interrupts(Duration::from_secs(20)).unwrap(), 1);
    let memory = DmaMemory::new(8192).unwrap();
    function.map(&memory, 1 << 32).unwrap();
    function.unmap(1 << 32).unwrap();
    let seen = seen.lock().unwrap().join(", ");
    assert_eq!(seen, "map 0 0x100000000 8192 true, unmap 0x100000000 8192");
    assert!(function.fault().is_none());
}

#[test]
fn a_window_that_can_be_mapped_is() {
    let window = DmaMemory::new(map::WINDOW_LEN.into()).unwrap();
    let (_, mut function) = foreign(Some(&window));
    function.write32(map::NICCB, 42);
    let mut word = [0; 4];
    let offset = u64::from(map::NICCB - map::WINDOW);
    window.read(offset, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 42);
    window.write(offset, &[7, 0, 0, 0]).unwrap();
    assert_eq!(function.read32(map::NICCB), 7);
}
