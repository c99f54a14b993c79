//! The slides as tables: the original conduit, ours and the bench beside each other, at each size; and what the slides say in words.

use super::printed::Printed;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write as _;

/// What ran on the model.
pub(super) struct Results {
    /// The programs over the original conduit, and over ours.
    pub(super) original: Printed,
    pub(super) ours: Printed,
    /// Lines of JSON of `portolan bench`.
    pub(super) bench: String,
}

/// A measurement, as programs and bench name it.
#[derive(Clone, Copy)]
struct Measure {
    /// Above its table.
    title: &'static str,
    /// The program, and its words.
    program: &'static str,
    printed: &'static str,
    /// The bench's name, and its unit.
    bench: &'static str,
    unit: &'static str,
}

/// The first so many are of the slides.
const SLIDES: usize = 3;

const MEASURES: [Measure; 7] = [
    Measure {
        title: "Slide 9: blocking put out of memory of `malloc` (`testsmall`, section A), µs",
        program: "testsmall",
        printed: "put latency",
        bench: "segment-put",
        unit: "us",
    },
    Measure {
        title: "Slide 10: 16 non-blocking puts out of the segment (`testlarge -in`, section C), MB/s",
        program: "testlarge",
        printed: "put_nb_bulk throughput",
        bench: "segment-put-bandwidth",
        unit: "MB/s",
    },
    Measure {
        title: "Slide 15: Medium and its reply with the same payload (`testam`, section B), µs",
        program: "testam",
        printed: "AMMedium ping-pong roundtrip ReqRep",
        bench: "am-medium",
        unit: "us",
    },
    Measure {
        title: "On no slide: 256 non-blocking puts out of the segment (`testlarge -in`, section B), MB/s; the bench has 16",
        program: "testlarge",
        printed: "put_nbi_bulk throughput",
        bench: "segment-put-bandwidth",
        unit: "MB/s",
    },
    Measure {
        title: "On no slide: blocking get into memory of `malloc` (`testsmall`, section A), µs",
        program: "testsmall",
        printed: "get latency",
        bench: "segment-get",
        unit: "us",
    },
    Measure {
        title: "On no slide: Short and its reply (`testam`, section A), µs",
        program: "testam",
        printed: "AMShort ping-pong roundtrip ReqRep",
        bench: "am-short",
        unit: "us",
    },
    Measure {
        title: "On no slide: a Short of 256 that nobody answers (`testam`, section A), µs",
        program: "testam",
        printed: "AMShort flood one-way Req",
        bench: "am-flood",
        unit: "us",
    },
];

/// What a slide says in words, as a ratio of times or of rates. The portals-conduit is one part of it; the bench has the other.
struct Saying {
    slide: u32,
    what: &'static str,
    published: &'static str,
    /// Which measurement of the portals-conduit.
    measure: usize,
    /// The bench's name and conduit of the other part.
    other: (&'static str, Option<&'static str>),
    sizes: &'static [u64],
}

const SAYINGS: [Saying; 5] = [
    Saying {
        slide: 9,
        what: "GASNet over MPI / portals-conduit",
        published: "about 2",
        measure: 0,
        other: ("segment-put", Some("mpi")),
        sizes: &[8, 1024],
    },
    Saying {
        slide: 9,
        what: "MPI's ping-ack / portals-conduit",
        published: "above 1",
        measure: 0,
        other: ("tag-ping-ack", None),
        sizes: &[8, 1024],
    },
    Saying {
        slide: 10,
        what: "portals-conduit / MPI's flood",
        published: "1 or more",
        measure: 1,
        other: ("tag-bandwidth", None),
        sizes: &[2048, 65_536, 2_097_152],
    },
    Saying {
        slide: 10,
        what: "portals-conduit / GASNet over MPI",
        published: "above 1",
        measure: 1,
        other: ("segment-put-bandwidth", Some("mpi")),
        sizes: &[2048, 65_536, 2_097_152],
    },
    Saying {
        slide: 15,
        what: "GASNet over MPI / portals-conduit",
        published: "above 1",
        measure: 2,
        other: ("am-medium", Some("mpi")),
        sizes: &[8, 1024],
    },
];

/// The bench's result of a measurement at a size.
pub(super) fn benched(
    results: &str,
    (bench, conduit): (&str, Option<&str>),
    bytes: u64,
) -> Result<Option<f64>> {
    for line in results.lines() {
        let result: Value = serde_json::from_str(line)?;
        if result["bench"].as_str() == Some(bench)
            && result["conduit"].as_str() == conduit
            && result["bytes"].as_u64() == Some(bytes)
        {
            return Ok(Some(result["median"].as_f64().context("no median")?));
        }
    }
    Ok(None)
}

/// A value as tables have it; three digits that count.
fn shown(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The same of a value that may be missing.
fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), shown)
}

