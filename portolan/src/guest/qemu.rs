//! Starts QEMU, copies the command's output and waits for its exit status.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use host::awake::Awake;
use portals_shim::handover::Handover;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{GuestError, GuestOptions, Tools, clock};
use crate::waiting::Waiting;

/// How long the guest may take to reach the command. An emulated guest needs a few seconds; the margin is
/// for machines that are busy with other work.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long QEMU may take to end after the guest has reported the exit status.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);
/// Lines of console shown with an error.
const CONSOLE_LINES: usize = 30;

/// What the waiting thread is told.
#[derive(Debug)]
enum Event {
    /// A line of the control port.
    Control(String),
    /// The control port is closed: QEMU has ended.
    Closed,
    /// All of the command's output on one stream has been written.
    OutputEnd,
    /// Our own output has no reader.
    OutputClosed,
    Signal(i32),
}

/// How far the guest has come.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Booting,
    Running,
    Exited(u8),
}

/// QEMU's process; dropping it ends it.
#[derive(Debug)]
struct Machine {
    child: Child,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A machine to be: which, of how many, with what.
#[derive(Debug, Clone, Copy)]
struct Host<'a> {
    number: usize,
    count: usize,
    initramfs: &'a Handover,
    console: &'a Handover,
    messages: &'a Handover,
    /// Its end of the wire between two.
    wire: Option<&'a OwnedFd>,
    /// How fast its processors' counters run.
    ticks_per_ms: u64,
}

/// This side's ends of a machine's ports.
#[derive(Debug)]
struct Ports {
    control: UnixStream,
    out: UnixStream,
    err: UnixStream,
}

/// Starts QEMU for a machine.
fn start(
    tools: &Tools,
    options: &GuestOptions,
    kernel: &Path,
    host: Host<'_>,
) -> Result<(Machine, Ports), GuestError> {
    let pair = || UnixStream::pair().map_err(GuestError::io("make a socket pair".into()));
    let (control, guest_control) = pair()?;
    let (out, guest_out) = pair()?;
    let (err, guest_err) = pair()?;
    let log = std::fs::File::create(host.messages.path())
        .map_err(GuestError::io("open the file of QEMU's messages".into()))?;
    let ends = [
        OwnedFd::from(guest_control),
        OwnedFd::from(guest_out),
        OwnedFd::from(guest_err),
    ];
    let mut command = command(tools, options, kernel, host, &ends);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Its own group: a Ctrl-C at the terminal reaches this process alone, which then ends QEMU.
    command.process_group(0);
    for end in ends.iter().chain(host.wire) {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())
            .map_err(|e| GuestError::io("pass a socket to QEMU".into())(e.into()))?;
    }
    let child = command
        .spawn()
        .map_err(GuestError::io(format!("run {}", tools.qemu.display())))?;
    if let Some(wire) = host.wire {
        // Machines that start later must not hold this end.
        let _ = rustix::io::fcntl_setfd(wire, rustix::io::FdFlags::CLOEXEC);
    }
    Ok((Machine { child }, Ports { control, out, err }))
}

