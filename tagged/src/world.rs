//! The process's side of tag matching.

use crate::calls::{CALLS, Calls};
use crate::comm::{Comm, Group};
use crate::context::{Context, Place};
use crate::error::{CallError, OpenError};
use crate::ids::Ids;
use crate::layout::{Layout, Pattern};
use crate::request::{Found, Ticket};
use crate::unexpected::Id;
use crate::{Counts, Options, Slice, Status};
use portals_shim::Region;
use portals_shim::fabric::Opened;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Communicator, target (a rank of the job) and tag of a send.
pub(crate) type Outward = (u32, u32, i32);

/// The request of a send that was begun; `None` when it has ended already.
pub(crate) type Begun = Result<Option<Ticket>, CallError>;

/// Communicator, source (a rank of the job) and tag of a receive; `None` is any.
pub(crate) type Wanted = (u32, Option<u32>, Option<i32>);

/// Looks at the fabric for sends of a world that is dropped.
const LAST_LOOKS: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Shared {
    /// Of the first context.
    pub(crate) place: Arc<Place>,
    /// Of all interfaces.
    places: Vec<Arc<Place>>,
    contexts: Vec<Seat>,
    /// Communicator ids in use here.
    pub(crate) ids: Mutex<Ids>,
    /// Memory of the library's own messages, for the next ones.
    pub(crate) scratch: Mutex<Vec<Region>>,
    pub(crate) calls: &'static Calls,
    pub(crate) threads: bool,
    pub(crate) grouping: bool,
}

/// A context and its lock, in cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Seat(Mutex<Context>);

/// Tag matching over one interface, or several. Clones are the same world.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) shared: Arc<Shared>,
}

impl World {
    /// Opens it for rank `rank`; `fence` returns when all ranks have called it. Collective.
    ///
    /// On the SeaStar model a `fence` that returns earlier makes virtual times depend on the wall clock
    /// ([`portals_shim::Interface::outside`]).
    ///
    /// The interface's portals 44 to 44 + 3 × contexts belong to it.
    pub fn open<E: std::fmt::Display>(
        opened: Opened,
        rank: u32,
        options: &Options,
        fence: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, OpenError> {
        Self::open_scalable(vec![opened], rank, options, fence)
    }

    /// Opens a world over several interfaces of the process, which the contexts take in turn: threads whose
    /// contexts have different interfaces share no lock and no queue, above the fabric and in it. All ranks have equally many,
    /// opened in the same order; not on the SeaStar model, where each opening is a machine with a time of its own.
    pub fn open_scalable<E: std::fmt::Display>(
        endpoints: Vec<Opened>,
        rank: u32,
        options: &Options,
        fence: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let layout = Layout::new(options.mode, options.format)?;
        let ranks = endpoints.first().map_or(0, |opened| opened.peers.len());
        if endpoints.iter().any(|opened| opened.peers.len() != ranks) {
            let why = "interfaces of jobs of different sizes".to_owned();
            return Err(OpenError::Start(why));
        }
        let ranks = ranks as u64;
        if ranks > layout.max_ranks() {
            return Err(OpenError::TooManyRanks {
                ranks,
                max: layout.max_ranks(),
            });
        }
        if u64::from(rank) >= ranks {
            return Err(OpenError::Start(format!("rank {rank} of {ranks}")));
        }
        let places = endpoints.into_iter().map(|Opened { interface, peers }| {
            Arc::new(Place {
                ni: interface,
                peers,
                me: rank,
                layout,
            })
        });
        let places: Vec<_> = places.collect();
        let contexts = (0..options.contexts).zip(places.iter().cycle());
        let contexts = contexts.map(|(number, place)| {
            let context = Context::new(place, number, options)?;
            Ok(Seat(Mutex::new(context)))
        });
        let contexts = contexts.collect::<Result<_, OpenError>>()?;
        // There is one: a rank of none was refused.
        let place = Arc::clone(places.first().ok_or(OpenError::Start(String::new()))?);
        let met = place.ni.outside(fence);
        match met {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(OpenError::Start(error.to_string())),
            Err(error) => {
                return Err(OpenError::Setup {
                    what: "the meeting of all ranks",
                    error,
                });
            }
        }
        let calls = &CALLS[usize::from(layout.is_full())];
        let world = Self {
            shared: Arc::new(Shared {
                place,
                places,
                contexts,
                ids: Mutex::new(Ids::new()),
                scratch: Mutex::default(),
                calls,
                threads: options.threads,
                grouping: options.thread_grouping,
            }),
        };
        world.greet()?;
        Ok(world)
    }

    /// Ranks with other options are refused: by those beside them as soon as they have the greeting, and by all others then.
    fn greet(&self) -> Result<(), OpenError> {
        let refused = |error| match error {
            CallError::Differs { rank } => OpenError::Differs { rank },
            error => OpenError::Start(error.to_string()),
        };
        self.shared
            .context(0)
            .and_then(|mut context| context.greet())
            .and_then(|()| self.progress())
            .map(drop)
            .map_err(refused)
    }

    /// Ends it: waits until all that this rank has sent has left or been received, as its receivers see to, meets the others by
    /// `fence`, which returns when all ranks have called it, and closes the interfaces. Collective. Communicators and clones of
    /// this world that are left get errors.
    ///
    /// A world that is dropped sends what it can without waiting for a receiver, and does not meet the others: what they have
    /// not received by then they may never get.
    pub fn finish<E: std::fmt::Display>(
        self,
        fence: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), OpenError> {
        let start = |error: CallError| OpenError::Start(error.to_string());
        for number in 0..self.shared.contexts() {
            loop {
                let context = self.shared.context(number as u16).map_err(start)?;
                if !context.is_sending() {
                    break;
                }
                self.shared.progress_once(context).map_err(start)?;
            }
        }
        let place = &self.shared.place;
        let met = place.ni.outside(fence);
        let closed = self.shared.interfaces().try_for_each(|ni| ni.close());
        let setup = |what| move |error| OpenError::Setup { what, error };
        met.map_err(setup("the last meeting of all ranks"))?
            .map_err(|error| OpenError::Start(error.to_string()))?;
        closed.map_err(setup("the end of an interface"))
    }

    /// The communicator of all ranks.
    pub fn comm(&self) -> Comm {
        let ranks = self.shared.place.peers.len() as u32;
        Comm::new(&self.shared, 0, Group::All(ranks), self.shared.place.me)
    }

    /// The layout in use.
    pub fn layout(&self) -> Layout {
        self.shared.place.layout
    }

    /// The interface below, the first of several.
    pub fn interface(&self) -> &portals_shim::Interface {
        &self.shared.place.ni
    }

    /// What each context has done.
    pub fn counts(&self) -> Vec<Counts> {
        self.shared
            .contexts
            .iter()
            .map(|seat| lock(&seat.0).counts)
            .collect()
    }

    /// Handles what has come, in every context; whether there was anything.
    pub fn progress(&self) -> Result<bool, CallError> {
        let mut any = false;
        for context in &self.shared.contexts {
            any |= (self.shared.calls.progress)(&mut lock(&context.0))?;
        }
        Ok(any)
    }
}

#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Shared {
    /// What has been sent and can go without a receiver's part goes.
    fn drop(&mut self) {
        for seat in &self.contexts {
            let mut looks = LAST_LOOKS;
            while looks > 0 && lock(&seat.0).is_sending() {
                looks -= 1;
                if (self.calls.progress)(&mut lock(&seat.0)).is_err() {
                    break;
                }
            }
        }
    }
}

