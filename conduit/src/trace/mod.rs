//! Trace and statistics files in the format of GASNet (`GASNET_TRACEFILE`, `GASNET_STATSFILE`).
//!
//! ```text
//!  a call ─► is there a tracer? ─no─► nothing else         the branch that a run without files pays
//!                 │yes
//!                 ├─ counted, for the summary at the end    (stats.rs)
//!                 └─ a line, if its category is in the mask (file.rs)
//!
//!  RANK[(THREAD)] SECONDSs> [FILE:LINE] (CATEGORY) EVENT: what = number
//! ```
//!
//! # Invariants
//!
//! 1. Without a file there is no tracer.
//! 2. A hook takes no lock but the tracer's own, and no state of the conduit is borrowed in it: it may
//!    be called from every thread, and between any two steps of a call.
//! 3. A line has the place in the program that made the call: the caller's, or what
//!    [`Tracer::set_place`] said last on this thread where a layer above names places itself.
//! 4. The file is complete when the rank has left the job, however it leaves but by a signal.

mod file;
mod names;
mod stats;

pub(crate) use file::{Wishes, lists};
pub use names::{Category, Mask};

use file::{Sink, heading};
use names::Sort;
use portals_shim::gate::this_thread;
use portals_shim::{ClockKind, Interface};
use stats::Stats;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    static PLACE: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
}

type AtEnd = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Files {
    trace: Option<Sink>,
    stats: Option<Sink>,
    counted: Stats,
}

/// Writes what a rank does to its files.
pub struct Tracer {
    me: u32,
    nodes: u32,
    ni: Interface,
    start: u64,
    trace_mask: AtomicU16,
    stats_mask: AtomicU16,
    /// Categories that were counted at any time.
    counted: AtomicU16,
    without_local: AtomicBool,
    /// Places are what `set_place` says.
    told_places: AtomicBool,
    /// Lines name the thread.
    threads: AtomicBool,
    /// When the barrier was notified.
    notified: AtomicU64,
    files: Mutex<Files>,
    at_end: Mutex<Option<AtEnd>>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("rank", &self.me)
            .finish_non_exhaustive()
    }
}

/// A put or get, for its lines.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The event: `PUT_NB`.
    pub name: &'static str,
    /// The other side.
    pub node: u32,
    /// Address there.
    pub remote: u64,
    /// Address here.
    pub local: u64,
    /// Bytes.
    pub len: usize,
    /// The first bytes of a put.
    pub data: &'a [u8],
}

/// An active message, for its lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) name: &'static str,
    /// The other rank, and `dest` or `src`.
    pub(crate) peer: (&'static str, u32),
    pub(crate) handler: u8,
    pub(crate) args: &'a [i32],
    /// Address and length.
    pub(crate) payload: Option<(u64, usize)>,
    pub(crate) dest: Option<u64>,
}

/// An address as GASNet writes it, in halves.
fn address(addr: u64) -> String {
    format!("0x{:08x} {:08x}", addr >> 32, addr & 0xffff_ffff)
}

/// The start of what is sent.
fn dump(data: &[u8]) -> String {
    let shown: Vec<String> = data.iter().take(32).map(|b| format!("{b:02x}")).collect();
    let more = if data.len() > 32 { " .." } else { "" };
    format!("{}{more}", shown.join(" "))
}

