//! The output of ranks with the rank in front of each line (`portolan run --tag-output`).
//!
//! ```text
//!   rank 0 ── pipe ──▶ Lines ──┐
//!   rank 1 ── pipe ──▶ Lines ──┴── thread ──▶ standard output     and the same once more for standard error
//! ```
//!
//! A line is written as a whole. A thread keeps at most [`LONGEST`] bytes of each rank; a longer line becomes several. A
//! rank that writes faster than its reader reads waits at its pipe, as it would without tags.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Instant;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::interrupts::{Interrupts, Told};
use super::wait;

/// The longest line that is not cut, bytes.
const LONGEST: usize = 16 << 10;
/// What is read of one rank before another has its turn.
const CHUNK: usize = 64 << 10;

/// Makes whole lines of what a rank writes.
#[derive(Debug)]
struct Lines {
    tag: Vec<u8>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    fn of(rank: u32) -> Self {
        Self {
            tag: format!("[{rank}] ").into_bytes(),
            begun: Vec::new(),
        }
    }

    /// Takes what a rank has written, and adds the lines that are whole to `out`.
    fn push(&mut self, written: &[u8], out: &mut Vec<u8>) {
        for piece in written.split_inclusive(|byte| *byte == b'\n') {
            for part in piece.chunks(LONGEST) {
                if self.begun.len() + part.len() > LONGEST {
                    self.finish(out);
                }
                self.begun.extend_from_slice(part);
                if part.ends_with(b"\n") {
                    out.extend_from_slice(&self.tag);
                    out.append(&mut self.begun);
                }
            }
        }
    }

    /// Adds what was begun to `out`, as a line.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            out.extend_from_slice(&self.tag);
            out.append(&mut self.begun);
            out.push(b'\n');
        }
    }
}

/// One stream of one rank.
#[derive(Debug)]
struct Source {
    pipe: OwnedFd,
    lines: Lines,
}

/// Pipes that wait for their ranks, before any is read.
#[derive(Debug, Default)]
pub(super) struct Tags {
    out: Vec<Source>,
    err: Vec<Source>,
}

/// Where a rank writes its standard output and its standard error.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) out: OwnedFd,
    pub(super) err: OwnedFd,
}

impl Tags {
    /// Makes the pipes of a rank.
    pub(super) fn add(&mut self, rank: u32) -> io::Result<Written> {
        let source = |to: &mut Vec<Source>| {
            let (pipe, written) = pipe_with(PipeFlags::CLOEXEC)?;
            let lines = Lines::of(rank);
            to.push(Source { pipe, lines });
            io::Result::Ok(written)
        };
        Ok(Written {
            out: source(&mut self.out)?,
            err: source(&mut self.err)?,
        })
    }

