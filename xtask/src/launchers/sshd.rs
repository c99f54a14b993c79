//! An sshd on the loopback of a network namespace of its own, which takes a key that was made for it.

use super::server::Server;
use anyhow::{Result, bail};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);
const PORT: &str = "2222";

/// Ends in the order of its fields.
pub(crate) struct Sshd {
    sshd: Server,
    folder: TempDir,
}

fn key(path: &Path) -> Result<()> {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("ssh-keygen: {status}");
    }
    Ok(())
}

impl Sshd {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        key(&at.join("host"))?;
        key(&at.join("user"))?;
        std::fs::copy(at.join("user.pub"), at.join("authorized"))?;
        // sshd insists on this folder of the system.
        std::fs::create_dir_all("/run/sshd")?;
        let text = format!(
            "Port {PORT}\n\
             ListenAddress 0.0.0.0\n\
             HostKey {0}/host\n\
             AuthorizedKeysFile {0}/authorized\n\
             PidFile {0}/pid\n\
             StrictModes no\n\
             UsePAM no\n\
             PasswordAuthentication no\n\
             PermitRootLogin yes\n\
             MaxStartups 100\n",
            at.display()
        );
        let conf = at.join("conf");
        std::fs::write(&conf, text)?;
        let script = format!(
            "ip link set lo up && exec /usr/sbin/sshd -D -e -f '{}'",
            conf.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]);
        let mut sshd = Server::start(&mut command, at.join("log"))?;
        let pid = sshd.pid();
        let listening = || {
            // The port in hexadecimal, and the state of listening.
            let tcp = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"));
            tcp.is_ok_and(|t| t.contains("00000000:08AE 00000000:0000 0A"))
        };
        sshd.wait(SOON, listening)?;
        Ok(Self { sshd, folder })
    }

    /// `program` in the namespace.
    pub(crate) fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.sshd.pid()))
            .arg(program);
        command
    }

    /// The command that reaches a host.
    pub(crate) fn ssh(&self) -> String {
        format!(
            "ssh -F /dev/null -x -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR -o IdentitiesOnly=yes -i {}/user -p {PORT}",
            self.folder.path().display()
        )
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether this process may make network namespaces.
pub(crate) fn may_unshare() -> bool {
    let tried = Command::new("unshare")
        .args(["--net", "true"])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|s| s.success()) && TcpListener::bind("127.0.0.1:0").is_ok()
}