impl Tracer {
    /// `None` where this rank writes no file.
    pub(crate) fn open(wishes: &Wishes, me: u32, nodes: u32, ni: &Interface) -> Option<Self> {
        let named = |file: &Option<String>, list: &Option<String>| {
            file.clone()
                .filter(|f| !f.is_empty() && lists(list.as_deref(), me))
        };
        let trace = named(&wishes.trace, &wishes.trace_nodes);
        let stats = named(&wishes.stats, &wishes.stats_nodes);
        if trace.is_none() && stats.is_none() {
            return None;
        }
        let mask = |file: bool, text: &Option<String>| {
            let chosen = text.as_deref().map_or(Mask::all(), Mask::parse);
            if file { chosen } else { Mask::default() }
        };
        let trace_mask = mask(trace.is_some(), &wishes.trace_mask);
        // Statistics go to the trace file too.
        let stats_mask = mask(true, &wishes.stats_mask);
        let open = |name: Option<String>, what: &'static str| {
            name.map(|name| Sink::open(&name, what, me, wishes.flush))
        };
        let tracer = Self {
            me,
            nodes,
            ni: ni.clone(),
            start: ni.now(),
            trace_mask: AtomicU16::new(trace_mask.bits()),
            stats_mask: AtomicU16::new(stats_mask.bits()),
            counted: AtomicU16::new(stats_mask.bits()),
            without_local: AtomicBool::new(wishes.without_local),
            told_places: AtomicBool::new(false),
            threads: AtomicBool::new(false),
            notified: AtomicU64::new(0),
            files: Mutex::new(Files {
                trace: open(trace, "tracing and statistical"),
                stats: open(stats, "statistical"),
                counted: Stats::new(),
            }),
            at_end: Mutex::new(None),
        };
        let clock = match ni.clock() {
            ClockKind::Virtual => "virtual, of the simulated fabric",
            _ => "wall",
        };
        for line in heading(me, nodes, clock) {
            tracer.plain(&line, true);
        }
        tracer.plain(&format!("GASNET_STATSMASK: {stats_mask}"), true);
        tracer.plain(&format!("GASNET_TRACEMASK: {trace_mask}"), false);
        tracer.plain(
            &format!("GASNET_TRACELOCAL: {}", u8::from(!wishes.without_local)),
            false,
        );
        Some(tracer)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the start of the file, on the fabric's clock.
    pub fn now(&self) -> u64 {
        self.ni.now().saturating_sub(self.start)
    }

    /// The categories that are written as lines.
    pub fn trace_mask(&self) -> Mask {
        Mask::from_bits(self.trace_mask.load(Ordering::Relaxed))
    }

    /// The categories that are counted.
    pub fn stats_mask(&self) -> Mask {
        Mask::from_bits(self.stats_mask.load(Ordering::Relaxed))
    }

    /// Chooses the categories that are written from here on.
    pub fn set_trace_mask(&self, mask: Mask) {
        self.trace_mask.store(mask.bits(), Ordering::Relaxed);
        self.line(
            Category::I,
            None,
            &format!("Setting GASNET_TRACEMASK to: {mask}"),
        );
    }

    /// Chooses the categories that are counted from here on.
    pub fn set_stats_mask(&self, mask: Mask) {
        self.stats_mask.store(mask.bits(), Ordering::Relaxed);
        self.counted.fetch_or(mask.bits(), Ordering::Relaxed);
        self.line(
            Category::I,
            None,
            &format!("Setting GASNET_STATSMASK to: {mask}"),
        );
    }

    /// Whether puts and gets of the own segment have lines.
    pub fn traces_local(&self) -> bool {
        !self.without_local.load(Ordering::Relaxed)
    }

    /// Chooses whether puts and gets of the own segment have lines.
    pub fn set_traces_local(&self, yes: bool) {
        self.without_local.store(!yes, Ordering::Relaxed);
    }

    /// Places come from [`Tracer::set_place`] from here on, and not from callers.
    pub fn take_places(&self) {
        self.told_places.store(true, Ordering::Relaxed);
    }

    /// Lines name the thread from here on.
    pub(crate) fn name_threads(&self) {
        self.threads.store(true, Ordering::Relaxed);
    }

    /// The place of the calls that this thread makes next.
    pub fn set_place(place: Option<(&'static str, u32)>) {
        PLACE.set(place);
    }

    /// The place that this thread set.
    pub fn place() -> Option<(&'static str, u32)> {
        PLACE.get()
    }

    /// Called once when the files end, before the summary.
    pub fn at_end(&self, run: impl FnOnce() + Send + 'static) {
        *self.at_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(run));
    }

