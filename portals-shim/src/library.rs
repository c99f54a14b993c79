//! One interface and its fabric: executes the API's calls.

use crate::call::{Answer, Call, Polled, Target};
use crate::delivery::{self, Message};
use crate::nal::Nal;
use crate::region::LocalCopy;
use portals_core::{EqHandle, Error, MdHandle, Ni, NiFail, Transmit};
use std::collections::VecDeque;

/// The state behind an interface. Sends to the own process never reach the NAL; they wait here for
/// the next progress, because the API forbids delivering them inside the call (rule 22).
#[derive(Debug)]
pub(crate) struct Library<N> {
    pub(crate) ni: Ni,
    pub(crate) nal: N,
    own: VecDeque<Message>,
}

impl<N: Nal> Library<N> {
    pub(crate) fn new(ni: Ni, nal: N) -> Self {
        Self {
            ni,
            nal,
            own: VecDeque::new(),
        }
    }

    fn transmit(&mut self, tx: Transmit) {
        if tx.header.target != self.ni.config().id || self.nal.carries_own() {
            return self.nal.send(&mut self.ni, tx);
        }
        let mut data = Vec::new();
        LocalCopy::gather(&tx.payload, &mut data);
        self.own.push_back(Message {
            header: tx.header,
            data,
        });
        if let Some(op) = tx.op {
            self.ni.send_end(op, NiFail::OK);
        }
    }

    /// Handles arrivals without blocking; returns whether there were any.
    pub(crate) fn progress(&mut self) -> bool {
        let mut any = self.nal.progress(&mut self.ni);
        // Answers to own messages are own messages again; each round ends, since an ack or reply
        // causes none.
        while let Some(m) = self.own.pop_front() {
            any = true;
            if let Some(answer) = delivery::deliver(&mut self.ni, &m.header, &m.data) {
                self.own.push_back(answer);
            }
        }
        if any {
            self.nal.lists_changed(&mut self.ni);
        }
        any
    }

    /// The first event of the queues in index order, after one round of progress if all are empty.
    /// A queue that is not one is reported by its index.
    pub(crate) fn poll(&mut self, eqs: &[EqHandle]) -> Result<Option<Polled>, usize> {
        for round in 0..2 {
            for (which, eq) in eqs.iter().enumerate() {
                if let Some((event, dropped)) = self.ni.eq_get(*eq).map_err(|_| which)? {
                    return Ok(Some(Polled {
                        event,
                        dropped,
                        which,
                    }));
                }
            }
            if round == 0 && !self.progress() {
                break;
            }
        }
        Ok(None)
    }

    fn retire(&mut self, md: MdHandle) -> Result<(), Error> {
        self.nal.retire(&mut self.ni, md)
    }

    /// Executes one call; a poll does not block here.
    pub(crate) fn execute(&mut self, call: Call) -> Result<Answer, Error> {
        let ni = &mut self.ni;
        let answer = match call {
            Call::MeAttach {
                pt_index,
                spec,
                position,
            } => Answer::Me(ni.me_attach(pt_index, spec, position)?),
            Call::MeAttachAny { spec } => {
                let (pt_index, me) = ni.me_attach_any(spec)?;
                Answer::PortalMe(pt_index, me)
            }
            Call::MeInsert {
                base,
                spec,
                position,
            } => Answer::Me(ni.me_insert(base, spec, position)?),
            Call::MeUnlink(me) => {
                if let Some(md) = ni.me_md(me) {
                    self.retire(md)?;
                }
                self.ni.me_unlink(me)?;
                Answer::Done
            }
            Call::MdAttach { me, desc, unlink } => Answer::Md(ni.md_attach(me, desc, unlink)?),
            Call::MdBind { desc, unlink } => Answer::Md(ni.md_bind(desc, unlink)?),
            Call::MdUnlink(md) => {
                self.retire(md)?;
                self.ni.md_unlink(md)?;
                Answer::Done
            }
            Call::MdQuery(md) => Answer::Snapshot(ni.md_query(md)?),
            Call::MdUpdate { md, new, test } => {
                self.retire(md)?;
                Answer::Snapshot(self.ni.md_update(md, new, test)?)
            }
            Call::MeMdPost {
                base,
                spec,
                position,
                desc,
                unlink,
                test,
            } => {
                let (me, md) = ni.me_md_post(base, spec, position, desc, unlink, test)?;
                Answer::MeMd(me, md)
            }
            Call::EqAlloc(count) => Answer::Eq(ni.eq_alloc(count)?),
            Call::EqFree(eq) => {
                ni.eq_free(eq)?;
                Answer::Done
            }
            Call::EqPeek(eq) => {
                self.progress();
                let seen = self.ni.eq_peek(eq)?;
                Answer::Polled(seen.map(|(event, dropped)| Polled {
                    event,
                    dropped,
                    which: 0,
                }))
            }
            Call::EqPoll { eqs, .. } => match self.poll(&eqs) {
                Ok(polled) => Answer::Polled(polled),
                Err(which) => Answer::BadQueue(which),
            },
            Call::AcEntry { index, entry } => {
                ni.ac_entry(index, entry)?;
                Answer::Done
            }
            Call::Put {
                md,
                region,
                ack,
                to,
                hdr_data,
            } => {
                let Target {
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                } = to;
                let tx = ni.put(
                    md,
                    region,
                    ack,
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                    hdr_data,
                )?;
                self.transmit(tx);
                Answer::Done
            }
            Call::Get { md, region, from } => {
                let Target {
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                } = from;
                let tx = ni.get(
                    md,
                    region,
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                )?;
                self.transmit(tx);
                Answer::Done
            }
            Call::GetPut {
                get,
                put,
                regions,
                to,
                hdr_data,
            } => {
                let Target {
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                } = to;
                let tx = ni.get_put(
                    get,
                    put,
                    regions,
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                    hdr_data,
                )?;
                self.transmit(tx);
                Answer::Done
            }
            Call::Distance(to) => {
                Answer::Distance(self.nal.distance(to).ok_or(Error::ProcessInvalid)?)
            }
            Call::Status => Answer::Status(ni.status()),
            Call::Close => {
                self.nal.close(&mut self.ni);
                self.ni.close();
                Answer::Done
            }
        };
        self.nal.lists_changed(&mut self.ni);
        Ok(answer)
    }
}