/// Boots `kernel` with each of `initramfs` and waits for the end of the job in the first. QEMU's files have no names: it
/// inherits them, and they are gone with it, even if nobody is left to remove any.
pub(super) fn run(
    tools: &Tools,
    options: &GuestOptions,
    kernel: &Path,
    initramfs: Vec<Handover>,
) -> Result<u8, GuestError> {
    let ticks_per_ms = clock::ticks_per_ms();
    let files = || -> Result<Vec<Handover>, GuestError> {
        let file = || Handover::new().map_err(GuestError::io("make a file for QEMU".into()));
        initramfs.iter().map(|_| file()).collect()
    };
    let (consoles, messages) = (files()?, files()?);
    let wire = match initramfs.len() {
        0 | 1 => None,
        _ => {
            let (one, other) =
                UnixStream::pair().map_err(GuestError::io("make a socket pair".into()))?;
            Some([OwnedFd::from(one), OwnedFd::from(other)])
        }
    };
    let host = |number: usize| Host {
        number,
        count: initramfs.len(),
        initramfs: &initramfs[number],
        console: &consoles[number],
        messages: &messages[number],
        ticks_per_ms,
        wire: wire.as_ref().map(|ends| &ends[number.min(1)]),
    };

    // Signals are caught before QEMU exists, so that none can leave it behind.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(GuestError::io("catch signals".into()))?;
    let handle = signals.handle();
    let (events, received) = channel();
    let signal_events = events.clone();
    let signal_thread = in_thread(move || {
        for signal in signals.forever() {
            if signal_events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;

    let result = (0..initramfs.len())
        .map(|number| start(tools, options, kernel, host(number)))
        .collect::<Result<Vec<_>, _>>()
        .and_then(|mut started| {
            let (machine, ports) = started.remove(0);
            let mut threads = vec![
                {
                    let events = events.clone();
                    let control = ports.control;
                    in_thread(move || read_control(control, &events))?
                },
                copier(ports.out, io::stdout(), events.clone())?,
                copier(ports.err, io::stderr(), events)?,
            ];
            // The others say what goes wrong; their end is not awaited.
            let mut others = Vec::new();
            for (machine, ports) in started {
                others.push(machine);
                let number = others.len();
                for from in [ports.control, ports.out, ports.err] {
                    threads.push(in_thread(move || watch(from, number))?);
                }
            }
            let limit = Duration::from_secs(options.timeout);
            let result = wait(machine, &received, limit, Patience::new(limit));
            drop(others);
            // QEMU has ended, so that every socket reads its end of file.
            for thread in threads {
                let _ = thread.join();
            }
            result
        });
    handle.close();
    let _ = signal_thread.join();
    result.map_err(|error| with_consoles(error, &consoles, &messages))
}

/// QEMU's command line. The three ports' sockets are inherited under their own numbers.
fn command(
    tools: &Tools,
    options: &GuestOptions,
    kernel: &Path,
    host: Host<'_>,
    ends: &[OwnedFd; 3],
) -> Command {
    let mut command = match &tools.setpriv {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(&tools.qemu);
            command
        }
        None => Command::new(&tools.qemu),
    };
    command.args(["-nodefaults", "-no-user-config", "-machine", "q35"]);
    // Emulation moves strings byte by byte, which a kernel that sees ERMS prefers for all its copies.
    let (accelerator, processor) = if options.kvm {
        ("kvm", "max")
    } else {
        ("tcg,thread=multi", "max,-erms")
    };
    command.args(["-accel", accelerator, "-cpu", processor]);
    command
        .arg("-m")
        .arg(options.memory.to_string())
        .arg("-smp")
        .arg(options.cpus.to_string());
    command.args([
        "-display",
        "none",
        "-vga",
        "none",
        "-monitor",
        "none",
        "-no-reboot",
    ]);
    command
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(host.initramfs.path());
    // Emulated processors all count the host's ticks. The kernel does not know that and would read the time from a
    // device instead, which takes a system call and slows what follows it by microseconds. Nor does it know how many
    // there are in a second, and measures that badly on a busy machine.
    let clock = match options.kvm {
        true => String::new(),
        false => format!("tsc=reliable tsc_early_khz={} ", host.ticks_per_ms),
    };
    command.arg("-append").arg(format!(
        "console=ttyS0 loglevel=4 panic=-1 no_timer_check mitigations=off random.trust_cpu=on {clock}\
         portolan.host={} portolan.hosts={}",
        host.number, host.count
    ));
    if let Some(wire) = host.wire {
        command
            .arg("-netdev")
            .arg(format!("socket,id=wire,fd={}", wire.as_raw_fd()));
        command.arg("-device").arg(format!(
            "virtio-net-pci,netdev=wire,host_mtu=4200,mac=52:54:00:09:00:{:02x}",
            host.number + 1
        ));
    }
    let console = host.console.path();
    command
        .arg("-chardev")
        .arg(format!("file,id=console,path={}", console.display()));
    command.args(["-serial", "chardev:console"]);
    command.args(["-device", "virtio-serial-pci"]);
    for (name, end) in ["control", "stdout", "stderr"].iter().zip(ends) {
        command
            .arg("-chardev")
            .arg(format!("socket,id={name},fd={}", end.as_raw_fd()));
        command.arg("-device").arg(format!(
            "virtserialport,chardev={name},name=portolan.{name}"
        ));
    }
    command.args([
        "-virtfs",
        "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
    ]);
    command
}

/// How long a guest may take. A launcher that was stopped has heard nothing of one that lives, so that time does not count.
#[derive(Debug)]
struct Patience {
    boot: Awake,
    /// For all, if that has a limit; or for QEMU to end.
    left: Option<Awake>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self {
            boot: Awake::new(BOOT_LIMIT),
            left: (!limit.is_zero()).then(|| Awake::new(limit)),
        }
    }

    /// Whether one of the times is over, and how long to sleep until this is asked again.
    fn look(&mut self, boots: bool) -> (bool, Option<Duration>) {
        let boot = Some(&mut self.boot).filter(|_| boots);
        let (mut over, mut slice) = (false, None);
        for time in boot.into_iter().chain(&mut self.left) {
            over |= time.is_over();
            slice = slice.into_iter().chain([time.slice()]).min();
        }
        (over, slice)
    }
}

/// Follows the guest to its end; QEMU is gone when this returns.
fn wait(
    mut machine: Machine,
    events: &Receiver<Event>,
    limit: Duration,
    mut patience: Patience,
) -> Result<u8, GuestError> {
    let mut stage = Stage::Booting;
    let mut failed = None;
    let mut streams = 2;
    let mut boots = Waiting::begin(format!(
        "portolan guest: waiting for the guest to boot, at most {} s",
        BOOT_LIMIT.as_secs()
    ));
    loop {
        let (over, slice) = patience.look(stage == Stage::Booting);
        let event = match slice {
            Some(slice) => events.recv_timeout(slice),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Control(line)) => match line.split_once(' ').unwrap_or((&line, "")) {
                ("up", _) => {
                    stage = Stage::Running;
                    drop(boots.take());
                }
                ("note", text) => portals_shim::say(format_args!("portolan guest: {text}")),
                ("fail", text) => failed = Some(text.to_owned()),
                ("exit", text) => {
                    // A shell's status is 0-255; anything else is a garbled line.
                    stage = Stage::Exited(text.parse().unwrap_or(3));
                    patience.left = Some(Awake::new(POWER_OFF_LIMIT));
                }
                _ => {}
            },
            Ok(Event::OutputEnd) => streams -= 1,
            Ok(Event::OutputClosed) => return Err(GuestError::OutputClosed),
            Ok(Event::Signal(signal)) => return Err(GuestError::Interrupted(signal)),
            Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => {
                let _ = machine.child.wait();
                return match stage {
                    Stage::Exited(status) => Ok(status),
                    Stage::Running => Err(GuestError::Died {
                        console: String::new(),
                    }),
                    Stage::Booting => {
                        Err(not_booted(failed.unwrap_or_else(|| {
                            "QEMU ended before the command started".into()
                        })))
                    }
                };
            }
            Err(RecvTimeoutError::Timeout) if !over => {}
            Err(RecvTimeoutError::Timeout) => {
                return match stage {
                    // The status and, by the order of the guest's reports, all output are here.
                    Stage::Exited(status) => Ok(status),
                    Stage::Booting if patience.boot.is_over() => Err(not_booted(format!(
                        "not up after {} s",
                        BOOT_LIMIT.as_secs()
                    ))),
                    _ => Err(GuestError::TimedOut(limit)),
                };
            }
        }
        if streams == 0 && matches!(stage, Stage::Exited(_)) {
            patience.left = Some(Awake::new(Duration::ZERO));
        }
    }
}