    /// A line without time: to the trace file, and to the statistics where they have it too.
    pub fn plain(&self, text: &str, statistics: bool) {
        let line = format!("{}> {text}", self.me);
        let mut files = self.files();
        if let Some(sink) = &mut files.trace {
            sink.line(&line);
        }
        if let (true, Some(sink)) = (statistics, &mut files.stats) {
            sink.line(&line);
        }
    }

    fn line(&self, category: Category, at: Option<&'static Location<'static>>, text: &str) {
        let seconds = self.now() as f64 / 1e9;
        let mut line = self.me.to_string();
        if self.threads.load(Ordering::Relaxed) {
            let _ = write!(line, "({:x})", this_thread());
        }
        let _ = write!(line, " {seconds:8.6}s>");
        if self.trace_mask().has(Category::N) {
            let told = PLACE.get();
            if self.told_places.load(Ordering::Relaxed) {
                if let Some((file, number)) = told {
                    let _ = write!(line, " [{file}:{number}]");
                }
            } else if let Some(at) = at {
                let _ = write!(line, " [{}:{}]", at.file(), at.line());
            }
        }
        let _ = write!(line, " ({}) {text}", category.letter());
        if let Some(sink) = &mut self.files().trace {
            sink.line(&line);
        }
    }

    /// A message of the program (category H).
    #[track_caller]
    pub fn message(&self, text: &str) {
        if self.trace_mask().has(Category::H) {
            self.line(Category::H, Some(Location::caller()), text);
        }
    }

    /// A message of the program, whatever the mask.
    #[track_caller]
    pub fn message_always(&self, text: &str) {
        self.line(Category::H, Some(Location::caller()), text);
    }

    /// Counts an event of a counter's name and writes its line; `value` is its number, nanoseconds for a time.
    #[track_caller]
    pub fn event(&self, name: &str, local: bool, value: u64) {
        self.event_at(Some(Location::caller()), name, local, value);
    }

    fn event_at(
        &self,
        at: Option<&'static Location<'static>>,
        name: &str,
        local: bool,
        value: u64,
    ) {
        let counter = {
            let mut files = self.files();
            let Some(c) = files.counted.counter(name) else {
                return;
            };
            if self.stats_mask().has(c.category) {
                files.counted.add(name, local, value);
            }
            c
        };
        if !self.trace_mask().has(counter.category) || local && !self.traces_local() {
            return;
        }
        let (end, unit) = (if local { "_LOCAL" } else { "" }, counter.unit);
        let text = match counter.sort {
            Sort::Count => format!("{name}{end}"),
            Sort::Value => format!("{name}{end}: {unit} = {value:>6}"),
            Sort::Time => format!("{name}{end}: {unit} = {:6.3}us", value as f64 / 1000.0),
        };
        self.line(counter.category, at, &text);
    }

    /// Counts an event whose lines would say nothing.
    pub fn count(&self, name: &'static str) {
        let mut files = self.files();
        let category = files.counted.counter(name).map(|c| c.category);
        if category.is_some_and(|c| self.stats_mask().has(c)) {
            files.counted.add(name, false, 0);
        }
    }

    /// A wait that began at `since`, of [`Tracer::now`].
    #[track_caller]
    pub fn waited(&self, name: &'static str, since: u64) {
        self.event(name, false, self.now().saturating_sub(since));
    }

    /// A put, get or memset.
    #[track_caller]
    pub fn transfer(&self, t: &Transfer<'_>) {
        let at = Some(Location::caller());
        let local = t.node == self.me;
        self.event_at(at, t.name, local, t.len as u64);
        if !self.trace_mask().has(Category::D) || local && !self.traces_local() {
            return;
        }
        let end = if local { "_LOCAL" } else { "" };
        let (here, there) = (address(t.local), address(t.remote));
        let (node, len) = (t.node, t.len);
        let text = if t.name.starts_with("GET") {
            format!("{}{end}: {here} <- ({node},{there}) ({len} bytes)", t.name)
        } else {
            let data = dump(t.data);
            format!(
                "{}{end}: ({node},{there}) <- {here} ({len} bytes): {data}",
                t.name
            )
        };
        self.line(Category::D, at, &text);
    }

