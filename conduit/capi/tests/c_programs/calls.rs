//! What calls do, in every thread model, on every fabric that every machine has.

use crate::programs::{
    Build, FABRICS, SEQ, compile, compiler, launch, passes, passes_in, places, run_on, text,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
fn every_call_with_memory_that_is_pinned_where_it_is_used() {
    if !compiler("cc") {
        return;
    }
    for segment in ["-DGASNET_SEGMENT_LARGE", "-DGASNET_SEGMENT_EVERYTHING"] {
        let debug = ["-std=gnu99", segment, "-DGASNET_DEBUG"];
        for (model, flags) in [("seq", &debug[..2]), ("seq", &debug), ("par", &debug[..2])] {
            let b = Build {
                model,
                compiled_for: model,
                flags,
                ..SEQ
            };
            let program = compile("gasnet_calls", b);
            for ranks in [1, 2, 3] {
                passes(ranks, &program, &[]);
            }
        }
    }
}

/// Ranks of one node: one that polls in a loop keeps none of the others out.
#[test]
fn a_rank_that_polls_lets_others_of_its_node_in() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_polls", SEQ);
    for mode in ["generic", "accelerated"] {
        let mut run = Command::new(&places().launcher);
        run.args(["run", "-n", "4", "--timeout", "60", "--fabric", "seastar"]);
        run.args(["--ranks-per-node", "2", "--mode", mode, "--"]);
        let output = run.arg(&program).output().unwrap();
        let said = text(&output);
        let all = (0..4).all(|rank| said.contains(&format!("node {rank}: all right")));
        assert!(output.status.success() && all, "{mode}: {said}");
    }
}

/// Memory that is unmapped, replaced, emptied or moved while peers hold it: they reach what is there then, or end with an
/// error.
#[test]
fn memory_that_goes_is_noticed() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let b = Build {
            flags: &["-std=gnu99", "-DGASNET_SEGMENT_EVERYTHING"],
            model,
            compiled_for: model,
            ..SEQ
        };
        let program = compile("gasnet_unmap", b);
        passes(2, &program, &[]);
        for fabric in FABRICS {
            let said = text(&run_on(fabric, 2, &program, &["gone"]));
            assert!(
                said.contains("has no memory of 1 bytes"),
                "{fabric}: {said}"
            );
        }
    }
}

/// A handler that runs while `sbrk` or `brk` waits for a peer has the allocator put a block above what they take back.
#[test]
fn the_end_of_the_heap_stays_where_it_moved_during_the_call() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let b = Build {
            flags: &["-std=gnu99", "-DGASNET_SEGMENT_EVERYTHING"],
            model,
            compiled_for: model,
            ..SEQ
        };
        let program = compile("gasnet_break", b);
        for way in ["sbrk", "brk"] {
            passes(2, &program, &[way]);
        }
    }
}

#[test]
fn memory_that_became_longer_goes_after_a_transfer_across_its_old_end() {
    if compiler("cc") {
        let flags = &["-std=gnu99"][..];
        passes(2, &compile("gasnet_grows", Build { flags, ..SEQ }), &[]);
    }
}

