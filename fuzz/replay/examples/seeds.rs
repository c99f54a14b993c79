//! Writes the seeds of the corpora: `cargo run -p portolan-replay --example seeds`.

use portals_core::{Ack, Body, Header, MdHandle, ProcessId};
use std::path::Path;

fn header(body: Body) -> Header {
    Header {
        target: ProcessId::new(0, 0),
        source: ProcessId::new(1, 1),
        uid: 0,
        jid: 0,
        pt_index: 1,
        match_bits: 1,
        body,
    }
}

/// One header of each operation, as an honest peer sends it.
fn honest() -> [(&'static str, Header); 5] {
    // The descriptors of a fresh interface 0 are slots 0, 1, … of generation 0.
    let md = |slot: u32| MdHandle::from_raw(0x8000_0000 | slot);
    [
        (
            "put",
            header(Body::Put {
                length: 8,
                remote_offset: 4,
                hdr_data: 3,
                ac_index: 0,
                ack_md: Some(md(1)),
            }),
        ),
        (
            "get",
            header(Body::Get {
                length: 8,
                remote_offset: 0,
                ac_index: 0,
                reply_md: md(1),
                reply_offset: 0,
            }),
        ),
        (
            "getput",
            header(Body::GetPut {
                length: 8,
                remote_offset: 0,
                hdr_data: 0,
                ac_index: 0,
                reply_md: md(1),
                reply_offset: 0,
            }),
        ),
        (
            "ack",
            header(Body::Ack(Ack {
                md: md(40),
                offset: 0,
                rlength: 64,
                mlength: 64,
            })),
        ),
        (
            "reply",
            header(Body::Reply {
                md: md(40),
                local_offset: 0,
                rlength: 8,
                mlength: 8,
            }),
        ),
    ]
}

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let write = |target: &str, name: &str, data: &[u8]| {
        let dir = corpus.join(target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), data)
    };

    let mut all = Vec::new();
    for (name, h) in honest() {
        let record = [&[0][..], &h.encode()].concat();
        write("wire", name, &record)?;
        all.extend(record);
    }
    write("wire", "one-of-each", &all)?;
    write("wire", "one-of-each-twice-failing", &{
        let failing: Vec<u8> = all
            .chunks(81)
            .flat_map(|r| [&[8], &r[1..]].concat())
            .collect();
        [all.clone(), failing].concat()
    })?;
    write("wire", "short", &all[..50])?;
    write("wire", "lengths-that-wrap", &{
        let mut record = all[..81].to_vec();
        record[41..57].fill(0xff);
        record
    })?;

    let mut rng = fastrand::Rng::with_seed(33);
    for i in 0..8 {
        let mut data = vec![0; 600 + 300 * i];
        rng.fill(&mut data);
        write("calls", &format!("random-{i}"), &data)?;
    }
    write("calls", "nothing", &[])?;
    write("calls", "zeros", &[0; 500])?;

    for kind in 0..7u8 {
        // A SeaStar header packet of each operation, two of them unknown.
        let packet = [&[0, kind][..], &[0x11; 63]].concat();
        write("frames", &format!("packet-{kind}"), &packet)?;
        // A frame of each kind, with all that a header may have.
        let frame = [&[1, kind][..], &[0; 7], &[0, 0x7f, 0, 0], &[0x22; 120]].concat();
        write("frames", &format!("frame-{kind}"), &frame)?;
    }

    for (name, line) in [
        (
            "init",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        ),
        (
            "maxes",
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
        ),
        ("words", "cmd=get_result rc=-1 msg=no such key value=a=b=c"),
        ("value", "cmd=get_result rc=0 value=2:%00%ffabc"),
        ("tabs", " \tcmd=finalize_ack\t "),
        ("no-key", "cmd=a =b"),
        ("control", "cmd=a\u{1}b"),
        ("empty", ""),
    ] {
        write("pmi", name, line.as_bytes())?;
    }
    Ok(())
}