    /// Begins to read, in a thread for each stream.
    pub(super) fn forward(self) -> io::Result<Forwarding> {
        let (asked, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let (done, ended) = pipe_with(PipeFlags::CLOEXEC)?;
        let to = [
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        for (sources, to) in [self.out, self.err].into_iter().zip(to) {
            let (asked, ended) = (asked.try_clone()?, ended.try_clone()?);
            thread::Builder::new().spawn(move || {
                forward(sources, to.as_fd(), asked.as_fd());
                drop(ended);
            })?;
        }
        Ok(Forwarding { stop, done })
    }
}

/// The threads that write what ranks have written.
#[derive(Debug)]
pub(super) struct Forwarding {
    /// Closed when no rank is left.
    stop: OwnedFd,
    /// At its end when both threads have ended.
    done: OwnedFd,
}

impl Forwarding {
    /// Waits until all that ranks have written is written on; no rank is left. A user who asks for the end again, or a
    /// front that is gone, ends the wait.
    pub(super) fn finish(self, interrupts: &mut Interrupts) {
        drop(self.stop);
        while !interrupts.is_lost() {
            let fds: Vec<BorrowedFd<'_>> = [self.done.as_fd()]
                .into_iter()
                .chain(interrupts.fds())
                .collect();
            match wait::readable(&fds, None) {
                Ok(ready) if ready.first() == Some(&false) => {}
                Ok(_) | Err(_) => return,
            }
            while let Some(told) = interrupts.take() {
                match told {
                    Told::End(_) | Told::Lost => return,
                    Told::Stop => interrupts.answer(),
                    Told::Continue | Told::Pass(_) => {}
                }
            }
        }
    }
}

/// Writes lines of `sources` to `to` until all are at their end, or, once `asked` is, until nothing is left in them. Where
/// `to` takes nothing any more it returns, which closes the pipes, so that ranks are told.
fn forward(mut sources: Vec<Source>, to: BorrowedFd<'_>, asked: BorrowedFd<'_>) {
    let mut last = false;
    let mut chunk = vec![0; CHUNK];
    let mut out = Vec::new();
    while !sources.is_empty() {
        let mut fds: Vec<BorrowedFd<'_>> = sources.iter().map(|s| s.pipe.as_fd()).collect();
        let of_sources = fds.len();
        if !last {
            fds.push(asked);
        }
        let Ok(ready) = wait::readable(&fds, last.then(Instant::now)) else {
            return;
        };
        if last && !ready.contains(&true) {
            break;
        }
        last |= ready.get(of_sources) == Some(&true);
        let mut open = Vec::with_capacity(sources.len());
        for (mut source, ready) in sources.into_iter().zip(ready) {
            let ended = ready && !source.read(&mut chunk, &mut out);
            if write_all(to, &out).is_err() {
                return;
            }
            out.clear();
            if !ended {
                open.push(source);
            }
        }
        sources = open;
    }
    for source in &mut sources {
        source.lines.finish(&mut out);
    }
    // Nobody is left to be told.
    let _ = write_all(to, &out);
}

impl Source {
    /// Reads once, and adds whole lines to `out`; `false` at the end.
    fn read(&mut self, chunk: &mut [u8], out: &mut Vec<u8>) -> bool {
        match rustix::io::read(&self.pipe, &mut *chunk) {
            Err(Errno::INTR) => true,
            Ok(0) | Err(_) => {
                self.lines.finish(out);
                false
            }
            Ok(count) => {
                self.lines.push(chunk.get(..count).unwrap_or_default(), out);
                true
            }
        }
    }
}

/// Writes all of `bytes`, to a stream that does not block too: others may have made it so.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => drop(wait::ready(&[], &[to], None)?),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of `Lines` for writes of a rank, and at its end.
    fn lines(writes: &[&str]) -> String {
        let (mut lines, mut out) = (Lines::of(7), Vec::new());
        for written in writes {
            lines.push(written.as_bytes(), &mut out);
            assert!(lines.begun.len() <= LONGEST);
        }
        lines.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_line_has_its_rank_however_it_is_written() {
        assert_eq!(lines(&["a\nb\n"]), "[7] a\n[7] b\n");
        assert_eq!(lines(&["a", "b", "\n\nc"]), "[7] ab\n[7] \n[7] c\n");
        assert_eq!(lines(&[]), "");
        assert_eq!(lines(&["", "a"]), "[7] a\n");
    }

    #[test]
    fn a_line_without_end_is_cut_and_loses_nothing() {
        let long = "x".repeat(LONGEST + 10);
        for writes in [
            &[long.as_str(), "\n"][..],
            &[&long[..9], &long[9..]],
            &["y\n", &long],
        ] {
            let text = lines(writes);
            let whole = text.replace("[7] ", "").replace(['\n', 'y'], "");
            assert_eq!(whole, long);
            assert!(text.lines().all(|l| l.len() <= LONGEST + 4));
        }
        // One that fits with its end is not.
        let fits = format!("{}\n", "x".repeat(LONGEST - 1));
        assert_eq!(lines(&[&fits[..5], &fits[5..]]), format!("[7] {fits}"));
    }

    #[test]
    fn ranks_are_read_until_they_end_or_nothing_is_left_of_them() {
        for outlives in [false, true] {
            let mut sources = Vec::new();
            let mut kept = Vec::new();
            for rank in 0..2 {
                let (pipe, written) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                rustix::io::write(&written, b"one\ntwo").unwrap();
                let lines = Lines::of(rank);
                sources.push(Source { pipe, lines });
                kept.extend(outlives.then_some(written));
            }
            let (read, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let (asked, stop) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let _open = (!outlives).then_some(stop);
            forward(sources, to.as_fd(), asked.as_fd());
            drop(to);
            let said = io::read_to_string(std::fs::File::from(read)).unwrap();
            let mut said: Vec<&str> = said.lines().collect();
            said.sort_unstable();
            assert_eq!(said, ["[0] one", "[0] two", "[1] one", "[1] two"]);
        }
    }
}
