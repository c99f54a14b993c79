//! A Slurm of one node on this machine: munged, slurmctld and slurmd in a temporary folder, on ports that
//! were free. It uses no control groups.

use super::server::Server;
use crate::wait;
use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

/// Ends in the order of its fields.
pub(crate) struct Slurm {
    _slurmd: Server,
    _slurmctld: Server,
    _munged: Server,
    pub(crate) conf: PathBuf,
    _folder: TempDir,
}

/// A port that was free a moment ago.
fn port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn random() -> Result<[u8; 128]> {
    use std::io::Read as _;
    let mut bytes = [0; 128];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Slurm {
    pub(crate) fn start() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        // Any user's credentials come through the socket in here.
        std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755))?;
        for sub in ["state", "spool"] {
            std::fs::create_dir_all(at.join(sub))?;
        }
        let key = at.join("key");
        std::fs::write(&key, random()?)?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
        let socket = at.join("munge");
        let file = |name: &str| at.join(name).display().to_string();
        let mut munged = Command::new("munged");
        munged.args(["--foreground", "--force"]);
        for (option, name) in [
            ("key-file", "key"),
            ("socket", "munge"),
            ("pid-file", "munged.pid"),
            ("log-file", "munged.log"),
            ("seed-file", "munged.seed"),
        ] {
            munged.arg(format!("--{option}={}", file(name)));
        }
        let mut munged = Server::start(&mut munged, at.join("munged.out"))?;
        munged.wait(SOON, || socket.exists())?;

        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
        let name = name.trim().split('.').next().unwrap_or("localhost");
        let user = Command::new("id").arg("-un").output()?.stdout;
        let user = String::from_utf8_lossy(&user).trim().to_owned();
        let conf = at.join("slurm.conf");
        let text = format!(
            "ClusterName=portolan\n\
             SlurmctldHost={name}(127.0.0.1)\n\
             SlurmUser={user}\n\
             SlurmdUser={user}\n\
             AuthType=auth/munge\n\
             AuthInfo=socket={}\n\
             CredType=cred/munge\n\
             SlurmctldPort={}\n\
             SlurmdPort={}\n\
             SlurmctldPidFile={}\n\
             SlurmdPidFile={}\n\
             StateSaveLocation={}\n\
             SlurmdSpoolDir={}\n\
             TmpFS={}\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             SwitchType=switch/none\n\
             SlurmdParameters=config_overrides\n\
             SelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\n\
             JobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\n\
             MpiDefault=none\n\
             ReturnToService=2\n\
             KillWait=2\n\
             NodeName={name} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN\n\
             PartitionName=all Nodes={name} Default=YES MaxTime=INFINITE State=UP\n",
            socket.display(),
            port()?,
            port()?,
            file("slurmctld.pid"),
            file("slurmd.pid"),
            file("state"),
            file("spool"),
            // What steps that were killed leave would be in the way of steps of the same number of a later Slurm.
            at.display(),
        );
        std::fs::write(&conf, text).context("slurm.conf")?;
        let mut slurmctld = Command::new("slurmctld");
        slurmctld.args(["-D", "-c", "-i"]).env("SLURM_CONF", &conf);
        let log = at.join("slurmctld.out");
        let mut slurmctld = Server::start(&mut slurmctld, log.clone())?;
        slurmctld.wait(SOON, || Server::said(&log, "Running as primary controller"))?;
        let mut slurmd = Command::new("slurmd");
        slurmd.args(["-D", "-N", name]).env("SLURM_CONF", &conf);
        let slurmd = Server::start(&mut slurmd, at.join("slurmd.out"))?;
        let slurm = Self {
            _slurmd: slurmd,
            _slurmctld: slurmctld,
            _munged: munged,
            conf,
            _folder: folder,
        };
        slurm.runs_a_job()?;
        Ok(slurm)
    }

    /// Waits for the node: a first job starts when it has registered.
    fn runs_a_job(&self) -> Result<()> {
        let mut first = self.srun();
        let mut first = first
            .args(["-n", "1", "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        match wait::end(&mut first, SOON)? {
            Some(status) if status.success() => Ok(()),
            ended => {
                let _ = first.kill();
                let _ = first.wait();
                bail!("a first job does not run within {SOON:?}: {ended:?}")
            }
        }
    }

    /// `srun` with this Slurm.
    pub(crate) fn srun(&self) -> Command {
        let mut srun = Command::new("srun");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SLURM_") {
                srun.env_remove(name);
            }
        }
        srun.env("SLURM_CONF", &self.conf);
        srun
    }
}