#[test]
fn a_team_of_images_in_any_order_meets() {
    if compiler("cc") {
        let b = Build {
            flags: &["-std=gnu99"],
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        let program = compile("gasnet_images", b);
        for ranks in [1, 2, 3] {
            passes(ranks, &program, &[]);
        }
    }
}

/// What a user of the variables gets wrong is said, by name, and ends the start.
#[test]
fn budgets_that_make_no_sense_are_named() {
    if !compiler("cc") {
        return;
    }
    let cases: [(_, &[(&str, &str)], _); 6] = [
        (
            everywhere(),
            &[("GASNET_FIREHOSE_M", "1K")],
            "gives none of 1 peers a unit",
        ),
        (
            everywhere(),
            &[("GASNET_FIREHOSE_M", "some")],
            "is not an amount of memory",
        ),
        (
            everywhere(),
            &[
                ("GASNET_PHYSMEM_MAX", "100M"),
                ("GASNET_FIREHOSE_M", "50"),
                ("GASNET_FIREHOSE_MAXVICTIM_M", "50"),
            ],
            "GASNET_FIREHOSE_M of 52428800 bytes and GASNET_FIREHOSE_MAXVICTIM_M of 52428800 are more than the",
        ),
        (
            everywhere(),
            &[("GASNET_PHYSMEM_PINNABLE_RATIO", "7")],
            "GASNET_PHYSMEM_PINNABLE_RATIO",
        ),
        (
            compile("gasnet_sources", SEQ),
            &[("GASNET_FIREHOSE_MAXVICTIM_M", "1K")],
            "GASNET_FIREHOSE_MAXVICTIM_M of 1024 bytes is less than 4 units",
        ),
        (
            compile("gasnet_sources", SEQ),
            &[
                ("GASNET_PHYSMEM_MAX", "10M"),
                ("GASNET_FIREHOSE_MAXVICTIM_M", "1G"),
            ],
            "GASNET_FIREHOSE_MAXVICTIM_M of 1073741824 are more than the",
        ),
    ];
    for (program, variables, words) in cases {
        let output = launch("seastar", 2, &program, &[])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let said = text(&output);
        assert!(!output.status.success(), "{variables:?}: {said}");
        assert!(said.contains(words), "{variables:?}: {said}");
    }
}

/// What a rank of a run of `program` with `args` on the model counts: misses at peers, misses here.
fn misses(program: &Path, args: &[&str], variables: &[(&str, &str)]) -> (u64, u64) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "misses-{}",
        args.first().copied().unwrap_or("none")
    ));
    let output = launch("seastar", 2, program, args)
        .env("GASNET_STATSFILE", &file)
        .env("GASNET_STATSMASK", "C")
        .env("GASNET_STATSNODES", "0")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let said = std::fs::read_to_string(&file).unwrap();
    let of = |who: &str| {
        let line = said.lines().find(|l| l.contains(who));
        let line = line.unwrap_or_else(|| panic!("no {who:?} in {said}"));
        let mut words = line.split(' ').skip_while(|w| *w != "misses");
        words.nth(1).and_then(|n| n.parse().ok()).unwrap()
    };
    (of("# at peers:"), of("# here:"))
}

/// Where no peer looks at memory after it went, data alone does not tell that a pin outlived it; how often memory is pinned
/// does: once in each round for own transfers, with a thread that makes no calls too, and once more for peers.
#[test]
fn every_way_in_which_memory_goes_ends_its_pins() {
    if !compiler("cc") {
        return;
    }
    let [first, second] = objects();
    let objects = [first.to_str().unwrap(), second.to_str().unwrap()];
    let program = compile("gasnet_sources", SEQ);
    let (_, kept) = misses(&program, &["keep"], &[]);
    assert!(kept > 8, "{kept}");
    for way in [
        "munmap", "mmap", "madvise", "mremap", "over", "thread", "unsaid", "shmdt", "remap", "brk",
        "sbrk", "object",
    ] {
        let args = [&[way], &objects[..]].concat();
        passes(2, &program, &args);
        let (_, found) = misses(&program, &args, &[]);
        // Memory that lies elsewhere may begin at a unit's start, and then fills one unit less.
        let elsewhere = ["shmdt", "remap", "brk", "sbrk", "object"].contains(&way);
        let units = if elsewhere { kept - 1 } else { kept };
        assert!(found >= 4 * units, "{way}: {found}, {kept} without it");
    }
    let output = run_on("seastar", 2, &program, &["trim"]);
    assert!(output.status.success(), "{}", text(&output));
    let (held, _) = misses(&everywhere(), &["one", "keep"], &[]);
    for way in [
        "munmap", "mmap", "madvise", "mremap", "over", "unsaid", "thread", "shmdt", "remap",
        "sbrk", "object",
    ] {
        let args = [&["one", way], &objects[..]].concat();
        let (found, _) = misses(&everywhere(), &args, &[]);
        assert!(found >= 2 * held, "{way}: {found}, {held} without it");
    }
}

