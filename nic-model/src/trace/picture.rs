//! The picture: how busy each part of each node was, as an SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::{Output, Record, Scene, Sink, What, micros};
use crate::time::SimTime;
use crate::topology::{NodeId, Port};

/// Columns; what happens within one is added up.
const COLUMNS: usize = 1100;
/// Nodes drawn at most; the first ones.
const NODES: usize = 64;
/// Messages drawn as arrows at most.
const ARROWS: usize = 400;
/// Pixels left of the columns, above the first node, of a row, between nodes.
const LEFT: usize = 110;
const TOP: usize = 56;
const ROW: usize = 13;
const GAP: usize = 9;

/// Name and colour of each row.
const ROWS: [(&str, &str); 5] = [
    ("host", "#c8501e"),
    ("firmware", "#005ab5"),
    ("tx", "#1a7f37"),
    ("rx", "#8250df"),
    ("links", "#57606a"),
];
const TX: usize = 2;
const RX: usize = 3;
/// The row of links; a picture remembers each of them.
const LINKS: usize = 4;
const LANES: usize = LINKS + Port::LINKS.len();

#[derive(Debug, Clone, Copy)]
struct Arrow {
    from: (SimTime, u16),
    to: (SimTime, u16),
}

/// Draws a row of bars for each of host, firmware, tx engine, rx engine and outgoing links of
/// each node (the first 64); a bar's height is the share of its time in which that part was
/// busy, of links the busiest.
///
/// Of a whole world the columns become wider as time goes on. Of a window they are fixed, and the
/// messages whose header arrived within it are drawn as arrows from tx to rx.
#[derive(Debug)]
pub struct Picture<W> {
    out: Output<W>,
    title: String,
    nodes: usize,
    start: SimTime,
    end: SimTime,
    /// Whether the columns are fixed.
    fixed: bool,
    /// Picoseconds of a column.
    width: u64,
    /// Busy picoseconds by node, lane (a row, or one of the links), column.
    busy: Vec<u64>,
    sent: BTreeMap<(u16, u16, u16), SimTime>,
    arrows: Vec<Arrow>,
    left_out: u64,
}

impl<W: Write> Picture<W> {
    /// Draws into `to` at the end; of everything, or from the first instant of `window` to its
    /// second.
    pub fn new(to: W, scene: &Scene, title: &str, window: Option<(SimTime, SimTime)>) -> Self {
        let nodes = scene.topology.nodes().min(NODES);
        let (start, end) = window.unwrap_or_default();
        let width = match window {
            Some(_) => end.since(start).0.div_ceil(COLUMNS as u64).max(1),
            None => 1_000,
        };
        Self {
            out: Output::new(to),
            title: title.to_owned(),
            nodes,
            start,
            end,
            fixed: window.is_some(),
            width,
            busy: vec![0; nodes * LANES * COLUMNS],
            sent: BTreeMap::new(),
            arrows: Vec::new(),
            left_out: 0,
        }
    }

    /// Makes columns twice as wide.
    fn widen(&mut self) {
        for row in self.busy.chunks_mut(COLUMNS) {
            for column in 0..COLUMNS {
                let pair = row.get(2 * column..2 * column + 2);
                row[column] = pair.map_or(0, |pair| pair.iter().sum());
            }
        }
        self.width *= 2;
    }

    fn add(&mut self, node: NodeId, lane: usize, from: SimTime, to: SimTime) {
        if node.index() >= self.nodes {
            return;
        }
        if !self.fixed {
            self.end = self.end.max(to);
            while to.since(self.start).0 >= self.width * COLUMNS as u64 {
                self.widen();
            }
        }
        let limit = SimTime(self.start.0 + self.width * COLUMNS as u64);
        let (from, to) = (from.max(self.start), to.min(limit));
        let first = (node.index() * LANES + lane) * COLUMNS;
        let mut at = from;
        while at < to {
            let column = (at.since(self.start).0 / self.width) as usize;
            let next = SimTime(self.start.0 + (column as u64 + 1) * self.width).min(to);
            if let Some(busy) = self.busy.get_mut(first + column) {
                *busy += next.since(at).0;
            }
            at = next;
        }
    }

