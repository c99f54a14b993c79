//! Opens an interface on the fabric that a program runs on. Nothing above this module knows which that is.

mod resolve;

use crate::interface::Interface;
use crate::nal::inproc::{Hub, InProc};
use crate::trusted::TRUST;
use fabric_api::attached::Attached;
pub use fabric_api::choice::{FabricChoice, ModelOption};
pub use fabric_api::config::{Channel, FabricConfig, FabricError, FabricKind};
pub use fabric_api::identity::Wishes;
use fabric_api::identity::rank_config;
pub use fabric_api::mode::Mode;
pub use fabric_api::place::{LARGEST_PID, MOST_PER_NODE, Placement, RANK_PID};
pub use fabric_api::protocol::{Operation, Protocol, Protocols, Reached};
use launch::Job;
use portals_core::{Ni, NiConfig, ProcessId};
pub use resolve::{REASON_VARIABLE, resolve};

/// An open interface and the ids of all ranks, own included, by rank.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The interface.
    pub interface: Interface,
    /// `peers[r]` is rank `r`.
    pub peers: Vec<ProcessId>,
}

impl From<Attached> for Opened {
    fn from(attached: Attached) -> Self {
        let (interface, peers) = Interface::attached(attached);
        Self { interface, peers }
    }
}

/// The interfaces of ranks that are threads of this process, in their order.
pub fn interfaces(attached: Vec<Attached>) -> Vec<Opened> {
    attached.into_iter().map(Opened::from).collect()
}

/// Whether the fabric can be used on this machine; the error says why not. A choice without a name is that for one machine.
pub fn check(config: &FabricConfig) -> Result<(), FabricError> {
    check_for(config, None)
}

/// Checks the fabric for a job of `ranks`, if that is known: the faults that are asked for are of nodes
/// that it has.
pub fn check_for(config: &FabricConfig, ranks: Option<u32>) -> Result<(), FabricError> {
    if config.kind() != FabricKind::Seastar
        && (config.faults.is_some() || config.fault_seed.is_some())
    {
        let reason = "faults can be chosen for the SeaStar model only: --fabric seastar".to_owned();
        return Err(FabricError::Faults { reason });
    }
    match config.kind() {
        #[cfg(feature = "seastar")]
        FabricKind::Seastar => {
            use crate::nal::seastar;
            seastar::check_map(config, ranks).map_err(|reason| FabricError::Map { reason })?;
            seastar::check_faults(config, ranks)
                .map_err(|reason| FabricError::Faults { reason })?;
            seastar::check(config)
        }
        #[cfg(feature = "verbs")]
        FabricKind::Verbs => crate::nal::verbs::check(config.device.as_deref()),
        FabricKind::Shm => crate::nal::shm::check(ranks),
        #[cfg(not(all(feature = "seastar", feature = "verbs")))]
        _ => Err(NOT_BUILT.to_owned()),
    }
    .map_err(|reason| FabricError::Unusable {
        kind: config.kind(),
        reason,
    })
}

/// Why a fabric of which the program has nothing cannot be used.
#[cfg(not(all(feature = "seastar", feature = "verbs")))]
pub(crate) const NOT_BUILT: &str =
    "this program was built without it; see the features of the crate portals-shim";

