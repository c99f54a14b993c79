//! `portolan view` and `portolan report`: what goes into a page, what is refused, and what a browser draws of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the command in `folder`.
fn portolan(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn success(folder: &Path, words: &[&str]) -> String {
    let output = portolan(folder, words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the page has for its script.
fn data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// A name that is markup, wherever it is not text.
const NAME: &str = "<img src=x onerror=document.documentElement.dataset.error=1>&.jsonl";
const TITLE: &str = "</script><script>document.documentElement.dataset.error='broken out'</script>";

/// A folder with results, a timeline and a page of both.
fn both() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let results = [
        "bench",
        "pingpong",
        "put-bandwidth",
        "am-short",
        "--fabric",
        "seastar",
        "--sizes",
        "0,8,32,1K",
        "--iters",
        "2",
        "--json",
        NAME,
    ];
    success(at, &results);
    let title = format!("PORTOLAN_TRACE_TITLE={TITLE}");
    let traced = [
        "trace",
        "-n",
        "2",
        "--out",
        "t.json",
        "--link-series",
        "links.json",
        "--env",
        &title,
        "--",
        "portolan",
        "bench-rank",
        "put-latency",
        "--sizes",
        "8",
        "--iters",
        "1",
        "--out",
        "results",
    ];
    success(at, &traced);
    let said = success(
        at,
        &["view", NAME, "t.json", "links.json", "-o", "page.html"],
    );
    assert_eq!(said, "page.html: open it in a browser\n");
    folder
}

#[test]
fn a_page_says_what_it_shows_and_where_that_came_from() {
    let folder = both();
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page.matches("</script>").count(), 2, "names are no markup");
    let data = data(&page);
    let version = env!("CARGO_PKG_VERSION");
    let facts = |of: &Value, key: &str| -> Vec<String> {
        let facts = of["about"].as_array().unwrap().iter();
        let facts = facts.filter(|fact| fact[0] == key);
        facts
            .map(|fact| fact[1].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(facts(&data, "version"), [version]);
    let [bench, trace, links] = data["sources"].as_array().unwrap().as_slice() else {
        panic!("{data}")
    };
    assert_eq!(
        (&bench["file"], &trace["file"], &links["file"]),
        (&NAME.into(), &"t.json".into(), &"links.json".into())
    );
    for source in [bench, trace] {
        assert_eq!(facts(source, "version"), [version]);
    }
    for source in [bench, trace, links] {
        let machine = facts(source, "machine").concat();
        assert!(
            machine.contains("XT4") && machine.contains("simulated"),
            "{machine}"
        );
    }
    let command = facts(bench, "command").concat();
    assert!(
        command.starts_with("portolan bench pingpong put-bandwidth"),
        "{command}"
    );
    assert!(
        command.ends_with("'<img src=x onerror=document.documentElement.dataset.error=1>&.jsonl'"),
        "{command}"
    );
    assert_eq!(facts(trace, "program"), [TITLE]);
    let charts = bench["charts"].as_array().unwrap();
    let titles: Vec<&Value> = charts.iter().map(|c| &c["title"]).collect();
    assert_eq!(titles, ["pingpong", "put-bandwidth", "am-short"]);
    // 0, 8 and 32 bytes and 1 KiB are published; what the others are compared with is not.
    assert_eq!(
        charts[0]["residuals"][0]["points"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(charts[1]["residuals"], Value::Array(Vec::new()));
    assert_eq!(trace["topology"], serde_json::json!([2, 1, 1]));
    assert!(trace["flows"].as_array().unwrap().len() > 4);
    let rows = links["rows"].as_array().unwrap().iter();
    let names: Vec<&Value> = rows.map(|row| &row["link"]).collect();
    assert_eq!(
        names,
        ["(0,0,0) x+", "(0,0,0) node", "(1,0,0) x+", "(1,0,0) node"]
    );
}

#[test]
fn what_cannot_be_shown_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("text"), "hello\n").unwrap();
    fs::write(at.join("empty"), "").unwrap();
    for (words, status, said) in [
        (
            &["view", "text"][..],
            1,
            "text is neither a timeline of `portolan trace` nor results of `portolan bench --json`: line 1",
        ),
        (&["view", "empty"], 1, "empty is empty; write results with"),
        (&["view", "missing"], 1, "cannot read missing: No such file"),
        (&["view", "."], 1, "cannot read .: Is a directory"),
        (
            &["view", "text", "-o", "no/such/page.html"],
            1,
            "cannot create no/such/page.html: No such file or directory (os error 2); make no/such first",
        ),
        (
            &["report", "-o", "no/such/page.html"],
            1,
            "cannot create no/such/page.html",
        ),
        (
            &["view", "text", "-o", "./text"],
            2,
            "./text is read, so that the page cannot go there",
        ),
        (&["view"], 2, "not provided"),
        (
            &["report", "--machine", "nosuch", "-o", "r.html"],
            3,
            "nosuch",
        ),
    ] {
        let output = portolan(at, words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
    let mut left: Vec<_> = fs::read_dir(at)
        .unwrap()
        .map(|f| f.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["empty", "text"], "a page that is not written goes");
    assert_eq!(fs::read_to_string(at.join("text")).unwrap(), "hello\n");
}

#[test]
fn a_report_is_of_the_model_and_has_the_timeline_of_a_put() {
    let folder = tempfile::tempdir().unwrap();
    let said = success(
        folder.path(),
        &["report", "--sizes", "8,1K", "--machine", "redstorm"],
    );
    assert_eq!(
        said,
        "portolan-report.html: simulated figures and the timeline of a put; open it in a browser\n"
    );
    let page = fs::read_to_string(folder.path().join("portolan-report.html")).unwrap();
    let data = data(&page);
    let [bench, put] = data["sources"].as_array().unwrap().as_slice() else {
        panic!("{data}")
    };
    let pingpong = &bench["charts"][0];
    let standing: Vec<&Value> = pingpong["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["standing"])
        .collect();
    assert_eq!(standing, ["simulated", "published fit"]);
    assert!(put["names"].as_array().unwrap().contains(&"put".into()));
}

/// A browser of this machine.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let files = std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// What the script of a page sets when it has come to its end, or has failed.
const ENDS: [&str; 3] = ["data-drawn", "data-error", "data-paper"];

/// The elements of a page after its script has run. On a busy machine a browser may print the page before that, and is asked again.
fn drawn(browser: &Path, page: &Path, width: u32, scheme: Scheme) -> String {
    let mut elements = String::new();
    for _ in 0..10 {
        elements = printed(browser, page, width, scheme);
        if ENDS
            .iter()
            .any(|end| elements.contains(&format!(" {end}=\"")))
        {
            break;
        }
    }
    elements
}

/// The elements of a page when the browser prints them.
fn printed(browser: &Path, page: &Path, width: u32, scheme: Scheme) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args([
            "--virtual-time-budget=10000",
            "--allow-file-access-from-files",
        ])
        .arg(format!("--window-size={width},900"))
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            scheme as u32
        ))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Which colours the reader prefers, as the browser's setting counts them.
#[derive(Debug, Clone, Copy)]
enum Scheme {
    Dark = 0,
    Light = 1,
}

/// A page with another one in it, which says by how much that is wider than its frame, and what its paper is.
const AROUND: &str = r#"<!doctype html><body><script>
const frame = document.createElement('iframe');
frame.width = WIDTH;
frame.onload = () => setTimeout(() => {
  const page = frame.contentDocument;
  const { scrollWidth, clientWidth } = page.documentElement;
  document.body.dataset.over = scrollWidth - clientWidth;
  document.body.dataset.wide = frame.clientWidth;
  document.body.dataset.paper = getComputedStyle(page.body).backgroundColor;
}, 2000);
frame.src = 'page.html';
document.body.append(frame);
</script></body>"#;

/// Boxes of loads of links: neighbours in one of 20 shades are one.
fn heat(source: &Value) -> usize {
    let rows = source["rows"].as_array().unwrap();
    let cells =
        |row: &Value| -> Vec<(u64, f64)> { serde_json::from_value(row["cells"].clone()).unwrap() };
    let all = rows.iter().flat_map(cells).map(|cell| cell.1);
    let most = all.fold(0.0, f64::max);
    let shade = |share: f64| (20.0 * share / most).ceil().min(20.0) as u64;
    let boxes = rows.iter().map(|row| {
        let mut cells = cells(row);
        cells.dedup_by(|next, last| {
            let same = last.0 + 1 == next.0 && shade(last.1) == shade(next.1);
            last.0 += u64::from(same);
            same
        });
        cells.len()
    });
    boxes.sum()
}

#[test]
fn a_browser_draws_every_curve_every_link_and_the_timeline() {
    let Some(browser) = chromium() else {
        println!("skipped: no chromium in PATH");
        return;
    };
    let folder = both();
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    let sources = data(&page)["sources"].take();
    let charts = sources[0]["charts"].as_array().unwrap();
    let count = |of: &Value, key: &str| of[key].as_array().unwrap().len();
    let series = charts.iter().flat_map(|c| c["series"].as_array().unwrap());
    let points: usize = series.clone().map(|s| count(s, "points")).sum();
    let spread = |p: &&Value| p[2].as_f64().is_some_and(|q1| Some(q1) < p[3].as_f64());
    let all = series.clone().flat_map(|s| s["points"].as_array().unwrap());
    let whiskers = all.filter(spread).count();
    assert!(whiskers > 0, "two puts to and fro differ");
    let at = |name: &str| folder.path().join(name);
    for (width, scheme, paper) in [
        (390, Scheme::Dark, "rgb(20, 24, 29)"),
        (1440, Scheme::Light, "rgb(255, 255, 255)"),
    ] {
        let drawn_of = |page: &str| drawn(&browser, &at(page), width, scheme);
        let drawn = drawn_of("page.html");
        let has = |text: &str| drawn.matches(text).count();
        assert!(!drawn.contains("data-error"), "{width}: the script failed");
        assert_eq!(has("<figure>"), 3 + 2, "{width}: charts, torus and links");
        for name in [
            "(0,0,0) x+</text>",
            "(1,0,0) node</text>",
            "% in use.</output>",
        ] {
            assert_eq!(has(name), 1, "{width}: {name}");
        }
        assert_eq!(has("class=\"heat\""), heat(&sources[2]), "{width}");
        assert_eq!(has("class=\"curve\""), series.clone().count(), "{width}");
        assert_eq!(has("class=\"mark\""), points, "{width}");
        assert_eq!(has("class=\"whisker\""), whiskers, "{width}");
        assert_eq!(has("class=\"mark residual"), 4, "{width}");
        // Two nodes in a ring of x: both links of each.
        assert_eq!(has("class=\"link\""), 4, "{width}");
        assert_eq!(has("<title>(1,0,0) x-: "), 1, "{width}");
        assert_eq!(has("class=\"dot\""), 2, "{width}");
        // A put crosses both hosts, both firmwares, engines and links.
        assert!(
            has("class=\"box") > 20,
            "{width}: {} boxes",
            has("class=\"box")
        );
        assert!(has("class=\"flow\"") >= 1, "{width}");
        // The name of the file is text.
        assert_eq!(has("<img"), 0, "{width}");
        assert!(
            drawn.contains(
                "&lt;img src=x onerror=document.documentElement.dataset.error=1&gt;&amp;.jsonl</h2>"
            ),
            "{width}"
        );
        assert!(drawn.contains("simulated</span>") && drawn.contains("published</span>"));
        fs::write(
            at("around.html"),
            AROUND.replace("WIDTH", &width.to_string()),
        )
        .unwrap();
        let around = drawn_of("around.html");
        for said in [
            format!("data-wide=\"{width}\""),
            "data-over=\"0\"".to_owned(),
            format!("data-paper=\"{paper}\""),
        ] {
            assert!(around.contains(&said), "{said}: {around}");
        }
    }
}
