//! The ways in which the conformance suite is run: fabrics, and modes of a fabric.
//!
//! [`MODES`] is the one list. A further mode is a line in it, a [`Harness`], and a test of its name
//! in `tests/tests/conformance.rs`; `cargo xtask conformance` asks the test executable for the list
//! and makes a column of every line.

use portals_shim::fabric::{self, FabricConfig, FabricError, Opened};
use portals_shim::nal::{composite, seastar, shm, verbs};

/// Joins one rank to its fabric; called on the rank's own thread, because joining may wait for the
/// other ranks.
pub type Join = Box<dyn FnOnce() -> Result<Opened, FabricError> + Send>;

/// How much of a case to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The scenario's own: thousands of rounds, megabytes.
    Full,
    /// Enough to see every path; for fabrics that are simulated or emulated.
    Small,
}

/// A fabric under test.
pub trait Harness {
    /// How much it can bear.
    fn effort(&self) -> Effort;

    /// Ranks of one process, by rank; an error says why the fabric cannot be used here.
    fn open(&self, ranks: u32) -> Result<Vec<Join>, String>;

    /// The mode is there to see messages that adapters serve alone: cases say how many they make,
    /// the run counts them, and cases without one are left out with their reason.
    fn one_sided(&self) -> bool {
        false
    }

    /// Why the case with this name cannot be played in this mode.
    fn leaves_out(&self, _case: &str) -> Option<&'static str> {
        None
    }
}

/// One way to run the suite.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its column in the table of results.
    pub name: &'static str,
    /// The test that runs it.
    pub test: &'static str,
    /// It needs the RDMA device that [`Verbs::DEVICE`] names.
    pub device: bool,
    /// Makes the harness.
    pub harness: fn() -> Box<dyn Harness>,
}

/// Every mode, in the order of the table's columns.
pub const MODES: &[Mode] = &[
    Mode {
        name: "in-process",
        test: "in_process",
        device: false,
        harness: || Box::new(InProcess),
    },
    Mode {
        name: "seastar",
        test: "seastar",
        device: false,
        harness: || Box::new(Seastar::from_env(seastar::Mode::Generic)),
    },
    Mode {
        name: "seastar accelerated",
        test: "seastar_accelerated",
        device: false,
        harness: || Box::new(Seastar::from_env(seastar::Mode::Accelerated)),
    },
    Mode {
        name: "shm",
        test: "shm",
        device: false,
        harness: || Box::new(Shm::default()),
    },
    Mode {
        name: "shm one-sided",
        test: "shm_one_sided",
        device: false,
        harness: || {
            Box::new(Shm {
                one_sided: true,
                ..Shm::default()
            })
        },
    },
    Mode {
        name: "shm without attach",
        test: "shm_without_attach",
        device: false,
        harness: || {
            Box::new(Shm {
                options: shm::Options {
                    attach: false,
                    ..shm::Options::default()
                },
                ..Shm::default()
            })
        },
    },
    Mode {
        name: "verbs",
        test: "verbs",
        device: true,
        harness: || Box::new(Verbs::from_env()),
    },
    Mode {
        name: "verbs one-sided",
        test: "verbs_one_sided",
        device: true,
        harness: || Box::new(OneSided(Verbs::from_env())),
    },
    Mode {
        name: "verbs+shm",
        test: "verbs_shm",
        device: true,
        harness: || Box::new(Composite(Verbs::from_env())),
    },
    Mode {
        name: "verbs ud",
        test: "verbs_ud",
        device: true,
        harness: || Box::new(Datagrams(Verbs::from_env())),
    },
    Mode {
        name: "verbs auto",
        test: "verbs_auto",
        device: true,
        harness: || {
            Box::new(Auto {
                verbs: Verbs::from_env(),
                tuning: None,
            })
        },
    },
    Mode {
        name: "verbs auto, moving",
        test: "verbs_auto_moving",
        device: true,
        harness: || {
            Box::new(Auto {
                verbs: Verbs::from_env(),
                tuning: Some(Auto::MOVING),
            })
        },
    },
];

/// The mode that a test runs.
///
/// # Panics
/// When there is none.
pub fn mode(test: &str) -> &'static Mode {
    let found = MODES.iter().find(|m| m.test == test);
    found.unwrap_or_else(|| panic!("no mode has the test \"{test}\""))
}

