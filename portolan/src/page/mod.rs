//! Timelines and results as one page of HTML that needs nothing else: no server, no network, no other file.
//!
//! ```text
//!   FILE ── read ──▶ Source ─┬─ bench ──▶ curves, quartiles, residuals ─┐
//!                            ├─ trace ──▶ rows, slices, torus ──────────┤
//!                            └─ links ──▶ loads by link and time ───────┴──▶ JSON in assets/page.html, drawn by assets/page.js
//! ```
//!
//! What comes from files is data of the page and never markup: it stands in a block of JSON in which `<`, `>` and `&` are escaped,
//! and the script makes text nodes of it. A content security policy in the page forbids every load.

mod bench;
mod links;
mod read;
mod trace;

use std::io::{self, Write};

use serde::Serialize;

pub(crate) use links::Links;
pub(crate) use read::{ReadError, read};
pub(crate) use trace::Timeline;

use crate::bench::{Origin, Record};

/// The page, with places for style, data and script.
const PAGE: &str = include_str!("../../assets/page.html");
const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// What a page shows.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its name, as a heading.
    pub(crate) name: String,
    pub(crate) what: What,
}

/// The kinds of files.
#[derive(Debug)]
pub(crate) enum What {
    /// Results of measurements.
    Results(Vec<Record>),
    /// A timeline of the SeaStar model.
    Timeline(Timeline),
    /// Loads of the model's links over time.
    Links(Links),
}

/// A line of a list: what it is, and what is said.
type Fact = (&'static str, String);

#[derive(Debug, Serialize)]
struct Page {
    title: &'static str,
    about: Vec<Fact>,
    sources: Vec<Shown>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Shown {
    Bench(bench::Bench),
    Trace(trace::Trace),
    Links(links::Shown),
}

/// Writes a page of `sources`, which this command has made.
///
/// # Errors
/// What the system says of the file.
pub(crate) fn write(sources: &[Source], mut to: impl Write) -> io::Result<()> {
    let origin = Origin::here(false);
    let shown = sources.iter().map(|source| match &source.what {
        What::Results(records) => Shown::Bench(bench::Bench::of(&source.name, records)),
        What::Timeline(timeline) => Shown::Trace(timeline.shown(&source.name)),
        What::Links(links) => Shown::Links(links.shown(&source.name)),
    });
    let page = Page {
        title: "Portolan",
        about: vec![
            ("page made by", origin.command),
            ("version", origin.portolan),
        ],
        sources: shown.collect(),
    };
    let data = inert(&serde_json::to_string(&page)?);
    let mut rest = PAGE;
    for (place, text) in [("@STYLE@", STYLE), ("@DATA@", &data), ("@SCRIPT@", SCRIPT)] {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        to.write_all(before.as_bytes())?;
        to.write_all(text.as_bytes())?;
        rest = after;
    }
    to.write_all(rest.as_bytes())?;
    to.flush()
}

/// JSON without a character that HTML could take for its own. They stand in strings only, where an escape says the same.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_end_no_script() {
        let bad = "</script><script>alert(1)</script><!-- & @SCRIPT@";
        let source = Source {
            name: bad.to_owned(),
            what: What::Results(Vec::new()),
        };
        let mut page = Vec::new();
        write(&[source], &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("alert(1)</script>"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
        let data = page.split_once("id=\"data\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["sources"][0]["file"], bad, "said as it is");
    }

    #[test]
    fn the_page_asks_for_nothing_else() {
        let mut page = Vec::new();
        write(&[], &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        // The one address is the name of SVG's elements, which nobody loads.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:", "https:", " src=", "@import", "url(", "fetch(", "import(",
        ] {
            assert!(!addresses.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