    fn arrow(&mut self, key: (u16, u16, u16), at: SimTime) {
        let Some(sent) = self.sent.remove(&key) else {
            return;
        };
        let seen = usize::from(key.0.max(key.1)) < self.nodes;
        if !self.fixed || !seen || sent < self.start || at > self.end {
            return;
        }
        if self.arrows.len() == ARROWS {
            self.left_out += 1;
            return;
        }
        self.arrows.push(Arrow {
            from: (sent, key.0),
            to: (at, key.1),
        });
    }

    fn height(&self) -> usize {
        TOP + self.nodes * (ROWS.len() * ROW + GAP) + 40
    }

    fn y(node: usize, row: usize) -> usize {
        TOP + node * (ROWS.len() * ROW + GAP) + row * ROW
    }

    /// Columns with something in them, or all of a window.
    fn columns(&self) -> usize {
        if self.fixed {
            return COLUMNS;
        }
        let used = self.end.since(self.start).0.div_ceil(self.width) as usize;
        used.clamp(1, COLUMNS)
    }

    /// Where an instant is, in tenths of a pixel.
    fn x(&self, at: SimTime) -> u64 {
        let span = self.width * self.columns() as u64;
        let within = u128::from(at.since(self.start).0) * COLUMNS as u128 * 10;
        LEFT as u64 * 10 + (within / u128::from(span)) as u64
    }

