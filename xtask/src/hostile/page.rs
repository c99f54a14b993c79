//! The page of the book.

use super::environments::ALL;
use super::{Cell, Row};
use crate::cargo::root;
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The words of a cell that do not change from run to run.
fn word(cell: Option<&Cell>) -> String {
    match cell {
        Some(Cell::Same) => "same".to_owned(),
        Some(Cell::Refused { words, .. }) => format!("status 3: {words}"),
        Some(Cell::Wrong(_)) => "wrong".to_owned(),
        Some(Cell::Skipped(_)) | None => "not tried".to_owned(),
    }
}

/// Writes the page from rows of [`ALL`], each with a cell for each of `fabrics`.
pub(super) fn write(fabrics: &[&str], rows: &[Row]) -> Result<()> {
    let mut page = String::from(
        "<!-- Written by cargo xtask hostile --page. -->\n\n\
         # Where jobs run\n\n\
         `cargo xtask hostile` runs one program of two ranks in each environment and on each fabric. The program exchanges messages and\n\
         data of every kind, from 1 B to 1 MiB, and checks each byte. Some ranks then change what they are, and all exchange again.\n\
         *same*: the job ends with status 0 and the checksum of the first row. *status 3*: the fabric cannot be used there, and the\n\
         first words of the reason are these. After each job no process is left one second later.\n\n",
    );
    writeln!(page, "| environment | {} |", fabrics.join(" | "))?;
    writeln!(page, "|---|{}", "---|".repeat(fabrics.len()))?;
    for environment in ALL {
        let row = rows.iter().find(|row| row.name == environment.name);
        write!(page, "| {} |", environment.name)?;
        for at in 0..fabrics.len() {
            write!(page, " {} |", word(row.and_then(|row| row.cells.get(at))))?;
        }
        page.push('\n');
    }
    page.push_str(
        "\nOver verbs the two ranks share memory, as ranks of one machine do; `rxe0` is in a guest.\n\
         What else may connect to a job, and what strangers can do, is in [Who may connect](mechanisms/who-may-connect.md).\n",
    );
    let path = root().join("docs/src/environments.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())
}
