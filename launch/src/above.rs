//! Which launcher stands nearest above this process.
//!
//! Launchers stand under one another, and variables of the outer ones come through the inner ones. A process that is
//! above this one and has a variable with the same value got it from a launcher above *it*; so the launcher whose
//! variables go up least far is the nearest.
//!
//! ```text
//!   mpirun ──▶ mpiexec.hydra ──▶ hydra_pmi_proxy ──▶ this process
//!              PMIX_RANK=0       PMIX_RANK=0         PMIX_RANK=0, PMI_FD=6
//! ```

use host::procfs::Stat;
use std::fs;

/// The environment of a process, as it was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Environment(Vec<u8>);

impl Environment {
    /// Of the process that `/proc` shows by this number; none where this process may not see it.
    fn of(process: i32) -> Option<Self> {
        fs::read(format!("/proc/{process}/environ")).ok().map(Self)
    }

    #[cfg(test)]
    pub(super) fn new(variables: &[(&str, &str)]) -> Self {
        let text = variables.iter().map(|(k, v)| format!("{k}={v}\0"));
        Self(text.collect::<String>().into_bytes())
    }

    fn has(&self, name: &str, value: &str) -> bool {
        let mut variables = self.0.split(|b| *b == 0);
        variables.any(|v| {
            let rest = v.strip_prefix(name.as_bytes());
            rest.and_then(|r| r.strip_prefix(b"=")) == Some(value.as_bytes())
        })
    }
}

/// The environments of this process, as it was started, and of those above it, the parent's first, up to the first that
/// may not be seen.
pub(super) fn environments() -> Vec<Environment> {
    /// More are not looked at: no launchers stand so far under one another.
    const MOST: usize = 64;
    let line = std::iter::successors(Stat::own(), |p| Stat::of(p.parent));
    let line = line.take(MOST);
    line.map_while(|p| Environment::of(p.pid)).collect()
}

/// Whether this process was started with these variables, as far as it can see that.
pub(super) fn was_given(variables: &[(&str, String)], line: &[Environment]) -> bool {
    line.first()
        .is_none_or(|own| variables.iter().all(|(name, value)| own.has(name, value)))
}

/// How many of the processes above, in a row from the parent on, have these variables too. `line` begins with this one.
pub(super) fn reach(variables: &[(&str, String)], line: &[Environment]) -> usize {
    let has = |e: &&Environment| variables.iter().all(|(name, value)| e.has(name, value));
    line.iter().skip(1).take_while(has).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_whole() {
        let e = Environment::new(&[("A", "1"), ("AB", "2=3"), ("C", "")]);
        assert!(e.has("A", "1") && e.has("AB", "2=3") && e.has("C", ""));
        assert!(!e.has("A", "") && !e.has("A", "12") && !e.has("B", "2=3") && !e.has("", "1"));
    }

    #[test]
    fn the_parent_comes_first_and_has_what_this_process_has() {
        let own = Environment::of(std::process::id().cast_signed());
        assert_eq!(environments().first(), own.as_ref());
        let parent = i32::try_from(std::os::unix::process::parent_id()).ok();
        assert_eq!(
            environments().get(1),
            parent.and_then(Environment::of).as_ref()
        );
    }

    #[test]
    fn how_far_up_variables_go_is_counted_from_the_parent() {
        let above = [
            Environment::new(&[]),
            Environment::new(&[("X", "1"), ("Y", "1")]),
            Environment::new(&[("X", "1")]),
            Environment::new(&[]),
            Environment::new(&[("X", "1")]),
        ];
        let reach = |list: &[(&'static str, &str)]| {
            let list: Vec<_> = list.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
            super::reach(&list, &above)
        };
        assert_eq!(reach(&[("X", "1")]), 2);
        assert_eq!(reach(&[("X", "1"), ("Y", "1")]), 1);
        assert_eq!(reach(&[("X", "2")]), 0);
    }
}
