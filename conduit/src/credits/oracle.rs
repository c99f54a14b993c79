//! The rules of the credit algorithm written down once more, as plainly as they are told: every
//! epoch walks all peers at once. The state machine must agree with it on every byte.

use super::*;

#[derive(Clone, Copy, Default)]
struct Plain {
    send: u32,
    in_use: u32,
    max: u32,
    stalls: u32,
    revoked: u32,
    loan: u32,
    requested: u32,
    given: u32,
    gave_none: bool,
    owes_epoch: bool,
}

struct Model {
    knobs: Knobs,
    bank: u32,
    received: u32,
    peers: Vec<Plain>,
}

impl Model {
    fn new(plan: &Plan, knobs: Knobs, me: u32, nodes: u32) -> Self {
        let peers = (0..nodes).map(|n| Plain {
            send: plan.loan(n, me).into(),
            loan: plan.loan(me, n).into(),
            ..Plain::default()
        });
        Self {
            knobs,
            bank: plan.bank as u32,
            received: 0,
            peers: peers.collect(),
        }
    }

    fn take(&mut self, to: usize, n: u32) -> bool {
        let p = &mut self.peers[to];
        let there = n <= p.send - p.in_use;
        if there {
            p.in_use += n;
            p.max = p.max.max(p.in_use);
        }
        there
    }

    fn tell(&mut self, to: usize) -> bool {
        std::mem::take(&mut self.peers[to].owes_epoch)
    }

    fn decay(&mut self, at: usize, epoch: bool) {
        let p = &mut self.peers[at];
        if epoch {
            p.max = (p.max / 4).max(p.in_use);
            p.stalls /= 4;
            p.revoked /= 4;
        }
    }

    fn handle_request(&mut self, from: usize, byte: CreditByte) -> CreditByte {
        self.decay(from, byte.epoch);
        let epoch = self.tell(from);
        let p = &mut self.peers[from];
        let mut extra = 0;
        if byte.extra > 0 {
            p.requested += 1;
            while extra < u32::from(byte.extra)
                && self.bank > 0
                && p.given < self.knobs.lend_limit.into()
                && p.loan < self.knobs.most.into()
            {
                extra += 1;
                self.bank -= 1;
                p.given += 1;
                p.loan += 1;
            }
        }
        self.received += 1;
        if self.received == self.knobs.epoch {
            self.received = 0;
            for p in &mut self.peers {
                p.requested /= 4;
                p.given /= 4;
                p.gave_none = false;
                p.owes_epoch = true;
            }
        }
        CreditByte {
            epoch,
            extra: extra as u8,
            used: byte.used,
        }
    }

    fn handle_reply(&mut self, from: usize, byte: CreditByte) {
        let p = &mut self.peers[from];
        p.in_use -= u32::from(byte.used);
        p.send += u32::from(byte.extra);
        self.decay(from, byte.epoch);
    }

    fn handle_revoke(&mut self, from: usize, epoch: bool) -> Notice {
        self.decay(from, epoch);
        let k = self.knobs;
        let p = &mut self.peers[from];
        let mut credits = 0;
        while p.stalls == 0
            && p.revoked < k.revoke_limit.into()
            && p.send > p.max.max(p.in_use).max(k.least.into())
        {
            credits += 1;
            p.send -= 1;
            p.revoked += 1;
        }
        let epoch = self.tell(from);
        Notice::Return { credits, epoch }
    }

    fn handle_return(&mut self, from: usize, credits: u16, epoch: bool) {
        self.decay(from, epoch);
        let p = &mut self.peers[from];
        p.loan -= u32::from(credits);
        p.gave_none = credits == 0;
        self.bank += u32::from(credits);
    }
}

