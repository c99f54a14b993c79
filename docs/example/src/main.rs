//! Every rank puts a greeting into the segment of the next one and prints what it was given.

use std::error::Error;
use std::process::ExitCode;

use conduit::{BarrierName, Conduit};

const LENGTH: usize = 32;

fn greet() -> Result<(), Box<dyn Error>> {
    // Joins the job and opens the fabric that `portolan run` chose. All ranks call these two.
    let conduit = Conduit::init()?;
    conduit.attach(Vec::new(), 4096)?;
    let (me, nodes) = (conduit.mynode(), conduit.nodes());
    let next = (me + 1) % nodes;

    let greeting = format!("{:<LENGTH$}", format!("greetings from rank {me}"));
    let start = conduit.now();
    // Returns when the bytes are in the segment of `next`, whose program takes no part in it.
    conduit.put(next, conduit.segment(next).addr, greeting.as_bytes())?;
    let took = conduit.now() - start;

    // After it every rank's put is done.
    conduit.barrier(BarrierName::Anonymous)?;
    let mut text = [0; LENGTH];
    conduit
        .local_segment()
        .ok_or("no segment")?
        .read(0, &mut text)?;
    println!(
        "rank {me} of {nodes}: {}; own put took {took} ns ({:?} clock)",
        String::from_utf8_lossy(&text).trim_end(),
        conduit.clock(),
    );

    // Waits for the others to come here, then leaves the job.
    conduit.finish();
    Ok(())
}

fn main() -> ExitCode {
    let Err(error) = greet() else {
        return ExitCode::SUCCESS;
    };
    let mut line = format!("greetings: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("{line}");
    ExitCode::FAILURE
}
