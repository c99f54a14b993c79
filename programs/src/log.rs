//! Events of the layers below, such as a failed connection, as lines on stderr.

use std::fmt;
use std::io;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The variable that says which events are shown.
const VARIABLE: &str = "PORTOLAN_LOG";

/// `heat3d: rank 2: error: connection failed peer=1 …`: no time, so that runs can be compared.
struct Line {
    who: String,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(to, "{}: {level}: ", self.who)?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// Shows events on stderr from now on, in lines that begin with `who`: errors, or what `PORTOLAN_LOG` says (`debug`,
/// `warn,fabric_verbs=trace`).
///
/// # Errors
/// What is wrong with the variable.
pub fn install(who: String) -> Result<(), String> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let wanted = if wanted.is_empty() { "error" } else { &wanted };
    let targets: Targets = wanted
        .parse()
        .map_err(|e| format!("{VARIABLE} is {wanted:?}: {e}"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .event_format(Line { who });
    // A second program of one process keeps the first one's lines.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .try_init();
    Ok(())
}