/// Two shared objects of one layout.
fn objects() -> [PathBuf; 2] {
    static MADE: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        ["1", "2"].map(|contents| {
            let out =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gasnet-object-{contents}.so"));
            let output = Command::new("cc")
                .args(["-shared", "-fPIC", "-D"])
                .arg(format!("CONTENTS={contents}"))
                .arg(places().root.join("tests/c/gasnet_object.c"))
                .arg("-o")
                .arg(&out)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output));
            out
        })
    });
    made.clone()
}

/// Nothing of memory that has come is pinned, in no kind of segment and no thread model. `cargo xtask heap` runs more steps over
/// verbs.
#[test]
fn memory_of_every_kind_comes_and_goes() {
    if !compiler("cc") {
        return;
    }
    let [first, second] = objects();
    let objects = [first.to_str().unwrap(), second.to_str().unwrap()];
    let mut seed = 0;
    for model in ["seq", "parsync", "par"] {
        for segment in [
            "-DGASNET_SEGMENT_FAST",
            "-DGASNET_SEGMENT_LARGE",
            "-DGASNET_SEGMENT_EVERYTHING",
        ] {
            let b = Build {
                model,
                compiled_for: model,
                flags: &["-std=gnu99", segment],
                ..SEQ
            };
            seed += 1;
            let program = compile("gasnet_shadow", b);
            passes(
                2,
                &program,
                &[&seed.to_string(), "300", objects[0], objects[1]],
            );
        }
    }
}

/// What is on the stack of a thread is not pinned when another thread gets that.
#[test]
fn stacks_of_threads_stay_pinned_for_nobody() {
    if !compiler("cc") {
        return;
    }
    for segment in [
        "-DGASNET_SEGMENT_FAST",
        "-DGASNET_SEGMENT_LARGE",
        "-DGASNET_SEGMENT_EVERYTHING",
    ] {
        let b = Build {
            model: "parsync",
            compiled_for: "parsync",
            flags: &["-std=gnu99", segment],
            ..SEQ
        };
        passes(2, &compile("gasnet_sources", b), &["stack"]);
    }
}

fn everywhere() -> PathBuf {
    let b = Build {
        flags: &["-std=gnu99", "-DGASNET_SEGMENT_EVERYTHING"],
        ..SEQ
    };
    compile("gasnet_unmap", b)
}

/// Other seeds, more calls and larger regions are for who changes something: `gasnet_random SEED CALLS THREADS KIB`.
#[test]
fn random_calls_keep_memory_as_a_naive_model_has_it() {
    if !compiler("cc") {
        return;
    }
    let runs = [
        ("seq", "-DGASNET_SEGMENT_FAST", ["1", "800", "1"]),
        ("seq", "-DGASNET_SEGMENT_EVERYTHING", ["2", "800", "1"]),
        ("par", "-DGASNET_SEGMENT_LARGE", ["3", "400", "3"]),
    ];
    for (model, segment, args) in runs {
        let b = Build {
            model,
            compiled_for: model,
            flags: &["-std=gnu99", segment],
            ..SEQ
        };
        passes(3, &compile("gasnet_random", b), &args);
    }
}

/// What a wait sends before it blocks may handle what the program waits for; then nothing else comes.
#[test]
fn a_wait_looks_again_after_it_sent_of_a_collective() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_blocks", SEQ);
    let steps = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet-blocks-steps");
    std::fs::write(&steps, [0; 4]).unwrap();
    let output = run_on("shm", 2, &program, &[steps.to_str().unwrap()]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for node in 0..2 {
        assert!(said.contains(&format!("node {node}: all right")), "{said}");
    }
}

/// Calls of an object that came by `dlopen`, with the library behind it, are the C library's.
#[test]
fn memory_is_not_kept_where_calls_do_not_pass_by_the_library() {
    if !compiler("cc") {
        return;
    }
    let b = Build {
        flags: &["-std=gnu99", "-shared", "-fPIC", "-Dmain=run"],
        ..SEQ
    };
    let object = compile("gasnet_sources", b);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gasnet_apart");
    let output = Command::new("cc")
        .args(["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror"])
        .arg(places().root.join("tests/c/gasnet_apart.c"))
        .arg("-o")
        .arg(&program)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let object = object.to_str().unwrap();
    for way in ["munmap", "madvise", "shmdt"] {
        passes(2, &program, &[object, way]);
    }
}