fn ratio(of: Option<f64>, to: Option<f64>) -> String {
    let ratio = of.zip(to).map(|(of, to)| of / to);
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A size as the slides have it.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

impl Results {
    /// All as Markdown.
    pub(super) fn markdown(&self) -> Result<String> {
        let mut text = String::new();
        for measure in &MEASURES {
            self.measure(measure, &mut text)?;
        }
        self.sayings(&mut text)?;
        Ok(text)
    }

    fn measure(&self, measure: &Measure, text: &mut String) -> Result<()> {
        let Measure {
            title,
            printed,
            bench,
            ..
        } = *measure;
        writeln!(
            text,
            "**{title}**\n\n\
             | bytes | original conduit | ours | ours / original | `bench {bench}` | ours / bench |\n\
             |--:|--:|--:|--:|--:|--:|"
        )?;
        for figure in self.ours.of(printed) {
            let (bytes, ours) = (figure.bytes, Some(figure.value));
            let original = self.original.at(printed, bytes);
            let bench = benched(&self.bench, (bench, Some("portals")), bytes)?;
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                size(bytes),
                cell(original),
                cell(ours),
                ratio(ours, original),
                cell(bench),
                ratio(ours, bench),
            )?;
        }
        writeln!(text)?;
        Ok(())
    }

    /// What the slides say, with a ratio of each column.
    fn sayings(&self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "**What the slides say in words**\n\n\
             | slide | ratio | bytes | published | original conduit | ours | `bench` |\n\
             |--:|---|--:|--:|--:|--:|--:|"
        )?;
        for saying in &SAYINGS {
            let measure = &MEASURES[saying.measure];
            for bytes in saying.sizes.iter().copied() {
                let other = benched(&self.bench, saying.other, bytes)?;
                let of = |own: Option<f64>| match measure.unit {
                    "us" => ratio(other, own),
                    _ => ratio(own, other),
                };
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} | {} |",
                    saying.slide,
                    saying.what,
                    size(bytes),
                    saying.published,
                    of(self.original.at(measure.printed, bytes)),
                    of(self.ours.at(measure.printed, bytes)),
                    of(benched(
                        &self.bench,
                        (measure.bench, Some("portals")),
                        bytes
                    )?),
                )?;
            }
        }
        Ok(())
    }

    /// Lines for the pictures: what the programs printed for the slides, in the form of the bench's results, and those.
    pub(super) fn lines(&self) -> String {
        let mut lines = self.bench.clone();
        for (printed, conduit) in [(&self.original, "the original"), (&self.ours, "our")] {
            for measure in &MEASURES[..SLIDES] {
                for figure in printed.of(measure.printed) {
                    let value = figure.value;
                    let line = serde_json::json!({
                        "bench": measure.bench, "fabric": "seastar", "mode": "generic", "ranks": 2,
                        "bytes": figure.bytes, "iters": 1, "clock": "virtual", "unit": measure.unit,
                        "min": value, "median": value, "p99": value, "max": value,
                        "conduit": format!("{} over {conduit} portals", measure.program),
                    });
                    lines.push_str(&line.to_string());
                    lines.push('\n');
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(bench: &str, conduit: Option<&str>, bytes: u64, median: f64) -> String {
        let line = serde_json::json!({"bench": bench, "conduit": conduit, "bytes": bytes, "median": median});
        format!("{line}\n")
    }

    fn results() -> Results {
        let put = |us: u32| {
            format!(
                "A:  0 -   8 byte :  10 iters, latency  {us} us total,  9.9 us ave. (put latency)\n"
            )
        };
        let flood = |rate: f64| {
            format!(
                "C:   0 - 2097152 byte : 16 iters, throughput {rate} MB/sec (put_nb_bulk throughput)\n"
            )
        };
        let text = |us, rate| Printed::read(&(put(us) + &flood(rate)));
        Results {
            original: text(100, 1000.0),
            ours: text(110, 900.0),
            bench: [
                bench("segment-put", Some("portals"), 8, 10.0),
                bench("segment-put", Some("mpi"), 8, 20.0),
                bench("segment-put-bandwidth", Some("mpi"), 2 << 20, 524.288),
                bench("tag-bandwidth", None, 2 << 20, 1048.576),
            ]
            .concat(),
        }
    }

    #[test]
    fn a_row_has_each_way_and_the_ratios() {
        let text = results().markdown().unwrap();
        assert!(
            text.contains("| 8 | 10.0 | 11.0 | 1.10 | 10.0 | 1.10 |\n"),
            "{text}"
        );
        assert!(
            text.contains("| 2M | 1049 | 944 | 0.90 | – | – |\n"),
            "{text}"
        );
    }

    /// A ratio says how much better the portals-conduit is: of times the other one's to its own, of rates its own to the other's.
    #[test]
    fn what_a_slide_says_has_a_ratio_of_each_way() {
        let text = results().markdown().unwrap();
        for row in [
            "| 9 | GASNet over MPI / portals-conduit | 8 | about 2 | 2.00 | 1.82 | 2.00 |",
            "| 10 | portals-conduit / MPI's flood | 2M | 1 or more | 1.00 | 0.90 | – |",
            "| 10 | portals-conduit / GASNet over MPI | 2M | above 1 | 2.00 | 1.80 | – |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }

    #[test]
    fn pictures_have_a_line_for_each_conduit() {
        let lines = results().lines();
        let found = |conduit: &str| {
            let conduit = (("segment-put"), Some(conduit));
            benched(&lines, conduit, 8).unwrap()
        };
        assert_eq!(found("testsmall over the original portals"), Some(10.0));
        assert_eq!(found("testsmall over our portals"), Some(11.0));
        assert_eq!(found("portals"), Some(10.0));
    }

    #[test]
    fn sizes_are_those_of_the_slides() {
        for (bytes, shown) in [
            (0, "0"),
            (1000, "1000"),
            (2048, "2K"),
            (1025, "1025"),
            (2 << 20, "2M"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