fn not_booted(why: String) -> GuestError {
    GuestError::NotBooted {
        why,
        console: String::new(),
    }
}

/// Shows what a machine besides the first says.
fn watch(from: UnixStream, number: usize) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        if line != "up" {
            portals_shim::say(format_args!("portolan guest: host{number}: {line}"));
        }
    }
}

fn read_control(control: UnixStream, events: &Sender<Event>) {
    for line in BufReader::new(control).lines().map_while(Result::ok) {
        if events.send(Event::Control(line)).is_err() {
            return;
        }
    }
    let _ = events.send(Event::Closed);
}

/// A thread, which the system may not have.
fn in_thread(body: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, GuestError> {
    let thread = thread::Builder::new().spawn(body);
    thread.map_err(GuestError::io("start a thread".into()))
}

/// A thread that copies the guest's stream to ours until QEMU ends.
fn copier(
    mut from: UnixStream,
    mut to: impl Write + Send + 'static,
    events: Sender<Event>,
) -> Result<thread::JoinHandle<()>, GuestError> {
    in_thread(move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    if to
                        .write_all(&buffer[..length])
                        .and_then(|()| to.flush())
                        .is_err()
                    {
                        let _ = events.send(Event::OutputClosed);
                        return;
                    }
                }
            }
        }
        let _ = events.send(Event::OutputEnd);
    })
}

/// Adds the last lines of QEMU's messages and of the console, of every machine, to the errors that they explain.
fn with_consoles(
    mut error: GuestError,
    consoles: &[Handover],
    messages: &[Handover],
) -> GuestError {
    if let GuestError::NotBooted { console: text, .. } | GuestError::Died { console: text } =
        &mut error
    {
        let read = |file: &Handover| {
            String::from_utf8_lossy(&std::fs::read(file.path()).unwrap_or_default()).into_owned()
        };
        let said = messages.iter().zip(consoles);
        let said: Vec<String> = said.map(|(m, c)| read(m) + &read(c)).collect();
        *text = last_lines(&said);
    }
    error
}