    fn draw(&self) -> String {
        let (all, height) = (LEFT + COLUMNS + 20, self.height());
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {all} {height}" width="{all}" height="{height}" font-family="sans-serif" font-size="11">
<rect width="{all}" height="{height}" fill="#ffffff"/>
<defs><marker id="head" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="#b00020"/></marker></defs>
<text x="{LEFT}" y="18" font-size="15">{}</text>"##,
            escaped(&self.title)
        );
        self.legend(&mut svg);
        self.axis(&mut svg);
        for node in 0..self.nodes {
            let y = Self::y(node, 0);
            let middle = y + ROWS.len() * ROW / 2 + 4;
            let _ = writeln!(
                svg,
                r#"<text x="8" y="{middle}" font-size="12">node {node}</text>"#
            );
            for (row, (name, colour)) in ROWS.iter().enumerate() {
                let base = Self::y(node, row) + ROW - 1;
                let _ = writeln!(
                    svg,
                    r##"<text x="{}" y="{}" font-size="8" text-anchor="end" fill="#57606a">{name}</text><path d="M{LEFT},{base} h{COLUMNS}" stroke="#e4e7eb"/>"##,
                    LEFT - 5,
                    base - 1,
                );
                let path = self.bars(node, row, base);
                if !path.is_empty() {
                    let _ = writeln!(svg, r#"<path d="{path}" fill="{colour}"/>"#);
                }
            }
        }
        for arrow in &self.arrows {
            let ends = [(arrow.from, TX), (arrow.to, RX)].map(|((at, node), row)| {
                let x = self.x(at);
                (x / 10, x % 10, Self::y(usize::from(node), row) + ROW / 2)
            });
            let [(x1, f1, y1), (x2, f2, y2)] = ends;
            let _ = writeln!(
                svg,
                r##"<line x1="{x1}.{f1}" y1="{y1}" x2="{x2}.{f2}" y2="{y2}" stroke="#b00020" stroke-width="0.8" stroke-opacity="0.7" marker-end="url(#head)"/>"##
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        for (name, colour) in ROWS {
            let _ = writeln!(
                svg,
                r#"<rect x="{x}" y="28" width="10" height="10" fill="{colour}"/><text x="{}" y="37">{name}</text>"#,
                x + 14
            );
            x += 80;
        }
        let mut words = "height: share of the time in use".to_owned();
        if !self.arrows.is_empty() {
            words.push_str(
                "; arrows: messages, from the start of the transmit to the header's arrival",
            );
        }
        if self.left_out > 0 {
            let _ = write!(words, " ({} more left out)", self.left_out);
        }
        let _ = writeln!(
            svg,
            r##"<text x="{x}" y="37" fill="#57606a">{words}</text>"##
        );
    }

    fn axis(&self, svg: &mut String) {
        let span = self.width * self.columns() as u64;
        // The step is 1, 2 or 5 of a power of ten of picoseconds, with 6 to 14 marks.
        let mut step = 1u64;
        for factor in [2, 5, 10].iter().cycle() {
            let power = 10u64.pow(step.ilog10());
            if span / step <= 14 {
                break;
            }
            step = power * factor;
        }
        let bottom = TOP + self.nodes * (ROWS.len() * ROW + GAP);
        let mut at = self.start.0.div_ceil(step) * step;
        while at <= self.start.0 + span {
            let x = self.x(SimTime(at));
            let label = micros(at);
            let _ = writeln!(
                svg,
                r##"<line x1="{0}.{1}" y1="{TOP}" x2="{0}.{1}" y2="{bottom}" stroke="#eef0f3"/><text x="{0}.{1}" y="{2}" text-anchor="middle">{label}</text>"##,
                x / 10,
                x % 10,
                bottom + 14,
            );
            at += step;
        }
        let _ = writeln!(
            svg,
            r##"<text x="{}" y="{}" text-anchor="middle" fill="#57606a">virtual time, µs</text>"##,
            LEFT + COLUMNS / 2,
            bottom + 30
        );
    }

    /// The bars of a row as one outline.
    fn bars(&self, node: usize, row: usize, base: usize) -> String {
        let lanes = if row == LINKS {
            LINKS..LANES
        } else {
            row..row + 1
        };
        let most = (ROW - 2) as u64 * 10;
        let columns = self.columns();
        let tall = |column: usize| {
            let busy = |lane| self.busy[(node * LANES + lane) * COLUMNS + column];
            let busy = lanes.clone().map(busy).max().unwrap_or(0).min(self.width);
            // What is there is seen.
            (busy * most / self.width).max(u64::from(busy > 0) * 10)
        };
        let at = |column: usize| LEFT + column * COLUMNS / columns;
        let mut path = String::new();
        let mut column = 0;
        while column < columns {
            let here = tall(column);
            let same = (column..columns).take_while(|&c| tall(c) == here).count();
            if here > 0 {
                let (x, wide) = (at(column), at(column + same) - at(column));
                let (whole, tenth) = (here / 10, here % 10);
                let _ = write!(path, "M{x},{base}v-{whole}.{tenth}h{wide}V{base}z");
            }
            column += same;
        }
        path
    }
}

/// A title as text of XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl<W: Write + Send> Sink for Picture<W> {
    fn record(&mut self, record: &Record<'_>) {
        let (node, time) = (record.node, record.time);
        match record.what {
            What::Trap { from, .. } | What::Handler { from, .. } => self.add(node, 0, from, time),
            What::Work { from, .. } => self.add(node, 1, from, time),
            What::TxStart {
                destination,
                sequence,
                ..
            } => {
                self.sent.insert((node.0, destination.0, sequence), time);
            }
            What::TxEnd { from, .. } => self.add(node, TX, from, time),
            What::RxEnd { from, .. } => self.add(node, RX, from, time),
            What::Header {
                source, sequence, ..
            } => self.arrow((source.0, node.0, sequence), time),
            What::Hop {
                port, from, busy, ..
            } if port != Port::Node => {
                self.add(node, LINKS + port as usize, from, from + busy);
            }
            _ => {}
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        let svg = self.draw();
        self.out.write(svg.as_bytes());
        self.out.finish().map_err(|e| format!("picture: {e}"))
    }
}
