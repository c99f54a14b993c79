//! C programs against the headers and the libraries, as ranks of jobs.
//!
//! They need a C compiler; without one the tests say so and pass.

use gasnet_c::install;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where things are.
struct Places {
    root: PathBuf,
    /// Cargo's folder of this profile, which has the libraries.
    built: PathBuf,
    launcher: PathBuf,
    /// An installation of what was built.
    prefix: PathBuf,
}

/// A C or C++ compiler that works, or a word on its absence.
fn compiler(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {name}");
    }
    found
}

/// Builds the launcher and the libraries once.
fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let exe = std::env::current_exe().unwrap();
        let built = exe.ancestors().nth(2).unwrap().to_path_buf();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "portolan"]);
        for model in install::MODELS {
            build.args(["-p", &format!("gasnet-c-{model}")]);
        }
        build.arg("--target-dir").arg(built.parent().unwrap());
        if built.file_name().is_some_and(|n| n == "release") {
            build.arg("--release");
        }
        let status = build.current_dir(&root).status().unwrap();
        assert!(status.success(), "the launcher does not build");
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-installed");
        std::fs::create_dir_all(&prefix).unwrap();
        let include = root.join("conduit/capi/include");
        install::install(&include, &built, &prefix, "1.2.3").unwrap();
        Places {
            launcher: built.join("portolan"),
            root,
            built,
            prefix,
        }
    })
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How a program is compiled.
#[derive(Clone, Copy)]
struct Build<'a> {
    compiler: &'a str,
    flags: &'a [&'a str],
    /// The model of the library it is linked with.
    model: &'a str,
    /// The model it is compiled for.
    compiled_for: &'a str,
}

const SEQ: Build<'_> = Build {
    compiler: "cc",
    flags: &["-std=gnu99"],
    model: "seq",
    compiled_for: "seq",
};

/// Compiles a program of `tests/c` as a user of the installation would.
fn try_compile(source: &str, b: Build<'_>) -> (PathBuf, Output) {
    let p = places();
    let flavour: String = format!(
        "{}{}{}{}",
        b.compiler,
        b.flags.concat(),
        b.model,
        b.compiled_for
    )
    .chars()
    .filter(char::is_ascii_alphanumeric)
    .collect();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{flavour}"));
    let lib = p.prefix.join("lib");
    let output = Command::new(b.compiler)
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-cast-function-type",
        ])
        .args(b.flags)
        .arg(format!("-DGASNET_{}", b.compiled_for.to_uppercase()))
        .arg("-I")
        .arg(p.prefix.join("include/portals-conduit"))
        .arg(p.root.join("tests/c").join(format!("{source}.c")))
        .args(["-x", "none", "-o"])
        .arg(&out)
        .arg("-L")
        .arg(&lib)
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg(format!("-lgasnet-portals-{}", b.model))
        .arg("-lpthread")
        .output()
        .unwrap();
    (out, output)
}

fn compile(source: &str, b: Build<'_>) -> PathBuf {
    let (out, output) = try_compile(source, b);
    assert!(output.status.success(), "{}", text(&output));
    out
}

/// The fabrics that every machine has.
const FABRICS: [&str; 2] = ["seastar", "shm"];

fn run_on(fabric: &str, ranks: u32, program: &Path, args: &[&str]) -> Output {
    Command::new(&places().launcher)
        .args(["run", "-n", &ranks.to_string(), "--timeout", "120"])
        .args(["--fabric", fabric, "--"])
        .arg(program)
        .args(args)
        .output()
        .unwrap()
}

fn passes(ranks: u32, program: &Path, args: &[&str]) {
    for fabric in FABRICS {
        let output = run_on(fabric, ranks, program, args);
        let said = text(&output);
        assert!(output.status.success(), "{fabric}: {said}");
        for rank in 0..ranks {
            let line = format!("node {rank}: all right");
            assert!(said.contains(&line), "{fabric}: {said}");
        }
    }
}

#[test]
fn every_call_does_what_it_says() {
    if compiler("cc") {
        let program = compile("gasnet_calls", SEQ);
        for ranks in [1, 2, 3] {
            passes(ranks, &program, &[]);
        }
        passes(2, &program, &["return"]);
    }
}

#[test]
fn every_thread_model_has_every_call() {
    if compiler("cc") {
        for model in ["parsync", "par"] {
            let b = Build {
                model,
                compiled_for: model,
                ..SEQ
            };
            passes(2, &compile("gasnet_calls", b), &[]);
        }
    }
}

