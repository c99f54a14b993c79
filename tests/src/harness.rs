//! The fabrics that the conformance suite runs on.

use portals_shim::fabric::{self, FabricError, Opened};
use portals_shim::nal::{seastar, verbs};

/// Joins one rank to its fabric; called on the rank's own thread, because joining may wait for the
/// other ranks.
pub type Join = Box<dyn FnOnce() -> Result<Opened, FabricError> + Send>;

/// How much of a case to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As the scenario says: thousands of rounds, megabytes.
    Full,
    /// Enough to see every path; for fabrics that are simulated or emulated.
    Small,
}

/// A fabric under test.
pub trait Harness {
    /// Its name.
    fn name(&self) -> &'static str;

    /// How much it can bear.
    fn effort(&self) -> Effort;

    /// Ranks of one process, by rank; an error says why the fabric cannot be used here.
    fn open(&self, ranks: u32) -> Result<Vec<Join>, String>;
}

/// Queues within the process.
#[derive(Debug)]
pub struct InProcess;

impl Harness for InProcess {
    fn name(&self) -> &'static str {
        "in-process"
    }

    fn effort(&self) -> Effort {
        Effort::Full
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        Ok(fabric::in_process(ranks)
            .into_iter()
            .map(|o| Box::new(move || Ok(o)) as Join)
            .collect())
    }
}

/// The simulated SeaStar, its simulation in a thread, with this machine's parameters.
#[derive(Debug)]
pub struct Seastar(pub &'static str);

impl Harness for Seastar {
    fn name(&self) -> &'static str {
        "seastar"
    }

    fn effort(&self) -> Effort {
        Effort::Small
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        Ok(seastar::in_threads(ranks, self.0)
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|r| Box::new(move || r.join()) as Join)
            .collect())
    }
}

/// RDMA verbs on this device, usually [`Verbs::from_env`].
#[derive(Debug)]
pub struct Verbs {
    device: Option<String>,
}

impl Verbs {
    /// The environment variable that names the device.
    pub const DEVICE: &'static str = "PORTOLAN_TEST_DEVICE";

    /// The device that the environment names.
    pub fn from_env() -> Self {
        Self {
            device: std::env::var(Self::DEVICE).ok().filter(|d| !d.is_empty()),
        }
    }
}

impl Harness for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn effort(&self) -> Effort {
        Effort::Small
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        let device = self
            .device
            .as_deref()
            .ok_or_else(|| format!("no RDMA device: {} is not set", Self::DEVICE))?;
        Ok(verbs::in_threads(ranks, Some(device))
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o)) as Join)
            .collect())
    }
}
