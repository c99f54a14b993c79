//! The declarations against the header, and what needs no library.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use super::library::{
    COLLECT_DATA, Info, JOB_SIZE, KEY_LEN, KIND_BOOL, KIND_BYTES, KIND_UINT32, LOCAL_SIZE,
    NOT_FOUND, NSPACE_LEN, PARTIAL_SUCCESS, Proc, RANK_WILDCARD, SCOPE_GLOBAL, Value,
};
use super::*;

/// Where Debian puts the header.
const HEADERS: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/pmix2/include",
    "/usr/lib/aarch64-linux-gnu/pmix2/include",
    "/usr/include",
];

#[test]
fn the_declarations_are_those_of_the_header() {
    let Some(headers) = HEADERS
        .iter()
        .find(|h| Path::new(h).join("pmix.h").exists())
    else {
        println!("skipped: no pmix.h (Debian: libpmix-dev)");
        return;
    };
    let ours = [
        ("sizeof(pmix_proc_t)", size_of::<Proc>() as u64),
        ("offsetof(pmix_proc_t,rank)", offset_of!(Proc, rank) as u64),
        ("sizeof(pmix_value_t)", size_of::<Value>() as u64),
        (
            "offsetof(pmix_value_t,data)",
            offset_of!(Value, data) as u64,
        ),
        ("sizeof(pmix_info_t)", size_of::<Info>() as u64),
        (
            "offsetof(pmix_info_t,flags)",
            offset_of!(Info, flags) as u64,
        ),
        (
            "offsetof(pmix_info_t,value)",
            offset_of!(Info, value) as u64,
        ),
        (
            "sizeof(pmix_byte_object_t)",
            size_of::<library::Bytes>() as u64,
        ),
        ("sizeof(pmix_scope_t)", 1),
        ("sizeof(pmix_status_t)", 4),
        ("PMIX_MAX_NSLEN+1", NSPACE_LEN as u64),
        ("PMIX_MAX_KEYLEN+1", KEY_LEN as u64),
        ("PMIX_BOOL", KIND_BOOL.into()),
        ("PMIX_UINT32", KIND_UINT32.into()),
        ("PMIX_BYTE_OBJECT", KIND_BYTES.into()),
        ("PMIX_GLOBAL", SCOPE_GLOBAL.into()),
        ("(uint32_t)(PMIX_RANK_WILDCARD)", RANK_WILDCARD.into()),
        ("PMIX_SUCCESS", 0),
        (
            "(uint32_t)(PMIX_ERR_NOT_FOUND)",
            NOT_FOUND.cast_unsigned().into(),
        ),
        (
            "(uint32_t)(PMIX_ERR_PARTIAL_SUCCESS)",
            PARTIAL_SUCCESS.cast_unsigned().into(),
        ),
    ];
    let mut source = String::from("#include <stddef.h>\n#include <stdint.h>\n#include <pmix.h>\n");
    for (expression, value) in ours {
        writeln!(
            source,
            "_Static_assert({expression} == {value}u, \"{expression}\");"
        )
        .unwrap();
    }
    for (name, value) in [
        ("PMIX_JOB_SIZE", JOB_SIZE),
        ("PMIX_LOCAL_SIZE", LOCAL_SIZE),
        ("PMIX_COLLECT_DATA", COLLECT_DATA),
    ] {
        let text = value.to_str().unwrap();
        writeln!(
            source,
            "char {name}_is[sizeof({name}) == sizeof(\"{text}\") ? 1 : -1];"
        )
        .unwrap();
        writeln!(source, "const char *text_of_{name} = {name};").unwrap();
    }
    source.push_str(
        "pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;\n\
         pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *) = PMIx_Put;\n\
         pmix_status_t (*commit)(void) = PMIx_Commit;\n\
         pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;\n\
         pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t,\n\
             pmix_value_t **) = PMIx_Get;\n\
         pmix_status_t (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;\n\
         pmix_status_t (*end)(int, const char *, pmix_proc_t *, size_t) = PMIx_Abort;\n\
         const char *(*words)(pmix_status_t) = PMIx_Error_string;\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("declarations.c");
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Werror",
            "-fsyntax-only",
            "-I",
            headers,
        ])
        .arg(&file)
        .output();
    let Ok(output) = output else {
        println!("skipped: no cc");
        return;
    };
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
}

#[test]
fn the_owner_of_a_key_is_asked_first() {
    let order = |key, size| likeliest(key, size).take(3).collect::<Vec<_>>();
    assert_eq!(order("addr.3", 8), [3, 0, 1]);
    assert_eq!(order("addr.3.1", 8), [3, 1, 0]);
    assert_eq!(order("sim", 8), [0, 1, 2]);
    assert_eq!(order("addr.9", 8), [0, 1, 2]);
    assert_eq!(order("a.99999999999999999999", 2), [0, 1]);
}

#[test]
fn foreign_blobs_are_errors() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
        let _ = postcard::from_bytes::<Blob>(&bytes);
    }
    let huge = [0xff; 10];
    assert!(postcard::from_bytes::<Blob>(&huge).is_err());
}

/// Who passes the last round has heard, directly or not, of every rank.
#[test]
fn the_rounds_of_a_fence_hear_of_every_rank() {
    for size in 1..40u32 {
        let own = |rank: u32| std::collections::BTreeSet::from([rank]);
        let mut heard: Vec<_> = (0..size).map(own).collect();
        let last = rounds(0, size).count();
        for round in 0..last {
            let before = heard.clone();
            for rank in 0..size {
                let (number, below) = rounds(rank, size).nth(round).unwrap();
                assert_eq!(number as usize, round);
                heard[rank as usize].extend(&before[below as usize]);
            }
        }
        assert!(heard.iter().all(|h| h.len() == size as usize), "{size}");
    }
}
