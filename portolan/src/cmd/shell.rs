//! `portolan completions` and `portolan man`: what shells and readers know of the command line, from its definition.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Command, ValueEnum};

use crate::cmd::{failed, output};
use crate::error::CmdError;

/// Options of `portolan completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// Shell that reads the completions
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// bash, from a folder such as share/bash-completion/completions
    Bash,
    /// zsh, as a file _portolan of a folder of fpath
    Zsh,
    /// fish, from a folder such as share/fish/vendor_completions.d
    Fish,
}

/// Options of `portolan man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Folder for all pages; without it portolan(1) is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The command line as users see it, without the commands that tests and ranks use.
fn visible(cli: &Command) -> Command {
    let shown = cli.get_subcommands().filter(|c| !c.is_hide_set()).cloned();
    let bare = Command::new("portolan")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown);
    let text = |text: Option<&clap::builder::StyledStr>| text.cloned().unwrap_or_default();
    bare.about(text(cli.get_about()))
        .long_about(text(cli.get_long_about()))
        .after_help(text(cli.get_after_help()))
}

/// Prints what a shell is to know.
pub(crate) fn completions(cli: &Command, options: &CompletionOptions) -> Result<u8, CmdError> {
    let text = completion_text(cli, options.shell);
    write(&text)
}

fn completion_text(cli: &Command, shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(cli), "portolan", &mut text);
    text
}

/// Prints the first page, or writes all pages into a folder.
pub(crate) fn man(cli: &Command, options: &ManOptions) -> Result<u8, CmdError> {
    let Some(folder) = &options.folder else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(visible(cli)).render(&mut text);
        rendered.map_err(failed("make the page"))?;
        return write(&text);
    };
    output::folder(folder)?;
    let told = format!("write pages into {}", folder.display());
    clap_mangen::generate_to(visible(cli), folder).map_err(failed(&told))?;
    Ok(0)
}

fn write(text: &[u8]) -> Result<u8, CmdError> {
    io::stdout()
        .write_all(text)
        .map_err(failed("write standard output"))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use std::process::{Command as Process, Stdio};

    #[test]
    fn completions_name_what_can_be_typed_and_nothing_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(completion_text(&Cli::command(), shell)).unwrap();
            for word in ["tag-output", "seastar-device"] {
                assert!(text.contains(word), "{shell:?}: {word}");
            }
            // fish is told of options alone.
            let names = text.contains("put-latency");
            assert_eq!(names, shell != Shell::Fish, "{shell:?}");
            for word in ["bench-rank", "seastar-sim", "firehose-rank"] {
                assert!(!text.contains(word), "{shell:?}: {word}");
            }
        }
    }

    #[test]
    fn bash_completes_a_subcommand_an_option_and_a_measurement() {
        let text = String::from_utf8(completion_text(&Cli::command(), Shell::Bash)).unwrap();
        for (words, cursor, expected) in [
            ("portolan be", 1, "bench"),
            ("portolan run --tag", 2, "--tag-output"),
            ("portolan bench put-lat", 2, "put-latency"),
        ] {
            let ask = format!(
                "{text}\nCOMP_WORDS=({words}); COMP_CWORD={cursor}\n\
                 _portolan portolan \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
            );
            let output = Process::new("bash")
                .args(["--norc", "-c", &ask])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.lines().any(|l| l == expected), "{words}: {said}");
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let options = ManOptions {
            folder: Some(folder.path().to_owned()),
        };
        assert!(matches!(man(&Cli::command(), &options), Ok(0)));
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name));
        assert!(page("portolan.1").unwrap().contains("portolan\\-run(1)"));
        let run = page("portolan-run.1").unwrap();
        assert!(
            run.contains("tag\\-output") && run.contains("Examples:"),
            "{run}"
        );
        assert!(page("portolan-bench-rank.1").is_err());
    }
}
