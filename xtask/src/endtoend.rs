//! Programs on the verbs fabric, started as a user would start them, compared with their serial
//! runs; in the guest.

use crate::cargo::release_dir;
use crate::heap::{LOCKED, on_the_heap};
use crate::perf::sent_packets;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn output(command: &mut Command) -> Result<Output> {
    let what = crate::cargo::line(command);
    command
        .output()
        .with_context(|| format!("cannot start {what}"))
}

pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    succeed_saying(command).map(|(text, _)| text)
}

/// What [`succeed`] gives, with what went to the standard error too.
pub(crate) fn succeed_saying(command: &mut Command) -> Result<(String, String)> {
    let out = output(command)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if !out.status.success() {
        bail!(
            "{}: {}\n{text}{said}",
            crate::cargo::line(command),
            out.status
        );
    }
    Ok((text, said))
}

/// The word after `checksum` in a program's output.
pub(crate) fn checksum(text: &str) -> Result<String> {
    let mut words = text.split_whitespace();
    words
        .find(|w| *w == "checksum")
        .and_then(|_| words.next())
        .map(str::to_owned)
        .with_context(|| format!("no checksum in {text:?}"))
}

/// Runs the programs and gives the names of what passed.
pub(crate) fn on_verbs(device: &str) -> Result<Vec<String>> {
    let bin = release_dir();
    let portolan = bin.join("portolan");
    let program = |name: &str| bin.join(name);
    let input = tempfile::NamedTempFile::new()?.into_temp_path();
    succeed(
        Command::new(program("heat3d"))
            .args(["--generate", "24", "20", "16", "7"])
            .arg(&input),
    )?;
    // All ranks are on one machine: everything through the device, or half of the pairs.
    let over = |way: &[&str], ranks: &str, name: &str| {
        let mut c = Command::new(&portolan);
        c.args(["run", "-n", ranks, "--fabric", "verbs", "--device", device])
            .args(way)
            .arg("--")
            .arg(program(name));
        c
    };
    let device_only = &["--no-shm"][..];
    let both = &["--ranks-per-node", "2"][..];
    let verbs = |ranks: &str, name: &str| over(device_only, ranks, name);
    let mut done = Vec::new();
    let serial = checksum(&succeed(
        Command::new(program("heat3d")).arg("--serial").arg(&input),
    )?)?;
    for exchange in ["am", "put"] {
        let parallel = succeed(
            verbs("4", "heat3d")
                .arg(&input)
                .args(["--exchange", exchange]),
        )?;
        if checksum(&parallel)? != serial {
            bail!("heat3d --exchange {exchange} on verbs: {parallel}, serial {serial}");
        }
        done.push(format!(
            "heat3d on 4 ranks, --exchange {exchange}, equals serial ({serial})"
        ));
    }
    for exchange in ["am", "put"] {
        let before = sent_packets(device)?;
        let parallel = succeed(
            over(both, "4", "heat3d")
                .arg(&input)
                .args(["--exchange", exchange]),
        )?;
        if checksum(&parallel)? != serial {
            bail!("heat3d --exchange {exchange} on verbs and shm: {parallel}, serial {serial}");
        }
        let sent = sent_packets(device)? - before;
        if sent == 0 {
            bail!("heat3d on verbs and shm sent nothing through {device}");
        }
        done.push(format!(
            "heat3d on 4 ranks of 2 nodes, --exchange {exchange}, verbs between and shm within, equals serial \
             ({sent} packets)"
        ));
    }
    // One node: memory alone.
    let before = sent_packets(device)?;
    let parallel = succeed(over(&[], "4", "heat3d").arg(&input))?;
    let sent = sent_packets(device)? - before;
    if checksum(&parallel)? != serial || sent != 0 {
        bail!("heat3d on one node under verbs: {sent} packets, {parallel}, serial {serial}");
    }
    done.push("heat3d on 4 ranks of 1 node under verbs sends no packet".to_owned());
    let size = ["--log2-table", "12", "--updates", "8192"];
    let serial = checksum(&succeed(
        Command::new(program("gups")).arg("--serial").args(size),
    )?)?;
    for (way, words) in [(device_only, "verbs"), (both, "verbs and shm")] {
        let parallel = checksum(&succeed(over(way, "4", "gups").args(size))?)?;
        if parallel != serial {
            bail!("gups on {words}: {parallel}, serial {serial}");
        }
    }
    done.push(format!("gups on 4 ranks equals serial ({serial})"));
    for (way, words) in [(device_only, "verbs"), (both, "verbs and shm")] {
        done.extend(on_the_heap(
            (words, Some(LOCKED)),
            &over(way, "2", "heat3d"),
            &over(way, "2", "gups"),
            &input,
        )?);
    }
    done.extend(on_both(&verbs, &input)?);
    for channel in ["rc", "ud", "auto"] {
        for (way, words) in [(device_only, "verbs"), (both, "verbs and shm")] {
            let before = sent_packets(device)?;
            let said = succeed(
                over(way, "3", "portolan")
                    .arg("messages")
                    .env("PORTOLAN_CHANNEL", channel),
            )?;
            let sent = sent_packets(device)? - before;
            if !said.ends_with(" on each rank: ok\n") || sent == 0 {
                bail!("portolan messages on {words}, {channel}: {sent} packets, {said}");
            }
            done.push(format!(
                "active messages on {words}, {channel}: {} ({sent} packets)",
                said.trim()
            ));
        }
    }
    for way in [device_only, both] {
        done.push(killed_rank(&portolan, &program("gups"), device, way)?);
    }
    Ok(done)
}