    /// A request, a reply, or a handler that starts.
    #[track_caller]
    pub(crate) fn am(&self, s: &Sent<'_>) {
        let at = Some(Location::caller());
        if self.stats_mask().has(Category::A) {
            self.files().counted.add(s.name, false, 0);
        }
        if !self.trace_mask().has(Category::A) {
            return;
        }
        let (word, node) = s.peer;
        let mut text = format!("{}: {word}={node} handler={}", s.name, s.handler);
        if let Some((addr, len)) = s.payload {
            let what = if word == "dest" {
                "source_addr"
            } else {
                "addr"
            };
            let _ = write!(text, " {what}={} nbytes={len}", address(addr));
        }
        if let Some(dest) = s.dest {
            let _ = write!(text, " dest_addr={}", address(dest));
        }
        text.push_str(" args:");
        for a in s.args {
            let _ = write!(text, " 0x{a:08x}");
        }
        self.line(Category::A, at, &text);
    }

    /// The barrier is notified.
    #[track_caller]
    pub fn barrier_notified(&self, id: i32, flags: i32) {
        self.notified.store(self.now(), Ordering::Relaxed);
        self.count("BARRIER_NOTIFY");
        if self.trace_mask().has(Category::B) {
            let text = format!("BARRIER_NOTIFY(team=GASNET_TEAM_ALL,id={id},flags={flags})");
            self.line(Category::B, Some(Location::caller()), &text);
        }
    }

    /// A wait for the barrier begins; its time is that of the later [`Tracer::waited`].
    #[track_caller]
    pub fn barrier_awaited(&self) -> u64 {
        let now = self.now();
        let since = self.notified.load(Ordering::Relaxed);
        self.event("BARRIER_NOTIFYWAIT", false, now.saturating_sub(since));
        now
    }

    /// Who this is, for programs that read several files: from which line on operations are the program's.
    pub(crate) fn introduce(&self) {
        let job = std::env::current_exe().unwrap_or_default();
        let job = job
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (me, nodes) = (self.me, self.nodes);
        let text = format!(
            "GASNET_TRACE_MAGIC: I am thread {me} of {nodes} on node {me} of {nodes} in job <{job}>"
        );
        self.line(Category::H, None, &text);
    }

    /// What was written reaches the files.
    pub fn flush(&self) {
        let mut files = self.files();
        let Files { trace, stats, .. } = &mut *files;
        for sink in [trace, stats].into_iter().flatten() {
            sink.flush();
        }
    }

    /// Writes the summary and ends the files. `details` are lines of category C. Whether the files are whole; where not,
    /// it was said.
    pub(crate) fn finish(&self, details: &str) -> bool {
        let seconds = self.now() as f64 / 1e9;
        self.plain(
            &format!("Total application run time: {seconds:10.6}s"),
            true,
        );
        let counted = Mask::from_bits(self.counted.load(Ordering::Relaxed));
        let at_end = self
            .at_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(run) = at_end.filter(|_| counted.has(Category::H)) {
            self.plain(&"-".repeat(80), true);
            run();
        }
        let lines = self.files().counted.lines(counted.union(self.stats_mask()));
        for line in lines {
            self.plain(&line, true);
        }
        if counted.has(Category::C) {
            for line in details.lines() {
                self.plain(&format!("(C) {line}"), true);
            }
        }
        let mut files = self.files();
        let sinks = [files.trace.take(), files.stats.take()];
        let flushed = sinks.into_iter().flatten().map(|mut sink| sink.flush());
        flushed.fold(true, |all, whole| all & whole)
    }
}