/// Four ranks at random; whom to ask is the machine's choice, that it may be asked is checked.
#[test]
fn the_machine_follows_the_rules() {
    const RANKS: usize = 4;
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let knobs = Knobs {
            most: rng.u16(12..40),
            lend_limit: rng.u16(1..20),
            revoke_limit: rng.u16(1..20),
            targets: rng.u16(1..4),
            epoch: rng.u32(1..30),
            ..Knobs::DEFAULT
        };
        let per_node = rng.u16(8..12);
        let bank = rng.u64(0..20);
        let plan = Plan {
            flow_control: true,
            dynamic: true,
            per_node,
            one_more: 0,
            bank,
            buffers: 2,
            events: u64::from(per_node) * 3 + bank,
        };
        let nodes = RANKS as u32;
        let mut machines: Vec<_> = (0..nodes)
            .map(|r| Credits::new(&plan, knobs, r, nodes))
            .collect();
        let mut models: Vec<_> = (0..nodes)
            .map(|r| Model::new(&plan, knobs, r, nodes))
            .collect();
        let mut requests: Vec<(usize, usize, CreditByte)> = vec![];
        let mut replies: Vec<(usize, usize, CreditByte)> = vec![];
        let mut notices: Vec<(usize, usize, Notice)> = vec![];
        for _ in 0..20_000 {
            let me = rng.usize(0..RANKS);
            match rng.u8(0..4) {
                0 => {
                    let to = (me + rng.usize(1..RANKS)) % RANKS;
                    let n = [1, 2, 8][rng.usize(0..3)];
                    let (machine, model) = (&mut machines[me], &mut models[me]);
                    let there = machine.take(to as u32, n);
                    assert_eq!(there, model.take(to, n.into()));
                    if there {
                        let extra = rng.u8(0..8);
                        let byte = machine.of_request(to as u32, n, extra);
                        assert_eq!(byte.epoch, model.tell(to));
                        assert_eq!((byte.extra, byte.used), (extra, n as u8));
                        requests.push((me, to, byte));
                    } else if rng.bool() {
                        let short = u32::from(n) - (model.peers[to].send - model.peers[to].in_use);
                        assert_eq!(u32::from(machine.stall(to as u32, n)), short.min(7));
                        model.peers[to].stalls += 1;
                    }
                }
                1 if !requests.is_empty() => {
                    let (from, to, byte) = requests.swap_remove(rng.usize(0..requests.len()));
                    let bank = models[to].bank;
                    let reply = machines[to].handle_request(from as u32, byte).unwrap();
                    let model = &mut models[to];
                    // Revokes are decided before this request may end the epoch.
                    let before: Vec<_> = model.peers.clone();
                    assert_eq!(reply, model.handle_request(from, byte));
                    replies.push((to, from, reply));
                    while let Some((whom, notice)) = machines[to].poll_notice() {
                        let Notice::Revoke { epoch } = notice else {
                            panic!("a return to nobody's revoke")
                        };
                        let p = before[whom as usize];
                        assert!(bank < 7 && whom as usize != from);
                        assert!(p.requested == 0 && !p.gave_none);
                        assert!(p.loan > u32::from(knobs.least));
                        assert_eq!(epoch, p.owes_epoch);
                        if models[to].received != 0 {
                            models[to].peers[whom as usize].owes_epoch = false;
                        }
                        notices.push((to, whom as usize, notice));
                    }
                }
                2 if !replies.is_empty() => {
                    let (from, to, byte) = replies.swap_remove(rng.usize(0..replies.len()));
                    machines[to].handle_reply(from as u32, byte).unwrap();
                    models[to].handle_reply(from, byte);
                }
                3 if !notices.is_empty() => {
                    let (from, to, notice) = notices.swap_remove(rng.usize(0..notices.len()));
                    machines[to].handle_notice(from as u32, notice).unwrap();
                    match notice {
                        Notice::Revoke { epoch } => {
                            let answer = models[to].handle_revoke(from, epoch);
                            assert_eq!(machines[to].poll_notice(), Some((from as u32, answer)));
                            notices.push((to, from, answer));
                        }
                        Notice::Return { credits, epoch } => {
                            models[to].handle_return(from, credits, epoch);
                        }
                    }
                }
                _ => {}
            }
            let (machine, model) = (&machines[me], &models[me]);
            assert_eq!(machine.bank, model.bank.into());
            for (at, p) in model.peers.iter().enumerate() {
                let mut own = machine.peers[at];
                own.catch_up(machine.epoch);
                let own = [
                    own.send,
                    own.in_use,
                    own.max,
                    own.stalls,
                    own.revoked,
                    own.loan,
                    own.requested,
                    own.given,
                ];
                let plain = [
                    p.send,
                    p.in_use,
                    p.max,
                    p.stalls,
                    p.revoked,
                    p.loan,
                    p.requested,
                    p.given,
                ];
                assert_eq!(own.map(u32::from), plain, "seed {seed} rank {me} peer {at}");
            }
        }
    }
}