/// Over shared memory each of two ranks maps both segments.
#[test]
fn segments_are_left_out_of_core_dumps_unless_asked_for() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_dumps", SEQ);
    for (fabric, segments) in [("shm", 2), ("seastar", 1)] {
        for (value, left_out) in [("0", true), ("1", false)] {
            let mut run = launch(fabric, 2, &program, &[]);
            let output = run.env("PORTOLAN_DUMP_SEGMENTS", value).output().unwrap();
            let said = text(&output);
            assert!(output.status.success(), "{fabric}: {said}");
            let expected = match left_out {
                true => format!("{segments} out, 0 in"),
                false => format!("0 out, {segments} in"),
            };
            for node in 0..2 {
                let line = format!("node {node}: {expected}");
                assert!(said.contains(&line), "{fabric} {value}: {line}: {said}");
            }
        }
    }
}

/// Stale pins show where the fabric pins: `cargo xtask heap` runs this over verbs.
#[test]
fn memory_goes_while_another_thread_uses_what_lies_beside_it() {
    if compiler("cc") {
        let b = Build {
            model: "par",
            compiled_for: "par",
            flags: &["-std=gnu99"],
            ..SEQ
        };
        passes(2, &compile("gasnet_beside", b), &["100"]);
    }
}

#[test]
fn every_thread_model_has_every_call() {
    if compiler("cc") {
        passes_in(&["parsync", "par"], 2, "gasnet_calls");
    }
}

#[test]
fn every_error_code_when_its_condition_holds() {
    if compiler("cc") {
        let program = compile("gasnet_errors", SEQ);
        for ranks in [1, 2, 3] {
            passes(ranks, &program, &[]);
        }
    }
}

#[test]
fn no_operation_allocates() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 2, "gasnet_allocations");
    }
}

#[test]
fn every_number_of_arguments() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 2, "gasnet_numbered");
    }
}

/// Nothing of the library needs random numbers or files once a program has its segment.
#[test]
fn a_program_may_refuse_itself_random_numbers_and_files() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 2, "gasnet_sealed");
    }
}

#[test]
fn tools_do_what_they_say() {
    if compiler("cc") {
        passes_in(&["seq", "par"], 1, "gasnet_tools_calls");
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
fn memory_is_reached_when_the_first_thread_has_ended() {
    if !compiler("cc") {
        return;
    }
    for segment in ["FAST", "LARGE", "EVERYTHING"] {
        let segment = format!("-DGASNET_SEGMENT_{segment}");
        let b = Build {
            flags: &["-std=gnu99", &segment],
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        passes(2, &compile("gasnet_leaves", b), &[]);
    }
}

#[test]
fn threads_wait_for_conditions_with_the_lock_of_an_hsl() {
    if !compiler("cc") || !compiler("c++") {
        return;
    }
    let c = Build {
        model: "par",
        compiled_for: "par",
        ..SEQ
    };
    let cxx = Build {
        compiler: "c++",
        flags: &["-x", "c++", "-DGASNET_DEBUG"],
        ..c
    };
    for b in [c, cxx] {
        passes(2, &compile("gasnet_conditions", b), &[]);
    }
}

/// What threads send to different nodes arrives, each message once; where nodes share memory they need no lock of the process:
/// a thread that sits in the library the while, with whatever it locks, does not keep them.
#[test]
fn threads_send_to_different_nodes() {
    if compiler("cc") {
        let b = Build {
            model: "par",
            compiled_for: "par",
            ..SEQ
        };
        let program = compile("gasnet_disjoint", b);
        passes(3, &program, &[]);
        let said = text(&run_on("shm", 3, &program, &["inside"]));
        for rank in 0..3 {
            assert!(said.contains(&format!("node {rank}: all right")), "{said}");
        }
    }
}
