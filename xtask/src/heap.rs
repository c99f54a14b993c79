//! `heat3d` and `gups` with arrays on the heap, pinned where they are used, in processes that may lock little memory, and C
//! programs whose memory goes while it is pinned: on the model here, over verbs, where a pin that outlived its memory shows in
//! the data, in a guest.

use crate::cargo::{self, release_dir, root};
use crate::endtoend::{checksum, succeed};
use crate::faults::limited;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct InGuest {
    /// The RDMA device
    #[arg(long)]
    device: String,
}

/// On the model, then over verbs in a guest.
pub(crate) fn run() -> Result<()> {
    cargo::run(&mut cargo::cargo(&[
        "build",
        "--release",
        "-p",
        "portolan",
        "-p",
        "programs",
        "-p",
        "gasnet-c-seq",
        "-p",
        "gasnet-c-par",
    ]))?;
    compile()?;
    // The model's hosts lock what they are told to; this machine's limit says nothing of them.
    on(&["--fabric", "seastar"], ("the SeaStar model", None))?;
    cargo::run(cargo::guest(600)?.args(["heap-in-guest", "--device", "rxe0"]))
}

pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    let device = options.device.as_str();
    on(
        &["--fabric", "verbs", "--device", device, "--no-shm"],
        ("verbs", Some(LOCKED)),
    )
}

fn on(fabric: &[&str], words: (&str, Option<u64>)) -> Result<()> {
    let bin = release_dir();
    let input = tempfile::NamedTempFile::new()?.into_temp_path();
    succeed(
        Command::new(bin.join("heat3d"))
            .args(["--generate", "24", "20", "16", "7"])
            .arg(&input),
    )?;
    let job = |name: &str| {
        let mut c = Command::new(bin.join("portolan"));
        c.args(["run", "-n", "2"])
            .args(fabric)
            .arg("--")
            .arg(bin.join(name));
        c
    };
    for line in on_the_heap(words, &job("heat3d"), &job("gups"), &input)? {
        println!("{line}");
    }
    for p in &PROGRAMS {
        for way in p.ways {
            let mut c = job(&p.file());
            for word in way.split(' ').filter(|w| !w.is_empty()) {
                match word {
                    "OBJECTS" => c.args(objects()),
                    word => c.arg(word),
                };
            }
            succeed(&mut c)?;
            let Program {
                name,
                threads,
                segment,
                ..
            } = p;
            println!(
                "{name} {way} over {} ({threads}, {segment}), with the data that is there",
                words.0
            );
        }
    }
    if words.1.is_some() {
        let mut c = job("heap-gasnet_sources-SEQ-FAST");
        succeed(c.arg("munmap").env("PORTOLAN_MEMLOCK", TIGHT))?;
        println!(
            "gasnet_sources over {} with PORTOLAN_MEMLOCK={TIGHT}, which leaves no room to keep",
            words.0
        );
        no_memory(&job)?;
    }
    Ok(())
}

/// A segment of more memory than may be locked is an error of `gasnet_attach`; and what the largest segment is said to be can
/// be had.
fn no_memory(job: &dyn Fn(&str) -> Command) -> Result<()> {
    let locked = [("PORTOLAN_MEMLOCK", "8M")];
    let mut refused = job("heap-gasnet_bad-SEQ-FAST");
    refused.arg("memory").envs(locked);
    let (status, said) = ended(refused.env("GASNET_MAX_SEGSIZE", "64M"))?;
    let line = "gasnet_attach: cannot pin a segment of 67108864 bytes";
    if status != Some(3) || !said.contains(line) {
        bail!("a segment that cannot be locked: status {status:?}, said: {said}");
    }
    let mut largest = job("heap-gasnet_bad-SEQ-FAST");
    let (status, said) = ended(largest.arg("largest").envs(locked))?;
    if status != Some(0) || said.contains("ERROR") {
        bail!("the largest segment: status {status:?}, said: {said}");
    }
    println!(
        "a segment that cannot be locked is refused by gasnet_attach, the largest that is offered is not"
    );
    Ok(())
}

