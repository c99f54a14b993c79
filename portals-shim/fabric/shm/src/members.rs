//! Which ranks of a job share a memory, and the number that each has in it.

use fabric_api::place::Placement;
use portals_core::ProcessId;

/// What [`Members`] says of a rank that is none.
const OUTSIDE: u32 = u32::MAX;

/// The ranks of a memory. In it they are numbered from 0, in the order of their ranks in the job.
#[derive(Clone, Debug)]
pub struct Members {
    place: Placement,
    /// By number.
    ids: Vec<ProcessId>,
    /// By rank in the job.
    numbers: Vec<u32>,
}

impl Members {
    /// All ranks of a job.
    pub fn all(place: Placement, ids: Vec<ProcessId>) -> Self {
        let numbers = (0..ids.len() as u32).collect();
        Self {
            place,
            ids,
            numbers,
        }
    }

    /// The ranks `members` of the job whose ids are `ids`, in ascending order.
    pub fn some(place: Placement, ids: &[ProcessId], members: &[u32]) -> Self {
        let mut numbers = vec![OUTSIDE; ids.len()];
        let mut own = Vec::with_capacity(members.len());
        for rank in members {
            if let Some((number, id)) = numbers.get_mut(*rank as usize).zip(ids.get(*rank as usize))
            {
                *number = own.len() as u32;
                own.push(*id);
            }
        }
        Self {
            place,
            ids: own,
            numbers,
        }
    }

    /// Two processes, whose ids say nothing of their numbers.
    pub(super) fn pair(ids: [ProcessId; 2]) -> Self {
        Self {
            place: Placement::ONE,
            ids: ids.to_vec(),
            numbers: Vec::new(),
        }
    }

    /// The ids, by number.
    pub(super) fn ids(&self) -> &[ProcessId] {
        &self.ids
    }

    /// The number of a process, if it is a member.
    #[inline]
    pub(super) fn find(&self, id: ProcessId) -> Option<usize> {
        if self.numbers.is_empty() {
            return self.ids.iter().position(|member| *member == id);
        }
        let number = |rank: usize| self.numbers.get(rank).map_or(usize::MAX, |n| *n as usize);
        let is = |rank: usize| self.ids.get(number(rank)) == Some(&id);
        self.place.find(id, is).map(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_numbers_and_the_others_none() {
        for per_node in [1, 3] {
            let place = Placement::new(per_node).unwrap();
            let ids: Vec<_> = (0..10).map(|r| place.of(r)).collect();
            let members = Members::some(place, &ids, &[1, 4, 9]);
            let found: Vec<_> = ids.iter().map(|id| members.find(*id)).collect();
            let (a, b, c) = (Some(0), Some(1), Some(2));
            let n = None;
            assert_eq!(found, [n, a, n, n, b, n, n, n, n, c]);
            assert_eq!(members.ids(), [ids[1], ids[4], ids[9]]);
            assert_eq!(members.find(ProcessId::new(0, 0)), None);
            assert_eq!(members.find(place.of(99)), None);

            let all = Members::all(place, ids.clone());
            assert!((0..10).all(|r| all.find(ids[r]) == Some(r)));
        }
    }
}