/// Queues within the process.
#[derive(Debug)]
pub struct InProcess;

impl Harness for InProcess {
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

/// The simulated SeaStar, its simulation in a thread.
#[derive(Debug)]
pub struct Seastar {
    config: FabricConfig,
}

impl Seastar {
    /// The environment variable that names the machine's parameters; `xt4` when unset.
    pub const MACHINE: &'static str = "PORTOLAN_TEST_MACHINE";

    /// The machine that the environment names.
    pub fn from_env(mode: seastar::Mode) -> Self {
        let named = std::env::var(Self::MACHINE).ok();
        let config = FabricConfig {
            machine: named
                .filter(|m| !m.is_empty())
                .unwrap_or_else(|| "xt4".to_owned()),
            mode,
            ..FabricConfig::default()
        };
        Self { config }
    }
}

impl Harness for Seastar {
    fn effort(&self) -> Effort {
        Effort::Small
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        Ok(seastar::in_threads_of(ranks, &self.config)
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|r| Box::new(move || r.join().map(Opened::from)) as Join)
            .collect())
    }
}

/// Shared memory, its ranks in threads.
#[derive(Debug, Default)]
pub struct Shm {
    /// What the kernel is not asked for.
    pub options: shm::Options,
    /// See [`Harness::one_sided`].
    pub one_sided: bool,
}

impl Harness for Shm {
    fn effort(&self) -> Effort {
        Effort::Full
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        Ok(shm::in_threads_with(ranks, self.options)
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o.into())) as Join)
            .collect())
    }

    fn one_sided(&self) -> bool {
        self.one_sided
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

    fn device(&self) -> Result<&str, String> {
        let device = self.device.as_deref();
        device.ok_or_else(|| format!("no RDMA device: {} is not set", Self::DEVICE))
    }
}

impl Harness for Verbs {
    fn effort(&self) -> Effort {
        Effort::Small
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        let device = self.device()?;
        Ok(verbs::in_threads(ranks, Some(device))
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o.into())) as Join)
            .collect())
    }
}

/// Reliable datagrams.
#[derive(Debug)]
pub struct Datagrams(pub Verbs);

impl Harness for Datagrams {
    fn effort(&self) -> Effort {
        self.0.effort()
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        let device = self.0.device()?;
        Ok(verbs::datagram::in_threads(ranks, Some(device))
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o.into())) as Join)
            .collect())
    }
}

/// Reliable datagrams, and connections to the peers that are worth one.
#[derive(Debug)]
pub struct Auto {
    /// On which device.
    pub verbs: Verbs,
    /// When a peer is worth one, if not as for users.
    pub tuning: Option<verbs::auto::Tuning>,
}

impl Auto {
    /// Pairs move in the midst of most cases, and of five ranks none has a connection to all others.
    pub const MOVING: verbs::auto::Tuning = verbs::auto::Tuning {
        chatty: 2,
        connections: 3,
    };
}

impl Harness for Auto {
    fn effort(&self) -> Effort {
        self.verbs.effort()
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        let device = self.verbs.device()?;
        Ok(verbs::auto::in_threads(ranks, Some(device), self.tuning)
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o.into())) as Join)
            .collect())
    }
}

/// RDMA verbs, and memory between ranks 0 and 1, 2 and 3, and so on.
#[derive(Debug)]
pub struct Composite(pub Verbs);

impl Harness for Composite {
    fn effort(&self) -> Effort {
        self.0.effort()
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        let device = self.0.device()?;
        Ok(composite::in_threads(ranks, 2, Some(device))
            .map_err(|e| e.to_string())?
            .into_iter()
            .map(|o| Box::new(move || Ok(o.into())) as Join)
            .collect())
    }
}

/// RDMA verbs, and the cases whose messages adapters serve alone.
#[derive(Debug)]
pub struct OneSided(pub Verbs);

impl Harness for OneSided {
    fn effort(&self) -> Effort {
        self.0.effort()
    }

    fn open(&self, ranks: u32) -> Result<Vec<Join>, String> {
        self.0.open(ranks)
    }

    fn one_sided(&self) -> bool {
        true
    }
}
