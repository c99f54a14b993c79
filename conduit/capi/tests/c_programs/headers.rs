//! What the headers offer and to whom; what links with what.

use gasnet_c::install;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{Build, SEQ, compile, compiler, passes, places, text, try_compile};

/// Names with these beginnings that are called, or handed on, in a text: whole words.
fn words(text: &str) -> BTreeSet<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part(c))
        .filter(|w| w.starts_with("gasnet_") || w.starts_with("gasnett_"))
        .collect()
}

/// What a header offers to be called: words before an opening bracket.
fn offered(header: &str) -> BTreeSet<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in header.match_indices('(') {
        let before = header[..at].trim_end_matches(' ');
        let start = before.rfind(|c| !part(c)).map_or(0, |i| i + 1);
        let word = &before[start..];
        if word.starts_with("gasnet_") || word.starts_with("gasnett_") {
            found.insert(word);
        }
    }
    found
}

/// Calls that the programs below make by pasting names: those of the families of atomics.
const PASTED: [&str; 3] = [
    "gasnett_atomic",
    "gasnett_strongatomic",
    "gasnett_threadkey",
];

#[test]
fn the_programs_call_everything_that_the_headers_offer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let programs = [
        "gasnet_calls",
        "gasnet_credits",
        "gasnet_numbered",
        "gasnet_tools_calls",
        "gasnet_errors",
        "gasnet_ends",
        "gasnet_threads",
    ];
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let text: String = programs
        .iter()
        .map(|p| read(root.join("tests/c").join(format!("{p}.c"))))
        .collect();
    let called = words(&text);
    let mut all = 0;
    for header in std::fs::read_dir(root.join("conduit/capi/include")).unwrap() {
        let header = read(header.unwrap().path());
        for name in offered(&header) {
            all += 1;
            let pasted = PASTED.iter().any(|p| name.starts_with(p));
            assert!(called.contains(name) || pasted, "{name} is not called");
        }
    }
    assert!(all > 300, "{all}");
}

/// What a program of C or C++ has of the headers when it keeps to a standard.
const HEADERS: &str = "#include <stdlib.h>\n#define free no_such_function\n#include <gasnet.h>\n#include <gasnet_tools.h>\n\
    #include <gasnet_vis.h>\n#include <gasnet_coll.h>\nint main(int c, char **v) { return gasnet_init(&c, &v); }\n";
/// A program of tools alone.
const TOOLS: &str =
    "#include <gasnet_tools.h>\nint main(void) { return gasnett_ticks_now() == 0; }\n";

/// Compiles these texts by each standard with each of these definitions: warnings are errors, extensions that a header hides
/// behind `__extension__` or attributes are not warned about.
fn compiles_strictly(compiler: &str, ending: &str, standards: &[&str]) {
    for (name, lines) in [("gasnet_headers", HEADERS), ("gasnet_tools_alone", TOOLS)] {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{ending}"));
        std::fs::write(&source, lines).unwrap();
        for standard in standards {
            for define in [
                "-DGASNET_SEQ",
                "-DGASNET_PAR",
                "-DGASNET_SEQ -DGASNET_DEBUG",
                "-DGASNET_SEQ -DGASNET_SEGMENT_LARGE",
                "-DGASNET_PAR -DGASNET_SEGMENT_EVERYTHING",
            ] {
                let output = Command::new(compiler)
                    .arg(format!("-std={standard}"))
                    .args(["-Wall", "-Wextra", "-pedantic", "-Werror"])
                    .args(["-fsyntax-only", "-I"])
                    .arg(places().prefix.join("include/portals-conduit"))
                    .args(define.split(' '))
                    .arg(&source)
                    .output()
                    .unwrap();
                let said = text(&output);
                assert!(
                    output.status.success(),
                    "{name} {standard} {define}: {said}"
                );
            }
        }
    }
}

/// Programs may have defined `free` as something else before.
#[test]
fn the_headers_are_strict_cxx() {
    if compiler("g++") {
        compiles_strictly("g++", "cc", &["c++98", "c++17", "c++20"]);
    }
}

/// The system's headers hide what is not ISO C from such a program.
#[test]
fn the_headers_are_strict_c() {
    if compiler("cc") {
        compiles_strictly("cc", "c", &["c90", "gnu90", "c99", "c11", "gnu11"]);
    }
}

