//! The adapter and the port that a rank uses.

use super::queues::Queues;
use verbs_backend::{Access, Device, Pd, PortInfo, Qp, Route};

/// A device that is open, and which port of it by which address.
#[derive(Debug)]
pub(crate) struct Adapter {
    device: Device,
    port: u8,
    gid_index: Option<u8>,
    route: Route,
    /// Longest message of the port, bytes.
    max_message: u64,
}

impl Adapter {
    pub(crate) fn new(
        device: Device,
        port: &PortInfo,
        gid_index: Option<u8>,
        route: Route,
    ) -> Self {
        Self {
            device,
            port: port.number,
            gid_index,
            route,
            max_message: u64::from(port.message_bytes.max(4096)),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn port(&self) -> u8 {
        self.port
    }

    /// Longest message of the port, bytes.
    #[inline(always)]
    pub(crate) fn max_message(&self) -> u64 {
        self.max_message
    }

    /// A queue pair ready for a peer's address, with room for so many requests.
    pub(crate) fn queue_pair(&self, pd: &Pd, queues: &Queues, depth: u32) -> Result<Qp, String> {
        let mut options = queues.options();
        options.max_send = depth;
        options.port = self.port;
        options.gid_index = self.gid_index;
        options.route = self.route;
        // SoftRoCE takes 7, the most, for no limit: a peer that is gone would never be noticed.
        options.retry_count = 6;
        // Each region says what peers may do to it; none allows atomic operations.
        options.access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let qp = Qp::new(pd, &options).map_err(|e| e.to_string())?;
        qp.init().map_err(|e| e.to_string())?;
        Ok(qp)
    }
}
