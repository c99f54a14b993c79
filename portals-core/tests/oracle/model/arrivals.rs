//! What a message from the wire does.

use super::{Model, Verdict, fits};
use portals_core::{Ack, Body, Event, EventKind, Header, MdHandle, MdOptions as O};

impl Model {
    fn admitted(&self, h: &Header, ac_index: u32) -> bool {
        self.lists.contains_key(&h.pt_index)
            && self.ac.get(ac_index as usize).is_some_and(|a| {
                fits(a.uid, h.uid)
                    && fits(a.jid, h.jid)
                    && fits(a.pt_index, h.pt_index)
                    && fits(a.match_id.nid, h.source.nid)
                    && fits(a.match_id.pid, h.source.pid)
            })
    }

    /// Who takes a request: descriptor, offset, bytes moved, entries looked at.
    fn search(
        &self,
        h: &Header,
        needs: O,
        remote_offset: u64,
        length: u64,
    ) -> Option<(MdHandle, u64, u64, u32)> {
        for (i, e) in self.lists[&h.pt_index].iter().enumerate() {
            let s = &e.spec;
            let same = (0..64).all(|b| {
                s.ignore_bits >> b & 1 == 1 || s.match_bits >> b & 1 == h.match_bits >> b & 1
            });
            if !same || !fits(s.match_id.nid, h.source.nid) || !fits(s.match_id.pid, h.source.pid) {
                continue;
            }
            let Some(d) = e.md.and_then(|md| self.md(md)) else {
                continue;
            };
            if !d.active || !d.desc.options.contains(needs) {
                continue;
            }
            let offset = if d.desc.options.contains(O::MANAGE_REMOTE) {
                remote_offset
            } else {
                d.offset
            };
            let total = d.bytes.len() as u64;
            let fits_whole = u128::from(offset) + u128::from(length) <= u128::from(total);
            let moved = if fits_whole {
                length
            } else if d.desc.options.contains(O::TRUNCATE) && offset <= total {
                total - offset
            } else {
                continue;
            };
            return Some((d.md, offset, moved, i as u32 + 1));
        }
        None
    }

    /// A message arrives; returns what it does and the number of the operation it starts.
    pub(crate) fn arrive(&mut self, h: &Header) -> (Verdict, Option<u64>) {
        let result = match h.body {
            Body::Ack(Ack {
                md,
                offset,
                rlength,
                mlength,
            }) => self.ack(h, md, offset, rlength, mlength),
            Body::Reply {
                md,
                local_offset,
                rlength,
                mlength,
            } => self.reply(h, md, local_offset, rlength, mlength),
            Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ..
            } => self.request(h, O::OP_PUT, (length, remote_offset, hdr_data, ac_index)),
            Body::Get {
                length,
                remote_offset,
                ac_index,
                ..
            } => self.request(h, O::OP_GET, (length, remote_offset, 0, ac_index)),
            Body::GetPut {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ..
            } => {
                let both = O::OP_PUT | O::OP_GET;
                self.request(h, both, (length, remote_offset, hdr_data, ac_index))
            }
        };
        result.unwrap_or_else(|| {
            self.status.drop_count += 1;
            self.status.drop_length += match h.body {
                Body::Get { length, .. } => length,
                _ => h.payload_len(),
            };
            (Verdict::Dropped, None)
        })
    }

    fn request(
        &mut self,
        h: &Header,
        needs: O,
        (length, remote_offset, hdr_data, ac_index): (u64, u64, u64, u32),
    ) -> Option<(Verdict, Option<u64>)> {
        if !self.admitted(h, ac_index) {
            return None;
        }
        let (md, offset, moved, searched) = self.search(h, needs, remote_offset, length)?;
        self.spend(md);
        let d = self.md_mut(md)?;
        let o = d.desc.options;
        if !o.contains(O::MANAGE_REMOTE) {
            d.offset += moved;
            let room = d.bytes.len() as u64 - d.offset;
            if o.contains(O::MAX_SIZE) && room < d.desc.max_size {
                d.active = false;
                d.spent = true;
            }
        }
        let bytes = d.bytes[offset as usize..(offset + moved) as usize].to_vec();
        self.status.recv_count += 1;
        self.status.recv_length += moved;
        let answer = |body| Header {
            target: h.source,
            source: self.id,
            uid: self.uid,
            jid: self.jid,
            body,
            ..*h
        };
        let (kinds, ack, verdict) = match h.body {
            Body::Put { ack_md, .. } => {
                let ack = ack_md.filter(|_| !o.contains(O::ACK_DISABLE)).map(|md| {
                    answer(Body::Ack(Ack {
                        md,
                        offset: remote_offset,
                        rlength: length,
                        mlength: moved,
                    }))
                });
                let kinds = (EventKind::PutStart, EventKind::PutEnd);
                (kinds, ack, Verdict::Deposit(bytes, searched))
            }
            Body::Get {
                reply_md,
                reply_offset,
                ..
            }
            | Body::GetPut {
                reply_md,
                reply_offset,
                ..
            } => {
                let reply = answer(Body::Reply {
                    md: reply_md,
                    local_offset: reply_offset,
                    rlength: length,
                    mlength: moved,
                });
                if matches!(h.body, Body::Get { .. }) {
                    let kinds = (EventKind::GetStart, EventKind::GetEnd);
                    (kinds, None, Verdict::Reply(reply, bytes, searched))
                } else {
                    let kinds = (EventKind::GetPutStart, EventKind::GetPutEnd);
                    (kinds, None, Verdict::Swap(reply, bytes, searched))
                }
            }
            _ => return None,
        };
        let event = Event {
            rlength: length,
            mlength: moved,
            offset,
            hdr_data,
            ..self.blank(md, h, (h.source, h.uid, h.jid))?
        };
        let number = self.start(event, kinds, ack).ok()?;
        Some((verdict, Some(number)))
    }

    fn ack(
        &mut self,
        h: &Header,
        md: MdHandle,
        offset: u64,
        rlength: u64,
        mlength: u64,
    ) -> Option<(Verdict, Option<u64>)> {
        let d = self.md_mut(md).filter(|d| d.acks_awaited > 0)?;
        d.acks_awaited -= 1;
        let eq = d.desc.eq;
        if !d.active || eq.is_none() {
            return None;
        }
        self.spend(md);
        let event = Event {
            rlength,
            mlength,
            offset,
            ..self.blank(md, h, (h.source, h.uid, h.jid))?
        };
        let last = self.tell(eq, event, EventKind::Ack, None);
        self.unlink_if_spent(event, last);
        Some((Verdict::Acked, None))
    }

    fn reply(
        &mut self,
        h: &Header,
        md: MdHandle,
        local_offset: u64,
        rlength: u64,
        mlength: u64,
    ) -> Option<(Verdict, Option<u64>)> {
        let d = self.md_mut(md).filter(|d| d.replies_awaited > 0)?;
        d.replies_awaited -= 1;
        let total = d.bytes.len() as u64;
        if !d.active || local_offset > total {
            return None;
        }
        let moved = mlength.min(total - local_offset);
        let from = local_offset as usize;
        let bytes = d.bytes[from..from + moved as usize].to_vec();
        self.spend(md);
        self.status.recv_count += 1;
        self.status.recv_length += moved;
        let event = Event {
            rlength,
            mlength: moved,
            offset: local_offset,
            ..self.blank(md, h, (h.source, h.uid, h.jid))?
        };
        let kinds = (EventKind::ReplyStart, EventKind::ReplyEnd);
        let number = self.start(event, kinds, None).ok()?;
        Some((Verdict::Deposit(bytes, 0), Some(number)))
    }
}