/// Which protocol carries which operation on this fabric, by the machine, the device and the environment: a table for each
/// way that messages go.
///
/// # Errors
/// The fabric cannot be used here.
///
/// ```
/// use portals_shim::fabric::{FabricConfig, FabricKind, Operation, Reached, protocols};
///
/// let config = FabricConfig { fabric: FabricKind::Shm.into(), ..FabricConfig::default() };
/// let tables = protocols(&config)?;
/// let row = tables[0].of(Operation::Put, Reached::Matched, 8).unwrap();
/// assert_eq!(row.name, "short");
/// # Ok::<(), portals_shim::fabric::FabricError>(())
/// ```
pub fn protocols(config: &FabricConfig) -> Result<Vec<Protocols>, FabricError> {
    let by_memory = || fabric_shm::protocols::protocols(fabric_shm::check_copies().is_ok());
    match config.kind() {
        FabricKind::Shm => Ok(vec![by_memory()]),
        #[cfg(feature = "verbs")]
        FabricKind::Verbs => {
            let device = config.device.as_deref();
            let far = fabric_verbs::protocols::protocols(device, config.channel);
            far.map(|mut far| {
                if config.most_sharing != 1 {
                    far.push(by_memory());
                }
                far
            })
        }
        #[cfg(feature = "seastar")]
        FabricKind::Seastar => {
            fabric_seastar::protocols::protocols(config).map(|table| vec![table])
        }
        #[cfg(not(all(feature = "seastar", feature = "verbs")))]
        _ => Err(NOT_BUILT.to_owned()),
    }
    .map_err(|reason| FabricError::Unusable {
        kind: config.kind(),
        reason,
    })
}

/// Prints the tables if the user asks for them by `PORTOLAN_PROTO_INFO`.
fn say_protocols(config: &FabricConfig) {
    if !fabric_api::protocol::is_wanted() {
        return;
    }
    match protocols(config) {
        Ok(tables) => {
            let text: String = tables.iter().map(ToString::to_string).collect();
            host::say::say(format_args!("{}", text.trim_end()));
        }
        Err(error) => host::say::say(format_args!("no table of protocols: {error}")),
    }
}

/// Opens the fabric; collective over the job.
pub fn open(job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    launch::stdio::occupy();
    open_wishing(job, config, None)
}

/// Opens the fabric with wishes; collective over the job, whose ranks all call this one or all [`open`].
pub fn open_with(job: &Job, config: &FabricConfig, wishes: &Wishes) -> Result<Opened, FabricError> {
    launch::stdio::occupy();
    open_wishing(job, config, Some(wishes))
}

fn open_wishing(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    if job.rank() == 0 {
        host::variables::say_unknown();
    }
    let config = &resolve(job, config)?;
    let attached = match config.kind() {
        #[cfg(feature = "seastar")]
        FabricKind::Seastar => crate::nal::seastar::open(job, config, wishes),
        #[cfg(feature = "verbs")]
        FabricKind::Verbs => crate::nal::composite::open(job, config, wishes),
        FabricKind::Shm => crate::nal::shm::open(job, config, wishes),
        #[cfg(not(all(feature = "seastar", feature = "verbs")))]
        kind => Err(FabricError::Unusable {
            kind,
            reason: NOT_BUILT.to_owned(),
        }),
    };
    let attached = attached.map_err(resolve::explain)?;
    if job.rank() == 0 {
        say_protocols(config);
    }
    Ok(attached.into())
}

/// `n` interfaces joined within this process, one for each of `n` threads: a fabric for tests.
pub fn in_process(n: u32) -> Vec<Opened> {
    in_process_placed(n, Placement::ONE)
}

/// An interface of one process that reaches itself alone; its node is that of [`Placement::ONE`].
pub fn alone(config: NiConfig) -> Opened {
    let id = config.id;
    let nal = InProc::new(Hub::new(vec![id], Placement::ONE), 0, TRUST);
    Attached::unattended(Ni::new(config), nal, vec![id], TRUST).into()
}

/// Joins `n` interfaces within this process, several of which are on a node; see [`in_process`].
pub fn in_process_placed(n: u32, place: Placement) -> Vec<Opened> {
    let configs: Vec<_> = (0..n).map(|r| rank_config(place, r, 1)).collect();
    let peers: Vec<_> = configs.iter().map(|c| c.id).collect();
    let hub = Hub::new(peers.clone(), place);
    (0..)
        .zip(configs)
        .map(|(own, config)| {
            let nal = InProc::new(hub.clone(), own, TRUST);
            Attached::unattended(Ni::new(config), nal, peers.clone(), TRUST).into()
        })
        .collect()
}
