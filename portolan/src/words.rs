//! The words of the command line before and after clap reads them: `-np` of MPI users, and advice on words that stand in
//! the wrong place; and words as a shell reads them.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// How MPI's launchers are told the number of ranks.
const MPI_RANKS: &str = "-np";

/// A word for a shell, in quotes.
pub(crate) fn for_shell(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What a walk over the words of a subcommand has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Walk {
    /// Where [`MPI_RANKS`] stands as an option of the subcommand.
    ranks: Vec<usize>,
    /// Where the words of the program begin, for a subcommand that has one.
    program: Option<usize>,
}

/// The subcommand that `words` name, and where its name stands.
fn subcommand<'a>(cli: &'a Command, words: &[OsString]) -> Option<(&'a Command, usize)> {
    let at = 1 + words.iter().skip(1).position(|w| !is_option(w))?;
    Some((cli.find_subcommand(words.get(at)?)?, at))
}

fn is_option(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// Walks over the options of a subcommand, up to the first word that is its program's.
fn walk(command: &Command, words: &[OsString], name: usize) -> Walk {
    let mut walk = Walk::default();
    let is_program = |arg: &clap::Arg| arg.is_trailing_var_arg_set();
    let program = command.get_positionals().any(is_program);
    let mut at = name + 1;
    while let Some(word) = words.get(at) {
        let word = word.to_string_lossy();
        let takes = |arg: Option<&clap::Arg>| arg.is_some_and(|a| a.get_action().takes_values());
        let mut chars = word.strip_prefix('-').unwrap_or_default().chars();
        let valued = match chars.next() {
            None if program => break,
            None => false,
            Some(_) if word == "--" => {
                at += 1;
                break;
            }
            Some('-') => {
                let named = |arg: &&clap::Arg| arg.get_long() == word.strip_prefix("--");
                takes(command.get_arguments().find(named))
            }
            Some(_) if word == MPI_RANKS => {
                walk.ranks.push(at);
                true
            }
            Some(first) => {
                let named = |arg: &&clap::Arg| arg.get_short() == Some(first);
                takes(command.get_arguments().find(named)) && chars.next().is_none()
            }
        };
        at += if valued { 2 } else { 1 };
    }
    walk.program = program.then_some(at);
    walk
}

/// The words with `-n` in place of each `-np`, for a subcommand that has `-n`; those of its program stay as they are.
pub(crate) fn of_mpi(cli: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let Some((command, name)) = subcommand(cli, &words) else {
        return words;
    };
    if command.get_arguments().any(|a| a.get_short() == Some('n')) {
        for at in walk(command, &words, name).ranks {
            words[at] = "-n".into();
        }
    }
    words
}

/// Adds advice to an error where an option of the subcommand is missing, and stands among the words of its program, or where
/// the words that belong behind `--` have none before them.
pub(crate) fn advised(cli: &Command, words: &[OsString], error: Error) -> Error {
    let Some((command, name)) = subcommand(cli, words) else {
        return error;
    };
    if error.kind() == ErrorKind::UnknownArgument
        && command.get_positionals().any(clap::Arg::is_last_set)
        && !words.iter().any(|word| word == "--")
    {
        return with_advice(error, "-- stands before bench and its words".to_owned());
    }
    let begin = walk(command, words, name).program.unwrap_or(words.len());
    let rest = words.get(begin..).unwrap_or_default();
    let misplaced = rest.iter().find(|word| {
        let word = word.to_string_lossy();
        let long =
            |a: &clap::Arg| a.get_long().is_some() && a.get_long() == word.strip_prefix("--");
        word == "-n" || word == MPI_RANKS || command.get_arguments().any(long)
    });
    if let (ErrorKind::MissingRequiredArgument, Some(option)) = (error.kind(), misplaced) {
        let option = option.display();
        let advice = format!(
            "'{option}' stands after the program and is the program's; options of portolan go before it"
        );
        return with_advice(error, advice);
    }
    error
}

fn with_advice(mut error: Error, advice: String) -> Error {
    let advice = ContextValue::StyledStrs(vec![StyledStr::from(advice)]);
    error.insert(ContextKind::Suggested, advice);
    error
}

/// An error of a subcommand, with the usage of that.
pub(crate) fn refused(mut cli: Command, words: &[OsString], message: &str) -> Error {
    cli.build();
    let name = subcommand(&cli, words).map(|(command, _)| command.get_name().to_owned());
    let command = match name {
        Some(name) => cli.find_subcommand_mut(name),
        None => None,
    };
    match command {
        Some(command) => command.error(ErrorKind::ValueValidation, message),
        None => cli.error(ErrorKind::ValueValidation, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory as _, Parser as _};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn ranks_are_counted_as_mpi_users_type_it_before_the_program_alone() {
        for (typed, meant) in [
            ("portolan run -np 4 prog", "portolan run -n 4 prog"),
            (
                "portolan run --fabric shm -np 4 -- prog -np 5",
                "portolan run --fabric shm -n 4 -- prog -np 5",
            ),
            (
                "portolan run -n 4 prog -np 5",
                "portolan run -n 4 prog -np 5",
            ),
            (
                "portolan run --timeout=5 --no-shm -N 2 -np 4 prog",
                "portolan run --timeout=5 --no-shm -N 2 -n 4 prog",
            ),
            (
                "portolan bench pingpong -np 4 put-rate",
                "portolan bench pingpong -n 4 put-rate",
            ),
            ("portolan trace -np 4 prog", "portolan trace -n 4 prog"),
            // No option there: clap refuses it.
            ("portolan guest -np 4 prog", "portolan guest -np 4 prog"),
            ("portolan -np 4", "portolan -np 4"),
        ] {
            assert_eq!(of_mpi(&Cli::command(), words(typed)), words(meant));
        }
    }

    #[test]
    fn options_behind_the_program_are_pointed_out() {
        let said = |line: &str| {
            let words = words(line);
            let error = Cli::try_parse_from(&words).unwrap_err();
            advised(&Cli::command(), &words, error).to_string()
        };
        for (line, option) in [
            ("portolan run prog -n 2", "-n"),
            ("portolan run --fabric shm prog -np 2", "-np"),
            ("portolan trace prog --ranks 2", "--ranks"),
        ] {
            let said = said(line);
            let advice = format!("'{option}' stands after the program and is the program's");
            assert!(said.contains(&advice), "{line}: {said}");
        }
        let sweep = said("portolan sweep --set host.trap=1,2 bench pingpong");
        assert!(sweep.contains("-- stands before bench"), "{sweep}");
        for line in ["portolan run prog", "portolan run prog -x", "portolan run"] {
            let said = said(line);
            assert!(!said.contains("stands after"), "{line}: {said}");
        }
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        for word in ["/a b/portolan", "it's", "$(false)", "a;b", ""] {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", for_shell(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }

    #[test]
    fn a_refusal_shows_how_its_own_subcommand_is_used() {
        let said = |line: &str| refused(Cli::command(), &words(line), "no good").to_string();
        let run = said("portolan run -n 2 prog");
        assert!(run.contains("error: no good") && run.contains("Usage: portolan run"));
        assert!(said("portolan").contains("Usage: portolan [COMMAND]"));
    }
}