/// The end of what each machine said, below its name if there are several.
fn last_lines(said: &[String]) -> String {
    let mut shown = Vec::new();
    for (number, text) in said.iter().enumerate() {
        if said.len() > 1 {
            shown.push(format!("host{number}:"));
        }
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
        shown.extend(last.iter().map(|line| line.to_string()));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::Instant;

    #[test]
    fn the_time_in_which_a_launcher_was_stopped_is_not_its_guests() {
        let hour = Duration::from_secs(3600);
        let stopped = || Awake::since(hour / 2, Instant::now() - hour);
        for boots in [true, false] {
            let (boot, left) = (stopped(), Some(stopped()));
            let (over, slice) = Patience { boot, left }.look(boots);
            assert!(!over && slice.is_some());
        }
        let never = || Awake::new(Duration::ZERO);
        for (boot, left, boots, over) in [
            (never(), None, true, true),
            (never(), None, false, false),
            (Awake::new(hour), Some(never()), false, true),
            (Awake::new(hour), Some(Awake::new(hour)), true, false),
        ] {
            assert_eq!(Patience { boot, left }.look(boots).0, over);
        }
        let mut none = Patience::new(Duration::ZERO);
        assert_eq!(none.look(false), (false, None));
    }

    #[test]
    fn a_guest_is_waited_for_as_long_as_it_may_take() {
        let hour = || Awake::new(Duration::from_secs(3600));
        let never = || Awake::new(Duration::ZERO);
        let all = ["up", "exit 5"];
        for (says, boot, left, ended) in [
            (&all[..], hour(), hour(), "5"),
            (&all[..], never(), never(), "5"),
            (&[], never(), never(), "not up after 120 s"),
            (&[], hour(), never(), "ended after 7 s"),
            (&all[..1], never(), never(), "ended after 7 s"),
        ] {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            let (tell, events) = channel();
            for line in says {
                tell.send(Event::Control((*line).to_owned())).unwrap();
            }
            tell.send(Event::OutputEnd).unwrap();
            tell.send(Event::OutputEnd).unwrap();
            let left = Some(left);
            let limit = Duration::from_secs(7);
            let said = wait(Machine { child }, &events, limit, Patience { boot, left });
            let said = said.map_or_else(|error| error.to_string(), |status| status.to_string());
            assert!(said.contains(ended), "{said} and not {ended}");
        }
    }

    #[test]
    fn qemu_names_no_file_but_the_kernel() {
        let tools = Tools {
            qemu: "/bin/qemu".into(),
            busybox: "/bin/busybox".into(),
            setpriv: None,
        };
        let options = GuestOptions {
            hosts: 1,
            memory: 256,
            cpus: 1,
            timeout: 1,
            kvm: false,
            env: vec!["TOKEN=secret".into()],
            command: vec!["true".into()],
        };
        let [initramfs, console, messages] = [(); 3].map(|()| Handover::new().unwrap());
        let host = Host {
            number: 0,
            count: 1,
            initramfs: &initramfs,
            console: &console,
            messages: &messages,
            wire: None,
            ticks_per_ms: 2_345_678,
        };
        let ends = [(); 3].map(|()| OwnedFd::from(UnixStream::pair().unwrap().0));
        let command = command(&tools, &options, Path::new("/boot/kernel"), host, &ends);
        let words: Vec<_> = command.get_args().map(|w| w.to_string_lossy()).collect();
        assert!(!words.iter().any(|w| w.contains("secret")), "{words:?}");
        // The kernel is told the counter's rate in kHz, which is ticks in a millisecond.
        let told = words
            .iter()
            .any(|w| w.contains("tsc=reliable tsc_early_khz=2345678 "));
        assert!(told, "{words:?}");
        let after = |word| words.iter().skip_while(|w| *w != word).nth(1).cloned();
        let path = |handover: &Handover| handover.path().display().to_string();
        assert_eq!(after("-initrd").unwrap(), path(&initramfs));
        let console = format!("file,id=console,path={}", path(&console));
        assert!(words.iter().any(|w| **w == console), "{words:?}");
        let named = |w: &&str| Path::new(w.split("path=").last().unwrap_or(w)).is_absolute();
        let files: Vec<PathBuf> = words
            .iter()
            .map(|w| &**w)
            .filter(named)
            .filter(|w| !w.contains("/proc/self/fd/") && !w.contains("path=/,"))
            .map(PathBuf::from)
            .collect();
        assert_eq!(files, [PathBuf::from("/boot/kernel")]);
    }

    #[test]
    fn the_end_of_what_every_machine_said_is_shown() {
        let long: String = (0..100).map(|n| format!("line {n}\r\n")).collect();
        let last: Vec<String> = (100 - CONSOLE_LINES..100)
            .map(|n| format!("line {n}"))
            .collect();
        let last = last.join("\n");
        let said = [long, "no such device\nstands here\n".into()];
        assert_eq!(last_lines(&said[..1]), last);
        let both = format!("host0:\n{last}\nhost1:\nno such device\nstands here");
        assert_eq!(last_lines(&said), both);
    }
}
