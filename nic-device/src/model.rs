//! A chip of the model in this process.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use nic_model::{NodeId, RegisterIo};

use crate::chips::{Chips, TOUCH};
use crate::dma::DmaMapError;
use crate::error::DeviceError;
use crate::function::Function;
use crate::memory::DmaMemory;

/// One chip of [`Chips`] in this process.
#[derive(Debug, Clone)]
pub struct ModelFunction {
    chips: Rc<RefCell<Chips>>,
    node: NodeId,
}

impl ModelFunction {
    /// A function for each of the chips.
    #[must_use]
    pub fn all(chips: Chips) -> Vec<Self> {
        let mut chips = chips;
        let nodes = chips.nodes();
        for n in 0..nodes {
            chips.listen(NodeId(n), true);
        }
        let chips = Rc::new(RefCell::new(chips));
        let function = |n| Self {
            chips: Rc::clone(&chips),
            node: NodeId(n),
        };
        (0..nodes).map(function).collect()
    }
}

impl RegisterIo for ModelFunction {
    fn read32(&mut self, address: u32) -> u32 {
        let mut chips = self.chips.borrow_mut();
        chips.touched(self.node);
        chips.advance(TOUCH);
        chips.read32(self.node, address)
    }

    fn write32(&mut self, address: u32, value: u32) {
        let mut chips = self.chips.borrow_mut();
        chips.touched(self.node);
        chips.write32(self.node, address, value);
    }
}

impl Function for ModelFunction {
    fn map(&mut self, memory: &DmaMemory, address: u64) -> Result<(), DeviceError> {
        let file = memory
            .as_fd()
            .try_clone_to_owned()
            .map_err(DeviceError::system("duplicate a descriptor"))?;
        let mut chips = self.chips.borrow_mut();
        if let Some(map) = chips.memory(self.node) {
            map.map(address, memory.length(), (file, 0), (true, true))?;
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64) -> Result<(), DeviceError> {
        let mut chips = self.chips.borrow_mut();
        let map = chips.memory(self.node);
        let none = DmaMapError::NotMapped { address, size: 0 };
        let map = map.ok_or(none)?;
        let size = map.size_at(address).ok_or(none)?;
        map.unmap(address, size)?;
        Ok(())
    }

    /// With patience, virtual time passes instead of wall time.
    fn interrupts(&mut self, patience: Duration) -> Result<u64, DeviceError> {
        let mut chips = self.chips.borrow_mut();
        if !patience.is_zero() {
            chips.touched(self.node);
            chips.advance(TOUCH);
        }
        Ok(chips.take_interrupts(self.node))
    }

    fn fault(&self) -> Option<&DeviceError> {
        None
    }
}
