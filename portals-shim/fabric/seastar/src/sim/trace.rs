//! What the simulation tells of its hosts: calls, the kernel's work, matches; and the counters.

use super::Sim;
use fabric_api::call::{Call, Wait};
use nic_model::defs::niccb::Counter;
use nic_model::trace::{Scene, Sink, What};
use nic_model::{NodeId, RegisterIo, SimTime};
use std::fmt::Write as _;

/// A call that a rank is in.
type Made = Option<(&'static str, SimTime)>;

/// The calls of a traced simulation, by rank; empty otherwise.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Made>);

/// What a timeline calls a call.
pub(super) fn name(call: &Call) -> &'static str {
    match call {
        Call::MeAttach { .. } | Call::MeAttachAny { .. } | Call::MeInsert { .. } => "me attach",
        Call::MeUnlink(_) => "me unlink",
        Call::MdAttach { .. } => "md attach",
        Call::MdBind { .. } => "md bind",
        Call::MdUnlink(_) => "md unlink",
        Call::MdUpdate { .. } | Call::MeMdPost { .. } => "md update",
        Call::EqPeek(_) => "eq get",
        Call::EqPoll { wait: Wait::No, .. } => "eq poll",
        Call::EqPoll { .. } => "eq wait",
        Call::Put { .. } => "put",
        Call::Get { .. } => "get",
        Call::GetPut { .. } => "getput",
        Call::Close => "close",
        _ => "call",
    }
}

impl Sim {
    /// The machine, for a recorder.
    pub(crate) fn scene(&self) -> Scene {
        Scene::new(self.world.machine(), self.world.topology())
    }

    /// Has everything from now on recorded.
    pub(crate) fn trace_to(&mut self, sink: Box<dyn Sink>) {
        self.calls = Calls(vec![None; self.ranks.len()]);
        self.world.trace_to(sink);
    }

    /// Ends the record, if there is one.
    pub(crate) fn end_trace(&mut self) -> Result<(), String> {
        self.world.end_trace()
    }

    /// Which node a rank is on.
    fn node_of(&self, rank: usize) -> usize {
        self.ranks[rank].node
    }

    /// A rank makes a call, at its clock.
    pub(super) fn trace_made(&mut self, rank: usize, name: &'static str) {
        let at = self.ranks[rank].clock;
        if let Some(made) = self.calls.0.get_mut(rank) {
            *made = Some((name, at));
        }
    }

    /// A rank's call has been executed from `at` to `done`.
    pub(super) fn trace_call(
        &mut self,
        rank: usize,
        name: &'static str,
        at: SimTime,
        done: SimTime,
    ) {
        let node = NodeId(self.node_of(rank) as u16);
        let made_at = self.ranks[rank].clock;
        let Some(made) = self.calls.0.get_mut(rank) else {
            return;
        };
        *made = Some((name, made_at));
        self.world.trace(done, node, What::Trap { name, from: at });
    }

    /// A rank's call returns.
    pub(super) fn trace_return(&mut self, rank: usize, at: SimTime) {
        let made = self.calls.0.get_mut(rank).and_then(Option::take);
        let Some((name, from)) = made else { return };
        let node = NodeId(self.node_of(rank) as u16);
        let rank = rank as u32;
        self.world.trace(at, node, What::Call { rank, name, from });
    }

    /// The interrupt handler of a node has worked from `from` to `to`.
    pub(super) fn trace_handler(&mut self, n: usize, from: SimTime, to: SimTime) {
        if !self.world.is_traced() {
            return;
        }
        let node = NodeId(n as u16);
        let event = self.nodes.all[n].take_event();
        self.world.trace(to, node, What::Handler { event, from });
        if let Some(matched) = self.nodes.all[n].take_match() {
            let what = What::Match {
                by: "host",
                source: matched.source,
                bits: matched.bits,
                searched: matched.searched,
                outcome: matched.outcome,
            };
            self.world.trace(to, node, what);
        }
    }

    /// The registers of the NIC control block that are not zero: a row for each, a column for
    /// each node.
    pub(crate) fn counters(&mut self) -> String {
        let now = self.now;
        let nodes = self.world.topology().nodes();
        let mut table = format!("{:<22}", "register");
        for n in 0..nodes {
            let _ = write!(table, " {:>10}", format!("node {n}"));
        }
        table.push('\n');
        for (name, counter) in Counter::ALL {
            let mut read = |n| {
                let mut io = self.world.registers(NodeId(n as u16), now);
                io.read32(counter.address())
            };
            let values: Vec<u32> = (0..nodes).map(&mut read).collect();
            if values.iter().all(|v| *v == 0) {
                continue;
            }
            let name = name.to_ascii_lowercase().replace('_', " ");
            let _ = write!(table, "{name:<22}");
            for value in values {
                let _ = write!(table, " {value:>10}");
            }
            table.push('\n');
        }
        table
    }
}