impl Shared {
    fn interfaces(&self) -> impl Iterator<Item = &portals_shim::Interface> {
        self.places.iter().map(|place| &place.ni)
    }

    pub(crate) fn contexts(&self) -> u32 {
        self.contexts.len() as u32
    }

    /// A context, locked.
    #[inline]
    pub(crate) fn context(&self, number: u16) -> Result<MutexGuard<'_, Context>, CallError> {
        match self.contexts.get(usize::from(number)) {
            Some(seat) => Ok(lock(&seat.0)),
            None => Err(CallError::NotARequest),
        }
    }

    pub(crate) fn receive_message(
        &self,
        message: &Found,
        into: &Slice,
    ) -> Result<Ticket, CallError> {
        self.context(message.context)?
            .receive_taken(message.id, into)
    }

    /// What is found, after what has come was handled.
    pub(crate) fn probe(
        &self,
        context: u16,
        pattern: Pattern,
        source: Option<u32>,
    ) -> Result<Option<Status>, CallError> {
        let mut context = self.context(context)?;
        (self.calls.progress)(&mut context)?;
        let id = context.probe(pattern, source);
        Ok(id.and_then(|id: Id| context.status(id)))
    }

    pub(crate) fn probe_message(
        &self,
        context: u16,
        pattern: Pattern,
        source: Option<u32>,
    ) -> Result<Option<Found>, CallError> {
        let mut context = self.context(context)?;
        (self.calls.progress)(&mut context)?;
        let id = context.probe(pattern, source);
        Ok(id.and_then(|id| context.take(id)))
    }

    pub(crate) fn cancel(&self, request: &Ticket) -> Result<bool, CallError> {
        (self.calls.cancel)(&mut *self.context(request.context)?, request)
    }

    /// Nobody waits for a request.
    #[cold]
    pub(crate) fn abandon(&self, request: &Ticket) {
        if let Ok(mut context) = self.context(request.context) {
            (self.calls.abandon)(&mut context, request);
        }
    }

    /// A message that a probe took is not received.
    pub(crate) fn put_back(&self, message: &Found) {
        if let Ok(mut context) = self.context(message.context) {
            context.put_back(message.id);
        }
    }

    /// The context of the communicator of this id.
    pub(crate) fn context_of(&self, cid: u32) -> u16 {
        let context = if self.grouping {
            cid % self.contexts()
        } else {
            0
        };
        context as u16
    }

    /// Ids of communicators that are gone are free if nothing is left of these.
    pub(crate) fn reclaim_ids(&self) {
        let left = lock(&self.ids).take_left();
        for cid in left {
            let context = self.context(self.context_of(cid));
            let used = context.is_ok_and(|context| context.uses(cid));
            let mut ids = lock(&self.ids);
            if used {
                ids.leave(cid);
            } else {
                ids.untake(cid);
            }
        }
    }

    /// Whether a request has ended; its context.
    pub(crate) fn test(
        &self,
        request: &Ticket,
    ) -> Result<(bool, MutexGuard<'_, Context>), CallError> {
        let mut context = self.context(request.context)?;
        if !context.has_ended(request)? {
            (self.calls.progress)(&mut context)?;
        }
        Ok((context.has_ended(request)?, context))
    }

    /// Waits for something to come.
    pub(crate) fn idle(&self, context: u16) -> Result<(), CallError> {
        let context = self.context(context)?;
        self.progress_once(context)
    }

    pub(crate) fn progress_once(
        &self,
        mut context: MutexGuard<'_, Context>,
    ) -> Result<(), CallError> {
        if self.threads {
            let any = (self.calls.progress)(&mut context)?;
            drop(context);
            if !any {
                std::thread::yield_now();
            }
            Ok(())
        } else {
            (self.calls.progress_wait)(&mut context)
        }
    }
}