/// Said before the system's headers are looked for, of which there may be none.
#[test]
fn a_program_with_shorter_addresses_is_refused() {
    if !compiler("cc") {
        return;
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet_short.c");
    std::fs::write(&source, "#include <gasnet.h>\n").unwrap();
    let output = Command::new("cc")
        .args([
            "-DGASNET_SEQ",
            "-U__LP64__",
            "-nostdinc",
            "-fsyntax-only",
            "-I",
        ])
        .arg(places().prefix.join("include/portals-conduit"))
        .arg(&source)
        .output()
        .unwrap();
    let said = text(&output);
    assert!(!output.status.success());
    assert!(
        said.contains("only programs with 64-bit addresses"),
        "{said}"
    );
}

/// What programs find by `gasnet.h` alone, as by GASNet's.
#[test]
fn the_header_has_what_programs_rely_on() {
    if !compiler("cc") {
        return;
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet_alone.c");
    let lines = "#include <gasnet.h>\nint main(void) {\n    errno = INT_MAX;\n\
                #ifndef GASNET_SEQ\n    (void)pthread_self();\n#endif\n    return sleep(0) + strlen(\"\");\n}\n";
    std::fs::write(&source, lines).unwrap();
    for model in ["SEQ", "PARSYNC", "PAR"] {
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsyntax-only", "-I"])
            .arg(places().prefix.join("include/portals-conduit"))
            .arg(format!("-DGASNET_{model}"))
            .arg(&source)
            .output()
            .unwrap();
        assert!(output.status.success(), "{model}: {}", text(&output));
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

/// Linkers that are here, as flags, and the compiler's own choice.
fn linkers() -> Vec<&'static str> {
    let all = [
        "-fuse-ld=bfd",
        "-fuse-ld=gold",
        "-fuse-ld=lld",
        "-fuse-ld=mold",
    ];
    let is_here = |flag: &&str| {
        let said = Command::new("cc").args([flag, "-Wl,--version"]).output();
        let here = said.is_ok_and(|o| o.status.success());
        if !here {
            eprintln!("skipped: {flag}, no such linker");
        }
        here
    };
    let here = all.into_iter().filter(is_here);
    std::iter::once("-O1").chain(here).collect()
}

/// Objects of one program differ in what they are compiled for: every linker refuses, and so does the assembler of a program
/// that is optimised when it is linked.
#[test]
fn objects_that_differ_do_not_link() {
    if !compiler("cc") {
        return;
    }
    let p = places();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-objects");
    std::fs::create_dir_all(&folder).unwrap();
    let (first, second) = (folder.join("first.c"), folder.join("second.c"));
    let begins = "#include <gasnet.h>\nint second(void);\n\
        int main(int c, char **v) { gasnet_init(&c, &v); return second(); }\n";
    std::fs::write(&first, begins).unwrap();
    let polls = "#include <gasnet.h>\nint second(void) { return gasnet_AMPoll(); }\n";
    std::fs::write(&second, polls).unwrap();
    let cc = |flags: &[&str], arguments: &[&Path], out: &Path| {
        let output = Command::new("cc")
            .args(flags)
            .arg("-I")
            .arg(p.prefix.join("include/portals-conduit"))
            .args(arguments)
            .arg("-o")
            .arg(out)
            .arg("-L")
            .arg(p.prefix.join("lib"))
            .arg("-lgasnet-portals-seq")
            .output()
            .unwrap();
        (output.status.success(), text(&output))
    };
    let linkers = linkers();
    // Not every linker knows the compiler's objects of -flto.
    let ways = [
        ("-O1", linkers.as_slice()),
        ("-Wl,--gc-sections", &linkers),
        ("-flto", &linkers[..1]),
    ];
    for (how, linkers) in ways {
        for (same, define) in [
            (true, "-DGASNET_SEGMENT_FAST"),
            (true, "-DGASNET_NDEBUG"),
            (false, "-DGASNET_SEGMENT_LARGE"),
            (false, "-DGASNET_SEGMENT_EVERYTHING"),
            (false, "-DGASNET_DEBUG"),
        ] {
            let (a, b) = (folder.join("first.o"), folder.join("second.o"));
            for (source, object, define) in [(&first, &a, "-DGASNET_NDEBUG"), (&second, &b, define)]
            {
                let (compiled, said) = cc(
                    &[how, "-c", "-DGASNET_SEQ", define],
                    &[source.as_path()],
                    object,
                );
                assert!(compiled, "{said}");
            }
            for by in linkers {
                let (linked, said) = cc(&[how, by], &[&a, &b], &folder.join("program"));
                assert_eq!(linked, same, "{how} {by} {define}: {said}");
                assert!(
                    same || said.contains("gasnet_objects_differ"),
                    "{how} {by} {define}: {said}"
                );
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
