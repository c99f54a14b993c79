//! Where lines go: files named by variables, and what they begin with.

use crate::env::EnvError;
use portals_shim::{PRIVILEGED, is_privileged};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the environment asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// `GASNET_TRACEFILE`, `GASNET_STATSFILE`: names of files.
    pub(crate) trace: Option<String>,
    pub(crate) stats: Option<String>,
    /// `GASNET_TRACEMASK`, `GASNET_STATSMASK`; all categories where unset.
    pub(crate) trace_mask: Option<String>,
    pub(crate) stats_mask: Option<String>,
    /// `GASNET_TRACENODES`, `GASNET_STATSNODES`: the ranks that write; all where unset.
    pub(crate) trace_nodes: Option<String>,
    pub(crate) stats_nodes: Option<String>,
    /// `GASNET_TRACEFLUSH`: each line reaches the file at once.
    pub(crate) flush: bool,
    /// `GASNET_TRACELOCAL=0`: no lines for puts and gets of the own segment.
    pub(crate) without_local: bool,
}

/// Whether a list such as `0,2-4` names `node`; `*` and the empty list name all.
pub(crate) fn lists(list: Option<&str>, node: u32) -> bool {
    let list = list.unwrap_or_default();
    let mut words = list.split(',').map(str::trim).filter(|w| !w.is_empty());
    let mut any = false;
    let found = words.any(|word| {
        any = true;
        let (low, high) = word.split_once('-').unwrap_or((word, word));
        let number = |w: &str| w.trim().parse::<u32>();
        word.starts_with('*')
            || matches!((number(low), number(high)), (Ok(l), Ok(h)) if (l..=h).contains(&node))
    });
    found || !any
}

/// A place for lines.
pub(super) struct Sink {
    to: Box<dyn Write + Send>,
    name: String,
    what: &'static str,
    flush: bool,
    /// Something could not be written, which was said.
    broken: bool,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink")
            .field("name", &self.name)
            .field("flush", &self.flush)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// The file of that name, unless the program must not open what a variable names.
fn create(name: &str) -> Result<File, String> {
    if is_privileged() {
        return Err(PRIVILEGED.to_owned());
    }
    File::create(name).map_err(|e| e.to_string())
}

impl Sink {
    /// Opens `name`, in which every `%` is the rank; `stdout`, and `stderr` or `-`, are those. A file that cannot be
    /// written becomes standard error. Says on standard error where the output of this kind goes.
    pub(super) fn open(name: &str, what: &'static str, node: u32, flush: bool) -> Self {
        let name = name.replace('%', &node.to_string());
        let (to, name): (Box<dyn Write + Send>, _) = match name.as_str() {
            "stderr" | "-" => (Box::new(io::stderr()), "stderr".to_owned()),
            "stdout" => (Box::new(io::LineWriter::new(io::stdout())), name),
            _ => match create(&name) {
                Ok(file) => (Box::new(BufWriter::with_capacity(1 << 16, file)), name),
                Err(e) => {
                    crate::say(format_args!(
                        "ERROR: cannot write '{name}' for {what} output ({e}), which goes to standard error"
                    ));
                    (Box::new(io::stderr()), "stderr".to_owned())
                }
            },
        };
        crate::say(format_args!(
            "GASNet reporting enabled - {what} output directed to {name}"
        ));
        Self {
            to,
            name,
            what,
            flush,
            broken: false,
        }
    }

    /// A line.
    pub(super) fn line(&mut self, text: &str) {
        self.make(|to| {
            to.write_all(text.as_bytes())?;
            to.write_all(b"\n")
        });
        if self.flush {
            self.flush();
        }
    }

    /// What was written reaches the file. Whether all did since it was opened.
    pub(super) fn flush(&mut self) -> bool {
        self.make(|to| to.flush());
        !self.broken
    }

    /// Writes, unless that has failed before, which is said when it happens.
    fn make(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.broken {
            return;
        }
        if let Err(e) = write(&mut *self.to) {
            self.broken = true;
            crate::say(format_args!(
                "ERROR: cannot write '{}' ({e}): the {} output is not whole",
                self.name, self.what
            ));
        }
    }
}

/// The time of day, UTC.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = seconds.unwrap_or_default().as_secs();
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!(
        "{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
        days + 1
    )
}

/// What every file begins with.
pub(super) fn heading(me: u32, nodes: u32, clock: &str) -> Vec<String> {
    let program = std::env::current_exe().map(|p| p.display().to_string());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let words = std::env::args_os().map(|a| {
        let word = a.to_string_lossy().into_owned();
        if word.contains(char::is_whitespace) {
            format!("'{word}'")
        } else {
            word
        }
    });
    let words: Vec<String> = words.collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    vec![
        format!(
            "Program {} (pid={}) starting on {} at: {}",
            program.unwrap_or_default(),
            std::process::id(),
            host.trim(),
            date()
        ),
        format!("Command-line: {}", words.join(" ")),
        format!(
            "GASNET_CONFIG_STRING: RELEASE={},SPEC=1.8,CONDUIT=PORTALS(PORTALS-1.5/PORTALS-1.5),SEGMENT=FAST,\
             PTR=64bit,noalign,nopshm,trace,stats",
            env!("CARGO_PKG_VERSION")
        ),
        format!("gasnet_mynode(): {me}"),
        format!("gasnet_nodes(): {nodes}"),
        format!("gasneti_cpu_count(): {processors}"),
        format!("clock: {clock}"),
    ]
}

impl Wishes {
    /// Reads them with `text` and `switch`, which look a variable up.
    pub(crate) fn read(
        text: impl Fn(&'static str, &str) -> Option<String>,
        switch: impl Fn(&'static str, bool) -> Result<bool, EnvError>,
    ) -> Result<Self, EnvError> {
        let all = super::Mask::all().to_string();
        Ok(Self {
            trace: text("GASNET_TRACEFILE", ""),
            stats: text("GASNET_STATSFILE", ""),
            trace_mask: text("GASNET_TRACEMASK", &all),
            stats_mask: text("GASNET_STATSMASK", &all),
            trace_nodes: text("GASNET_TRACENODES", ""),
            stats_nodes: text("GASNET_STATSNODES", ""),
            flush: switch("GASNET_TRACEFLUSH", false)?,
            without_local: !switch("GASNET_TRACELOCAL", true)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks() {
        for (list, named) in [
            ("", "0123"),
            ("*", "0123"),
            ("0,2-3", "023"),
            (" 1 ", "1"),
            ("x", ""),
            ("9", ""),
        ] {
            let got: String = (0..4u32)
                .filter(|n| lists(Some(list), *n))
                .map(|n| n.to_string())
                .collect();
            assert_eq!(got, named, "{list:?}");
        }
        assert!(lists(None, 7));
    }

    #[test]
    fn a_full_disk_is_noticed_and_stays_so() {
        let mut sink = Sink::open("/dev/full", "test", 0, false);
        // In the buffer.
        sink.line("a line");
        assert!(!sink.broken);
        assert!(!sink.flush() && !sink.flush());
        let mut sink = Sink::open("/dev/full", "test", 0, true);
        sink.line("a line");
        assert!(sink.broken);
        let mut sink = Sink::open("/dev/null", "test", 0, true);
        sink.line("a line");
        assert!(sink.flush());
    }

    #[test]
    fn dates_are_dates() {
        let date = date();
        assert!(date.len() == 23 && date.starts_with("20"), "{date}");
    }
}
