use super::*;
use crate::memory::Memory;
use conduit::threads::{self, RankEnd};
use tempfile::TempPath;

/// A file of nobody else's that goes away with the value.
struct Scratch(TempPath);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::NamedTempFile::new().unwrap().into_temp_path())
    }

    /// A file that is not there.
    fn absent() -> Self {
        let s = Self::new();
        std::fs::remove_file(&s.0).unwrap();
        s
    }

    fn grid(dims: Dims, seed: u64) -> Self {
        let s = Self::new();
        generate(dims, seed, &s.0).unwrap();
        s
    }

    fn open(&self) -> Result<GridFile, HeatError> {
        Ok(GridFile::open(&self.0)?)
    }
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    let grid = Scratch::grid([19, 16, 17], 3);
    let alone = serial(&grid.open().unwrap(), 7).unwrap();
    assert_ne!(
        alone.checksum,
        serial(&grid.open().unwrap(), 6).unwrap().checksum
    );
    let ways =
        [Memory::Segment, Memory::Everything].map(|m| [(Exchange::Am, m), (Exchange::Put, m)]);
    for (exchange, memory) in ways.into_iter().flatten() {
        for ranks in [1, 2, 3, 4, 8] {
            let ends = threads::run(ranks, |conduit| {
                run(conduit, || grid.open(), 7, exchange, memory).unwrap()
            });
            for (rank, end) in ends.into_iter().enumerate() {
                let want = (rank == 0).then_some(alone);
                let words = format!("{ranks} ranks, {exchange:?}, {memory:?}");
                assert_eq!(end, RankEnd::Returned(want), "{words}");
            }
        }
    }
    let line = alone.to_string();
    assert!(
        line.starts_with("heat3d: grid 19x16x17 steps 7 checksum 0x"),
        "{line}"
    );
}

#[test]
fn seeds_and_every_cell_count() {
    let one = serial(&Scratch::grid([8, 8, 8], 1).open().unwrap(), 0).unwrap();
    let two = serial(&Scratch::grid([8, 8, 8], 2).open().unwrap(), 0).unwrap();
    assert_ne!(one.checksum, two.checksum);
    let grid = Scratch::grid([8, 8, 8], 1);
    let mut bytes = std::fs::read(&grid.0).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&grid.0, bytes).unwrap();
    assert_ne!(
        serial(&grid.open().unwrap(), 0).unwrap().checksum,
        one.checksum
    );
}

/// A wave along x decays at the rate of the scheme, which is that of the equation to eighth order.
#[test]
fn the_stencil_diffuses() {
    let grid = Scratch::grid([32, 4, 4], 0);
    let mut bytes = std::fs::read(&grid.0).unwrap();
    let wave = |i: usize| (std::f64::consts::TAU * (i % 32) as f64 / 32.0).sin();
    for (i, b) in bytes[40..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *b = wave(i).to_le_bytes();
    }
    std::fs::write(&grid.0, bytes).unwrap();
    let mut block = Block::new([32, 4, 4], [1, 1, 1], 0);
    block.load(&grid.open().unwrap()).unwrap();
    for _ in 0..10 {
        for face in 0..6 {
            let cells = block.face(face);
            block.set_ghost(face ^ 1, &cells);
        }
        block.step();
    }
    // Variable 4, the lowest y and z: its face through z has it first among its rows.
    let rows = block.face(4);
    let row = &rows[4 * rows.len() / VARIABLES..][..32];
    let k = std::f64::consts::TAU / 32.0;
    let factor = (1.0 - 0.05 * k * k).powi(10);
    for (i, value) in row.iter().enumerate() {
        assert!((value - factor * wave(i)).abs() < 1e-9, "cell {i}: {value}");
    }
}

#[test]
fn blocks_are_near_cubes_and_never_thinner_than_ghosts() {
    assert_eq!(decompose([32, 32, 32], 8), Ok([2, 2, 2]));
    assert_eq!(decompose([64, 8, 8], 4), Ok([4, 1, 1]));
    assert_eq!(decompose([16, 16, 28], 7), Ok([1, 1, 7]));
    let small = decompose([16, 16, 16], 5).unwrap_err();
    assert_eq!(
        small.to_string(),
        "grid 16x16x16 is too small for 5 ranks: each block needs 4 cells along each axis"
    );
}

#[test]
fn bad_files_end_all_ranks_with_one_error() {
    let missing = Scratch::absent();
    let text = Scratch::new();
    std::fs::write(
        &text.0,
        "these are not the cells you are looking for, at all",
    )
    .unwrap();
    let cut = Scratch::grid([8, 8, 8], 1);
    let whole = std::fs::metadata(&cut.0).unwrap().len();
    std::fs::File::options()
        .write(true)
        .open(&cut.0)
        .unwrap()
        .set_len(whole - 1)
        .unwrap();
    let head = Scratch::grid([8, 8, 8], 1);
    std::fs::File::options()
        .write(true)
        .open(&head.0)
        .unwrap()
        .set_len(39)
        .unwrap();
    let thin = Scratch::grid([4, 4, 4], 1);
    for (file, says) in [
        (&missing, "No such file"),
        (&text, "wrong magic"),
        (&cut, "20519 bytes long, a grid of this shape has 20520"),
        (&head, "39 bytes long"),
        (&thin, "too small for 3 ranks"),
    ] {
        let ends = threads::run(3, |conduit| {
            match run(conduit, || file.open(), 1, Exchange::Am, Memory::Segment) {
                Ok(_) => panic!("{says}: accepted"),
                Err(e) => {
                    assert_eq!(conduit.mynode(), 0, "rank 0 speaks for all");
                    assert!(portals_shim::with_causes(&e).contains(says), "{e}");
                    conduit.exit(2);
                }
            }
        });
        assert!(
            ends.iter().all(|e| *e == RankEnd::<()>::Exited(2)),
            "{says}: {ends:?}"
        );
    }
}

#[test]
fn a_rank_that_cannot_read_the_file_says_so() {
    let grid = Scratch::grid([16, 16, 16], 1);
    let missing = Scratch::absent();
    let ends = threads::run(2, |conduit| {
        let file = if conduit.mynode() == 1 {
            &missing
        } else {
            &grid
        };
        let e = run(
            conduit,
            || file.open(),
            1,
            Exchange::Put,
            Memory::Everything,
        )
        .unwrap_err();
        assert_eq!(conduit.mynode(), 1);
        assert!(portals_shim::with_causes(&e).contains("No such file"));
        conduit.exit(2);
    });
    assert!(
        ends.iter().all(|e| *e == RankEnd::<()>::Exited(2)),
        "{ends:?}"
    );
}
