//! What developers run: `cargo xtask test`, `cargo xtask perf`, `cargo xtask install`.

mod am_trip;
mod architectures;
mod book;
mod calibration;
mod cargo;
mod conformance;
mod crates;
mod credits;
mod datagrams;
mod device;
mod endtoend;
mod faults;
mod growth;
mod heap;
mod hostile;
mod hosts;
mod install;
mod kills;
mod launchers;
mod mpi;
mod package;
mod packages;
mod perf;
mod perf_shm;
mod slides;
mod sound;
mod tag_oracle;
mod test;
mod wait;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer tasks of Portolan
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything: formatting, lints, documentation, tests here, tests on SoftRoCE in a guest
    Test(test::Options),
    /// Portals and conduit operations beside perftest, in one guest, as ratios
    Perf(perf::Options),
    /// Jobs over shared memory of which a rank is killed at a random moment: each ends, and leaves nothing
    Kills(kills::Options),
    /// The conformance suite on every fabric, as a page of the book
    Conformance(conformance::Options),
    /// Faults made in running jobs over verbs, in a guest: what each prints, and that it is as documented
    Faults(faults::Options),
    /// Every way in which a job can end, over shared memory, on the model, and over verbs in a guest
    Exits,
    /// The same C programs started by every launcher, and how jobs of each end, as a table
    Launchers(launchers::Options),
    /// MPIs that are installed here over the libfabric provider: messages, windows, threads, killed ranks, as a table
    Mpi(mpi::Options),
    /// heat3d and gups with arrays on the heap, in processes that may lock 64 MiB: on the model, and over verbs in a guest
    Heap,
    /// One program in containers, namespaces, limits, refused system calls and nested launchers: the same result, or a reason
    Hostile(hostile::Options),
    /// heat3d on 4 ranks of two guests, started by mpiexec on one of them
    TwoHosts,
    /// The SeaStar model beside published measurements, as a page of the book
    Calibration(calibration::Options),
    /// How credits move in a large job, simulated, as a picture and a table of the book
    Credits,
    /// Reliable datagrams, simulated: table of loss and reordering, every schedule of a small configuration, 10,000 peers,
    /// many to one
    Datagrams(datagrams::Options),
    /// Pictures of the published comparison of conduits, modelled and measured in a guest, and the ratios at 8 bytes; or by GASNet's
    /// own programs
    Slides(slides::Options),
    /// Tag matching under random use on every fabric, over RDMA in a guest
    TagOracle(tag_oracle::Options),
    /// Regions and the fabric within a process under ThreadSanitizer: no data races
    Races(sound::Options),
    /// Resident memory over a million operations of each kind of tags, conduit and Portals, as a table
    Growth(growth::Options),
    /// What a round trip of an active message costs on the model: time, traps, packets, interrupts, as a table
    /// of the book
    AmTrip,
    /// Runs the console blocks of README and book, and compares what they print with the pages
    Book(book::Options),
    /// Headers and libraries for C programs, and the commands, under a prefix
    Install(install::Options),
    /// An installation as a tarball, a Debian package, an RPM and a Python wheel
    Package(package::Options),
    /// What `cargo publish` would send to a registry, each crate compiled from its archive
    Crates(crates::Options),
    /// Runs inside the guest: the device tests
    #[command(hide = true)]
    InGuest(device::InGuest),
    /// Runs inside the guest: the conformance suite and the C programs
    #[command(hide = true)]
    ConformanceInGuest(conformance::InGuest),
    /// Runs inside the first of two guests
    #[command(hide = true)]
    HostsInGuest(hosts::InGuest),
    /// Runs inside the guest: the programs with arrays on the heap
    #[command(hide = true)]
    HeapInGuest(heap::InGuest),
    /// Runs inside the guest: the environments
    #[command(hide = true)]
    HostileInGuest(hostile::InGuest),
    /// Runs as another user: connects to what listens
    #[command(hide = true)]
    Stranger(hostile::strangers::Options),
    /// Runs in a network namespace: jobs with strangers at their sockets
    #[command(hide = true)]
    Strangers(hostile::strangers::Inside),
    /// Runs inside the guest: the faults
    #[command(hide = true)]
    FaultsInGuest(faults::InGuest),
    /// Runs inside the guest: the exits
    #[command(hide = true)]
    ExitsInGuest,
    /// Runs inside the guest: the measurements
    #[command(hide = true)]
    PerfInGuest(perf::InGuest),
}

fn run() -> Result<()> {
    match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Perf(options) => perf::run(&options),
        Task::Kills(options) => kills::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Faults(options) => faults::run(&options),
        Task::Exits => faults::exits::run(),
        Task::Mpi(options) => mpi::run(&options),
        Task::Launchers(options) => launchers::run(&options),
        Task::Heap => heap::run(),
        Task::Hostile(options) => hostile::run(&options),
        Task::TwoHosts => hosts::two_hosts(),
        Task::Calibration(options) => calibration::run(&options),
        Task::Credits => credits::run(),
        Task::Datagrams(options) => datagrams::run(&options),
        Task::Slides(options) => slides::run(&options),
        Task::TagOracle(options) => tag_oracle::run(&options),
        Task::Races(options) => sound::races(&options),
        Task::Growth(options) => growth::run(&options),
        Task::AmTrip => am_trip::run(),
        Task::Book(options) => book::run(&options),
        Task::Install(options) => install::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Crates(options) => crates::run(&options),
        Task::InGuest(options) => device::in_guest(&options),
        Task::ConformanceInGuest(options) => conformance::in_guest(&options),
        Task::HeapInGuest(options) => heap::in_guest(&options),
        Task::HostileInGuest(options) => hostile::in_guest(&options),
        Task::Stranger(options) => hostile::strangers::stranger(&options),
        Task::Strangers(options) => hostile::strangers::inside(&options),
        Task::FaultsInGuest(options) => faults::in_guest(&options).map(|_| ()),
        Task::ExitsInGuest => faults::exits::in_guest(),
        Task::HostsInGuest(options) => hosts::in_guest(&options),
        Task::PerfInGuest(options) => perf::in_guest(&options),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
