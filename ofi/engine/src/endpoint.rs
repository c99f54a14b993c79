//! An endpoint, as the provider sees it.

use crate::accesses::Counts;
use crate::atomic::{Datatype, Form, Operation, Request};
use crate::completion::{Failure, Op, Reports, ReportsId};
use crate::core::{Core, Life, Refused};
use crate::landing::{EAGER, RoomError};
use crate::matching::{MultiReceive, Receive, Wanted};
use crate::memory::Buffer;
use crate::multi_receives::Part;
use crate::peers::{Load, Outgoing, Remote};
use crate::remote::Access;
use crate::wire::words;
use host::awake::Awake;
use portals_shim::endpoint::{self, Address, AddressError};
use portals_shim::fabric::{FabricConfig, FabricError, FabricKind};
use portals_shim::{Interface, ProcessId, Wait};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use watch::Watch;

/// How long accesses of peers may keep memory from being deregistered.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one look waits for their end, nanoseconds.
const MOMENT: u64 = 50_000;

/// Why an endpoint does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The fabric does not.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// There is no room for messages.
    #[error(transparent)]
    Room(#[from] RoomError),
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its tag; none for messages of their own kind.
    pub tag: Option<u64>,
    /// 64 bits that travel beside it, beside a tag the lower half of them.
    pub data: Option<u64>,
    /// The memory is free when the call returns (`FI_INJECT`).
    pub inject: bool,
}

/// An atomic operation, beside its operand.
#[derive(Clone, Debug)]
pub struct AtomicCall {
    /// On what.
    pub datatype: Datatype,
    /// Which.
    pub operation: Operation,
    /// What it is compared with.
    pub compare: Option<Buffer>,
    /// Where what was there before goes.
    pub result: Option<Buffer>,
}

impl AtomicCall {
    /// Elements of one operation at most.
    pub const fn most(datatype: Datatype, form: Form) -> usize {
        let operands = match form {
            Form::Compare => 2,
            Form::Plain | Form::Fetch => 1,
        };
        (EAGER - Request::BYTES) / (operands * datatype.size())
    }

    /// What it brings and wants beside its operand.
    pub const fn form(&self) -> Form {
        match (&self.compare, &self.result) {
            (Some(_), _) => Form::Compare,
            (None, Some(_)) => Form::Fetch,
            (None, None) => Form::Plain,
        }
    }

    /// Bytes of the memory that it works on: a read has no operand, and brings as many bytes as it wants back.
    pub fn reach(&self, operand: &Buffer) -> u64 {
        let reads = self.operation == Operation::Read;
        let wanted = self.result.as_ref().filter(|_| reads);
        wanted.map_or(operand.len(), Buffer::len)
    }
}

/// An endpoint of the provider. Any thread may call every method; they take turns.
#[derive(Debug)]
pub struct Endpoint {
    portals: endpoint::Endpoint,
    core: Mutex<Core>,
    watch: Watch,
}

impl Endpoint {
    /// Opens an endpoint; nobody else has to be there.
    ///
    /// # Errors
    /// The fabric cannot be used here, or there is no memory.
    pub fn open(config: &FabricConfig) -> Result<Self, OpenError> {
        let portals = endpoint::Endpoint::open(config)?;
        let core = Mutex::new(Core::new(portals.interface().clone())?);
        let watch = Watch::default();
        Ok(Self {
            portals,
            core,
            watch,
        })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.try_core().unwrap_or_else(|| self.core_of_another())
    }

    /// The interface below, for its clock.
    pub fn interface(&self) -> &Interface {
        self.portals.interface()
    }

    /// The address, which others insert into their address vectors.
    pub fn address(&self) -> [u8; Address::BYTES] {
        self.portals.address()
    }

    /// Takes note of a peer.
    ///
    /// # Errors
    /// It cannot be reached from here.
    pub fn connect(&self, address: &Address) -> Result<ProcessId, AddressError> {
        // One that was removed and has ended begins anew.
        self.disconnect_those(|core| core.ended());
        let id = self.portals.connect(&address.to_bytes())?;
        self.core().removed.take_back(id);
        Ok(id)
    }

    /// A peer is removed from the address vector. That is no end of its connection: it may go on sending, as peers do that
    /// were never inserted, and its operations that are under way end as they would have.
    pub fn remove(&self, id: ProcessId) {
        self.disconnect_those(|core| {
            let mut left: Vec<_> = core.removed.add(id).into_iter().collect();
            left.extend(core.ended());
            left
        });
    }

    fn disconnect_those(&self, of: impl FnOnce(&mut Core) -> Vec<ProcessId>) {
        // The fabric tells of it by events, which need the core.
        let left = of(&mut self.core());
        for id in left {
            self.portals.disconnect(id);
        }
    }

    /// Operations of this endpoint may tell these of their ends from now on, until it closes.
    pub fn report_to(&self, reports: Reports) -> ReportsId {
        self.core().reporter.add(reports)
    }