#[test]
fn debug_builds_have_every_call() {
    if compiler("cc") {
        let b = Build {
            flags: &["-std=gnu99", "-DGASNET_DEBUG"],
            ..SEQ
        };
        passes(2, &compile("gasnet_calls", b), &[]);
    }
}

#[test]
fn the_headers_are_cxx_too() {
    if compiler("c++") {
        let b = Build {
            compiler: "c++",
            flags: &["-x", "c++"],
            ..SEQ
        };
        passes(2, &compile("gasnet_calls", b), &[]);
        let b = Build {
            flags: &["-x", "c++", "-DGASNET_DEBUG"],
            compiled_for: "par",
            model: "par",
            ..b
        };
        passes(2, &compile("gasnet_calls", b), &[]);
    }
}

#[test]
fn a_program_of_another_thread_model_does_not_link() {
    if compiler("cc") {
        let b = Build {
            compiled_for: "par",
            ..SEQ
        };
        let (_, output) = try_compile("gasnet_calls", b);
        let said = text(&output);
        assert!(!output.status.success());
        assert!(said.contains("portals_fast_par_nodebug"), "{said}");
    }
}

#[test]
fn threads_of_a_program_communicate_at_one_time() {
    if compiler("cc") {
        let b = Build {
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        passes(2, &compile("gasnet_threads", b), &[]);
    }
}

#[test]
fn ends_of_a_program_and_what_it_gets_wrong() {
    if !compiler("cc") {
        return;
    }
    let b = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    let program = compile("gasnet_ends", b);
    // How it ends; the status; what is said. A rank that aborts is one killed by a signal: 128 + 6.
    let cases = [
        ("exit", 7, ""),
        ("return", 5, ""),
        ("handler", 9, ""),
        ("before-attach", 3, ""),
        ("range", 134, "gasnet_put: 3 bytes at"),
        ("node", 134, "node index too high: 2 of 2"),
        ("poll-locked", 134, "gasnet_AMPoll while an HSL is held at"),
        (
            "relock",
            134,
            "gasnet_hsl_lock of a lock that this thread holds",
        ),
        ("order", 134, "not the last one taken"),
        ("wait-twice", 134, "barrier not notified"),
        ("misaligned", 134, "an address is not a multiple of 8"),
    ];
    for (how, status, words) in cases {
        for fabric in FABRICS {
            let output = run_on(fabric, 2, &program, &[how]);
            let said = text(&output);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{how} on {fabric}: {said}"
            );
            assert!(said.contains(words), "{how} on {fabric}: {said}");
            if words.contains(" at") || how == "order" {
                assert!(said.contains("gasnet_ends.c:"), "{how}: no place: {said}");
            }
        }
    }
}

#[test]
fn an_installation_is_used_by_pkg_config_and_makefile_fragment() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let flags = Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", p.prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "gasnet-portals-seq"])
        .output();
    let source = p.root.join("tests/c/gasnet_calls.c");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if let Ok(flags) = flags {
        let flags = String::from_utf8(flags.stdout).unwrap();
        let program = out.join("gasnet-pkg-config");
        let output = Command::new("cc")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        passes(2, &program, &[]);
    } else {
        eprintln!("skipped: no pkg-config");
    }
    let fragment = p.prefix.join("include/portals-conduit/portals-seq.mak");
    let program = out.join("gasnet-fragment");
    let makefile = "include FRAGMENT\n\
        all:\n\
        \t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c SOURCE -o PROGRAM.o\n\
        \t$(GASNET_LD) $(GASNET_LDFLAGS) -o PROGRAM PROGRAM.o $(GASNET_LIBS)\n"
        .replace("FRAGMENT", &fragment.display().to_string())
        .replace("SOURCE", &source.display().to_string())
        .replace("PROGRAM", &program.display().to_string());
    let path = out.join("gasnet-fragment.mk");
    std::fs::write(&path, makefile).unwrap();
    match Command::new("make").arg("-f").arg(&path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output));
            passes(2, &program, &[]);
        }
        Err(_) => eprintln!("skipped: no make"),
    }
}

#[test]
fn the_static_library_links_with_the_libraries_it_names() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-static");
    let output = Command::new("cc")
        .args(["-DGASNET_SEQ", "-I"])
        .arg(p.prefix.join("include/portals-conduit"))
        .arg(p.root.join("tests/c/gasnet_calls.c"))
        .arg(p.built.join("libgasnet_portals_seq.a"))
        .args(install::LIBS_PRIVATE.split(' '))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    passes(2, &program, &[]);
}