/// Datagrams first, connections within a budget: the ranks have one connection, or one to each of the others.
fn on_both(job: &dyn Fn(&str, &str) -> Command, input: &Path) -> Result<Vec<String>> {
    let input = input.to_str().context("a path that is text")?;
    let size = ["--log2-table", "12", "--updates", "8192"];
    let cases = [
        ("heat3d", &[input][..], "1", "4"),
        ("gups", &size, "3", "4"),
        ("gups", &size, "1", "4"),
    ];
    let mut done = Vec::new();
    for (name, args, connections, chatty) in cases {
        let expected = checksum(&succeed(
            Command::new(release_dir().join(name))
                .arg("--serial")
                .args(args),
        )?)?;
        let (found, said) = succeed_saying(
            job("4", name)
                .args(args)
                .env("PORTOLAN_CHANNEL", "auto")
                .env("PORTOLAN_CHATTY", chatty)
                .env("PORTOLAN_CONNECTIONS", connections)
                .env("PORTOLAN_DATAGRAM_STATS", "1"),
        )?;
        let moves: u32 = said
            .split("moves: ")
            .skip(1)
            .filter_map(|rest| rest.split(',').next()?.parse::<u32>().ok())
            .sum();
        let words = format!("{name} on 4 ranks over auto, {connections} connections each");
        if checksum(&found)? != expected || moves == 0 {
            bail!("{words}: {found}, serial {expected}: {said}");
        }
        done.push(format!(
            "{words}, equals serial ({expected}); {moves} ends moved"
        ));
    }
    Ok(done)
}

/// A rank that is killed ends the job within 10 s, and the message names it.
fn killed_rank(portolan: &Path, gups: &Path, device: &str, way: &[&str]) -> Result<String> {
    let mut child = Command::new(portolan)
        .args(["run", "-n", "4", "--fabric", "verbs", "--device", device])
        .args(way)
        .arg("--")
        .arg(gups)
        .args(["--log2-table", "16", "--updates", "100000000"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .context("cannot start portolan run")?;
    let victim = rank_process(child.id(), 2)?;
    let killed = Instant::now();
    succeed(Command::new("kill").args(["-KILL", &victim.to_string()]))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if killed.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            bail!("the job goes on 10 s after rank 2 was killed");
        }
        std::thread::yield_now();
    };
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        std::io::Read::read_to_string(&mut stderr, &mut message)?;
    }
    if status.code() != Some(137) || !message.contains("rank 2") {
        bail!("after the kill of rank 2: {status}, {message:?}");
    }
    Ok(format!(
        "gups ({}) with rank 2 killed ends in {:.1} s and says so",
        way.join(" "),
        killed.elapsed().as_secs_f64()
    ))
}

/// The parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// The process that is rank `rank` under launcher `launcher`, once it has opened the device.
fn rank_process(launcher: u32, rank: u32) -> Result<u32> {
    let wanted = format!("PMI_RANK={rank}");
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|n| n.parse::<u32>().ok())
            else {
                continue;
            };
            let dir = entry.path();
            // The launcher's supervisor is its child, and the ranks are that one's.
            if parent(pid).and_then(parent) != Some(launcher) {
                continue;
            }
            let environment = std::fs::read(dir.join("environ")).unwrap_or_default();
            let is_rank = environment
                .split(|b| *b == 0)
                .any(|v| v == wanted.as_bytes());
            let open = std::fs::read_dir(dir.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
                .any(|fd| {
                    std::fs::read_link(fd.path())
                        .is_ok_and(|t| t.to_string_lossy().contains("uverbs"))
                });
            if is_rank && open {
                return Ok(pid);
            }
        }
        std::thread::yield_now();
    }
    bail!("rank {rank} did not start within 60 s")
}