    /// Whom peers' writes that carry data are told to.
    pub fn tell_writes(&self, op: Op) {
        self.core().on_written = Some(op);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Too much is under way, or Portals refuses it; nothing has happened then.
    pub fn send(
        &self,
        to: ProcessId,
        message: Message,
        buffer: Buffer,
        op: Op,
    ) -> Result<(), Refused> {
        let mut core = self.core();
        if core.send_at_once(to, message, &buffer, &op) {
            return Ok(());
        }
        let (tag, data) = words(message.tag, message.data);
        let what = Outgoing::Message {
            tagged: message.tag.is_some(),
            tag,
            data,
            load: load(buffer, message.inject),
            op,
        };
        core.submit(to, what)
    }

    /// Receives a message; with `least` several, one behind the other, until fewer bytes are left.
    pub fn receive(
        &self,
        tagged: bool,
        wanted: Wanted,
        buffer: Buffer,
        least: Option<u64>,
        op: Op,
    ) {
        let mut core = self.core();
        let multi = least.map(|least| MultiReceive {
            least,
            number: core.next(),
        });
        let receive = Receive {
            wanted,
            buffer,
            op,
            multi,
        };
        core.receive(tagged, receive);
    }

    /// Says whether a message is there, by a completion, or by a failure at once; with `claim` nobody else gets it.
    pub fn peek(&self, tagged: bool, wanted: &Wanted, claim: bool, op: &Op) {
        let claim = claim.then_some(op.context);
        self.core().peek(tagged, wanted, claim, op);
    }

    /// Takes the message that was claimed with the context of `op`.
    ///
    /// # Errors
    /// None was.
    pub fn take_claimed(&self, tagged: bool, buffer: &Buffer, op: Op) -> Result<(), Refused> {
        let mut core = self.core();
        let at = core.lists[usize::from(tagged)].claimed(op.context);
        let message = at.and_then(|at| core.take_kept(tagged, at));
        let message = message.ok_or(Refused::NoMessage)?;
        core.give(message, op, buffer, Part::default());
        Ok(())
    }

    /// Drops the oldest message that fits, if one is there; a peek that forgets it.
    pub fn discard(&self, tagged: bool, wanted: &Wanted, claimed: bool, op: Op) {
        let mut core = self.core();
        core.progress(Wait::No);
        let list = &mut core.lists[usize::from(tagged)];
        let at = match claimed {
            true => list.claimed(op.context),
            false => list.find(wanted),
        };
        let Some(message) = at.and_then(|at| core.take_kept(tagged, at)) else {
            return core.reporter.found_none(&op, wanted.tag);
        };
        let end = message.end();
        // Its sender learns that nothing of it is wanted.
        core.give(message, Op::default(), &Buffer::default(), Part::default());
        core.reporter.looked(&op, &end);
    }

    /// Takes back the receive with this context, which ends as cancelled. Returns whether it waited.
    pub fn cancel(&self, context: usize) -> bool {
        let mut core = self.core();
        // Before the look at what has come: programs wait for `FI_ECANCELED`, unless they have been told of another end.
        let found = core.lists.iter_mut().find_map(|list| list.cancel(context));
        let waited = found.is_some();
        if let Some(receive) = found {
            core.end_receive(receive, Failure::Canceled);
        }
        core.progress(Wait::No);
        waited
    }

    /// Writes to a peer's memory.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn write(
        &self,
        to: ProcessId,
        remote: Remote,
        buffer: Buffer,
        (data, inject): (Option<u64>, bool),
        op: Op,
    ) -> Result<(), Refused> {
        let what = Outgoing::Write {
            to: remote,
            load: load(buffer, inject),
            data,
            op,
        };
        self.core().submit(to, what)
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn read(
        &self,
        from: ProcessId,
        remote: Remote,
        into: Buffer,
        op: Op,
    ) -> Result<(), Refused> {
        let what = Outgoing::Read {
            from: remote,
            into,
            op,
        };
        self.core().submit(from, what)
    }

    /// Has a peer make an atomic operation on its memory. The operand is copied before this returns.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`]; [`Refused::Invalid`] for an operation that there is not on this type, for lengths that
    /// differ and for more elements than [`AtomicCall::most`].
    pub fn atomic(
        &self,
        to: ProcessId,
        remote: Remote,
        operand: &Buffer,
        call: AtomicCall,
        op: Op,
    ) -> Result<(), Refused> {
        let (form, len) = (call.form(), call.reach(operand));
        let reads = call.operation == Operation::Read;
        let most = AtomicCall::most(call.datatype, form) * call.datatype.size();
        let same = |buffer: &Option<Buffer>| buffer.as_ref().is_none_or(|b| b.len() == len);
        let valid = call.operation.is_valid(call.datatype, form)
            && len <= most as u64
            && len.is_multiple_of(call.datatype.size() as u64)
            && same(&call.compare)
            && same(&call.result);
        if !valid {
            return Err(Refused::Invalid);
        }
        let request = Request {
            key: remote.key,
            offset: remote.offset,
            datatype: call.datatype,
            op: call.operation,
            form,
            len: len as u32,
        };
        let mut core = self.core();
        let mut bytes = core.pool.take();
        bytes.extend_from_slice(&request.encode());
        match reads {
            true => bytes.resize(bytes.len() + len as usize, 0),
            false => operand.append_to(&mut bytes),
        }
        if let Some(compare) = &call.compare {
            compare.append_to(&mut bytes);
        }
        let what = Outgoing::Atomic {
            bytes,
            result: call.result,
            len,
            op,
        };
        core.submit(to, what)
    }

    /// Lets peers reach memory under a key, until it is deregistered; until then the buffer's promise holds.
    ///
    /// # Errors
    /// The key is in use, or Portals refuses it.
    pub fn register(&self, key: u64, buffer: &Buffer, access: Access) -> Result<(), Refused> {
        self.core().register(key, buffer, access)
    }

    /// Counts what peers do with the memory of a key, or of all keys, from now on. Accesses that are under way may be
    /// counted or not.
    ///
    /// # Errors
    /// There is no such key, or no room for events.
    pub fn count(&self, key: Option<u64>, counts: Counts) -> Result<(), Refused> {
        match key {
            Some(key) => self.core().count_of(key, counts),
            None => self.core().count_all(counts),
        }
    }

    /// Peers no longer reach the memory of a key when this succeeds. An access whose initiator has its end already may not have ended here:
    /// this call makes progress until it has. Meanwhile it calls `serve`, as its peers may be endpoints of this process.
    ///
    /// # Errors
    /// [`Refused::InUse`]: a peer has kept an access under way for ten seconds. No other begins any more; the key is taken until a later
    /// call succeeds.
    pub fn deregister(&self, key: u64, serve: impl Fn()) -> Result<(), Refused> {
        self.deregister_within(key, PATIENCE, serve)
    }

    fn deregister_within(
        &self,
        key: u64,
        patience: Duration,
        serve: impl Fn(),
    ) -> Result<(), Refused> {
        let mut left = Awake::new(patience);
        loop {
            // Between two attempts other threads have their turn.
            let mut core = self.core();
            match core.deregister(key) {
                Err(Refused::InUse) if !left.is_over() => core.progress(Wait::Nanos(MOMENT)),
                done => return done,
            };
            drop(core);
            serve();
            // To a thread that closes the endpoint.
            std::thread::yield_now();
        }
    }

    /// Handles what has happened, and waits so long for something if nothing has. Returns whether there was anything.
    pub fn progress(&self, wait: Duration) -> bool {
        let wait = match u64::try_from(wait.as_nanos()) {
            Ok(0) => Wait::No,
            Ok(nanos) => Wait::Nanos(nanos),
            Err(_) => Wait::Forever,
        };
        match self.try_core() {
            Some(mut core) => core.progress(wait),
            // The thread that waits does that.
            None if self.is_watched() => false,
            None => self.core_of_another().progress(wait),
        }
    }

    /// Whether something is under way to a peer, or waits for a peer's credits though the program holds it for sent, such as a message
    /// of [`Message::inject`]. It ends by the progress of both. Of what waits, all is lost if the endpoint closes before.
    pub fn is_busy(&self) -> bool {
        self.core().is_busy()
    }

    /// Whether a message that has ended may need this process's progress to leave: over an adapter. Memory that is shared outlives a
    /// process, and so do the chips of the model.
    pub fn leaves_by_progress(&self) -> bool {
        let address = Address::from_bytes(&self.address());
        address.is_ok_and(|own| own.kind() == FabricKind::Verbs)
    }

    /// Whether a call has the endpoint. A thread that asks within one, as the process ends, would wait for itself.
    pub fn is_taken(&self) -> bool {
        self.try_core().is_none()
    }

    /// Closes the endpoint: operations under way have no end any more, and no memory that was lent to it is touched after this. Other
    /// threads may go on with progress, and with the memory of its domain: nothing happens. A forked child leaves the parent's
    /// endpoint open.
    pub fn close(&self) {
        if !self.end_watch() {
            return;
        }
        self.core().close();
        // Not with the lock: this waits until peers have taken what was sent, and threads that serve them ask for the lock.
        if let Err(error) = self.interface().close() {
            tracing::debug!(%error, "an endpoint closes");
        }
        self.core().life = Life::Closed;
    }
}

fn load(buffer: Buffer, inject: bool) -> Load {
    match inject {
        true => Load::Injected(buffer),
        false => Load::Lent(buffer),
    }
}

#[cfg(test)]
mod tests;
mod watch;
