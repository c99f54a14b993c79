//! A core for each rank (`portolan run --bind core`), of those that this process may run on.

use host::processors::{self, Processors};
use rustix::thread::CpuSet;

use crate::error::CmdError;

/// The processors of each of `ranks` ranks: all of one core, and a core of its own for each.
pub(super) fn cores(ranks: u32) -> Result<Vec<CpuSet>, CmdError> {
    chosen(&processors::cores(), ranks)
}

fn chosen(cores: &[Processors], ranks: u32) -> Result<Vec<CpuSet>, CmdError> {
    let wanted = usize::try_from(ranks).unwrap_or(usize::MAX);
    let Some(cores) = cores.get(..wanted) else {
        let message = format!(
            "--bind core needs a core for each of {ranks} ranks, and this process may run on {}; \
             ask for fewer ranks, or leave --bind core out",
            cores.len()
        );
        return Err(CmdError::Usage(message));
    };
    Ok(cores.iter().map(set).collect())
}

fn set(core: &Processors) -> CpuSet {
    let mut set = CpuSet::new();
    core.each().for_each(|processor| set.set(processor));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_a_core_and_too_many_ranks_are_refused() {
        let cores = [Processors::of(&[0, 4]), Processors::of(&[1, 5])];
        let bound = chosen(&cores, 2).unwrap();
        let on = |set: &CpuSet| (0..8).filter(|p| set.is_set(*p)).collect::<Vec<_>>();
        assert_eq!(bound.iter().map(on).collect::<Vec<_>>(), [[0, 4], [1, 5]]);
        let said = chosen(&cores, 3).unwrap_err().to_string();
        assert!(
            said.contains("each of 3 ranks") && said.contains("may run on 2"),
            "{said}"
        );
    }
}