fn ended(command: &mut Command) -> Result<(Option<i32>, String)> {
    let out = command.output().context("cannot start a job")?;
    let said = [out.stdout, out.stderr].concat();
    Ok((
        out.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

/// What the segments of `gasnet_sources` are registered in, and nothing else for good.
const TIGHT: &str = "4M";

/// A program of `tests/c`, and what it is compiled for.
struct Program {
    name: &'static str,
    threads: &'static str,
    segment: &'static str,
    /// What memory goes by; with no word: in all ways, one after the other. `OBJECTS` are two paths.
    ways: &'static [&'static str],
}

impl Program {
    /// The name of what it is compiled to.
    fn file(&self) -> String {
        let (name, threads, segment) = (self.name, self.threads, self.segment);
        format!("heap-{name}-{threads}-{segment}")
    }
}

/// Random steps with memory of every kind; more are for who changes something: `heap-gasnet_shadow-… SEED STEPS OBJECT OBJECT`.
const fn shadow(
    threads: &'static str,
    segment: &'static str,
    ways: &'static [&'static str],
) -> Program {
    Program {
        name: "gasnet_shadow",
        threads,
        segment,
        ways,
    }
}

const PROGRAMS: [Program; 12] = [
    Program {
        name: "gasnet_sources",
        threads: "SEQ",
        segment: "FAST",
        ways: &[
            "munmap",
            "mmap",
            "madvise",
            "mremap",
            "over",
            "thread",
            "unsaid",
            "shmdt",
            "remap",
            "brk",
            "sbrk",
            "object OBJECTS",
            "trim",
        ],
    },
    Program {
        name: "gasnet_sources",
        threads: "PAR",
        segment: "FAST",
        ways: &["stack", "shmdt", "object OBJECTS"],
    },
    Program {
        name: "gasnet_sources",
        threads: "PAR",
        segment: "EVERYTHING",
        ways: &["stack", "sbrk", "object OBJECTS"],
    },
    shadow("SEQ", "FAST", &["1 400 OBJECTS"]),
    shadow("SEQ", "LARGE", &["2 400 OBJECTS"]),
    shadow("SEQ", "EVERYTHING", &["3 400 OBJECTS"]),
    shadow("PAR", "FAST", &["4 400 OBJECTS"]),
    shadow("PAR", "LARGE", &["5 400 OBJECTS"]),
    shadow("PAR", "EVERYTHING", &["6 400 OBJECTS"]),
    Program {
        name: "gasnet_unmap",
        threads: "SEQ",
        segment: "EVERYTHING",
        ways: &[
            "",
            "one munmap",
            "one mmap",
            "one madvise",
            "one mremap",
            "one over",
            "one unsaid",
            "one thread",
            "one shmdt",
            "one remap",
            "one sbrk",
            "one object OBJECTS",
        ],
    },
    Program {
        name: "gasnet_bad",
        threads: "SEQ",
        segment: "FAST",
        ways: &["refused"],
    },
    // How often.
    Program {
        name: "gasnet_beside",
        threads: "PAR",
        segment: "FAST",
        ways: &["300"],
    },
];

/// Two shared objects of one layout.
fn objects() -> [PathBuf; 2] {
    ["1", "2"].map(|contents| release_dir().join(format!("heap-object-{contents}.so")))
}

fn compile() -> Result<()> {
    let built = release_dir();
    let sources = root().join("tests/c");
    for (object, contents) in objects().iter().zip(1..) {
        cargo::run(
            Command::new("cc")
                .args(["-shared", "-fPIC"])
                .arg(format!("-DCONTENTS={contents}"))
                .arg(sources.join("gasnet_object.c"))
                .arg("-o")
                .arg(object),
        )?;
    }
    for p in &PROGRAMS {
        let library = format!("libgasnet_portals_{}.a", p.threads.to_lowercase());
        cargo::run(
            Command::new("cc")
                .args(["-std=gnu99", "-O2"])
                .arg(format!("-DGASNET_SEGMENT_{}", p.segment))
                .arg(format!("-DGASNET_{}", p.threads))
                .arg("-I")
                .arg(root().join("conduit/capi/include"))
                .arg(sources.join(format!("{}.c", p.name)))
                .arg("-o")
                .arg(built.join(p.file()))
                .arg(built.join(library))
                .args(["-lpthread", "-ldl", "-lm"]),
        )?;
    }
    Ok(())
}

/// Memory that a process may lock here, bytes; a rank's part of the table is as large.
pub(crate) const LOCKED: u64 = 64 << 20;

/// Faces and a table of plain heap memory, in processes that may lock less than they name.
pub(crate) fn on_the_heap(
    (words, limit): (&str, Option<u64>),
    heat3d: &Command,
    gups: &Command,
    input: &Path,
) -> Result<Vec<String>> {
    let started = |job: &Command, args: &[&str]| {
        let mut line = limit.map(limited).unwrap_or_default().into_iter();
        let mut c = match line.next() {
            Some(first) => {
                let mut c = Command::new(first);
                c.args(line).arg(job.get_program());
                c
            }
            None => Command::new(job.get_program()),
        };
        c.args(job.get_args());
        c.args(args).args(["--memory", "everything"]);
        c
    };
    let serial = |job: &Command, args: &[&str]| -> Result<String> {
        let program = job.get_args().last().context("a job without a program")?;
        checksum(&succeed(Command::new(program).arg("--serial").args(args))?)
    };
    let mut done = Vec::new();
    let input = input.to_str().context("a path that is text")?;
    let size = ["--log2-table", "24", "--updates", "4000"];
    let cases = [
        (
            heat3d,
            "heat3d --exchange am",
            &[input][..],
            &["--exchange", "am"][..],
        ),
        (
            heat3d,
            "heat3d --exchange put",
            &[input],
            &["--exchange", "put"],
        ),
        (gups, "gups", &size, &[]),
    ];
    for (job, name, args, how) in cases {
        let expected = serial(job, args)?;
        let found = succeed(&mut started(job, &[args, how].concat()))?;
        if checksum(&found)? != expected {
            bail!("{name} on the heap over {words}: {found}, serial {expected}");
        }
        let most = limit.map_or_else(String::new, |l| format!(", {} MiB locked", l >> 20));
        done.push(format!(
            "{name} on the heap over {words}{most}, equals serial ({expected})"
        ));
    }
    Ok(done)
}
