//! What is traced and counted: categories, masks, and every counter with its category.

/// A letter of `GASNET_TRACEMASK` and `GASNET_STATSMASK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Category {
    /// Gets.
    G,
    /// Puts and memset.
    P,
    /// Synchronisation of non-blocking operations.
    S,
    /// Collectives, without barriers.
    W,
    /// Synchronisation of collectives.
    X,
    /// Barriers.
    B,
    /// Handler-safe locks.
    L,
    /// Active messages and their handlers.
    A,
    /// What may matter for speed.
    I,
    /// The conduit.
    C,
    /// Addresses and data of messages.
    D,
    /// Lines of the program's source in front of the others.
    N,
    /// Messages of the program.
    H,
}

/// All categories in the order of their mask.
pub(super) const ALL: [(Category, char); 13] = [
    (Category::G, 'G'),
    (Category::P, 'P'),
    (Category::S, 'S'),
    (Category::W, 'W'),
    (Category::X, 'X'),
    (Category::B, 'B'),
    (Category::L, 'L'),
    (Category::A, 'A'),
    (Category::I, 'I'),
    (Category::C, 'C'),
    (Category::D, 'D'),
    (Category::N, 'N'),
    (Category::H, 'H'),
];

impl Category {
    pub(super) fn letter(self) -> char {
        ALL[self as usize].1
    }
}

/// A set of categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(u16);

impl Mask {
    /// The categories that `text` has letters of; other letters do not count.
    pub fn parse(text: &str) -> Self {
        let known = |c: char| ALL.iter().find(|(_, l)| *l == c);
        let bits = text.chars().filter_map(known);
        Self(bits.fold(0, |mask, (c, _)| mask | 1 << *c as u16))
    }

    /// Every category.
    pub const fn all() -> Self {
        Self((1 << ALL.len()) - 1)
    }

    /// Whether `category` is in it.
    pub fn has(self, category: Category) -> bool {
        self.0 & 1 << category as u16 != 0
    }

    pub(super) fn bits(self) -> u16 {
        self.0
    }

    pub(super) fn from_bits(bits: u16) -> Self {
        Self(bits & Self::all().0)
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (category, letter) in ALL {
            if self.has(category) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// What a counter adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Nothing.
    Count,
    /// Numbers.
    Value,
    /// Nanoseconds.
    Time,
}

/// A counter; its events have its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) name: &'static str,
    pub(super) category: Category,
    pub(super) sort: Sort,
    /// What its numbers are.
    pub(super) unit: &'static str,
    /// Operations on the own rank are counted apart.
    pub(super) local: bool,
}

const fn counter(
    category: Category,
    sort: Sort,
    name: &'static str,
    unit: &'static str,
    local: bool,
) -> Counter {
    Counter {
        name,
        category,
        sort,
        unit,
        local,
    }
}

macro_rules! counters {
    ($($category:ident $sort:ident $unit:literal $local:literal: $($name:ident)*;)*) => {
        /// Every counter, in the order in which they are written.
        pub(super) const COUNTERS: &[Counter] = &[
            $($(counter(Category::$category, Sort::$sort, stringify!($name), $unit, $local),)*)*
        ];
    };
}

counters! {
    G Value "sz" true: GET GET_BULK GET_NB GET_NB_BULK GET_NB_VAL GET_NBI GET_NBI_BULK GET_VAL;
    P Value "sz" true: PUT PUT_BULK PUT_NB PUT_NB_BULK PUT_NB_VAL PUT_NBI PUT_NBI_BULK PUT_NBI_VAL
        PUT_VAL MEMSET MEMSET_NB MEMSET_NBI;
    G Value "sz" false: GETV_BULK GETV_NB_BULK GETV_NBI_BULK GETI_BULK GETI_NB_BULK GETI_NBI_BULK
        GETS_BULK GETS_NB_BULK GETS_NBI_BULK;
    P Value "sz" false: PUTV_BULK PUTV_NB_BULK PUTV_NBI_BULK PUTI_BULK PUTI_NB_BULK PUTI_NBI_BULK
        PUTS_BULK PUTS_NB_BULK PUTS_NBI_BULK;
    S Value "success" false: TRY_SYNCNB TRY_SYNCNB_ALL TRY_SYNCNB_SOME TRY_SYNCNB_NP;
    S Time "waittime" false: WAIT_SYNCNB WAIT_SYNCNB_ALL WAIT_SYNCNB_SOME WAIT_SYNCNB_VALGET;
    S Value "success" false: TRY_SYNCNBI_ALL TRY_SYNCNBI_GETS TRY_SYNCNBI_PUTS;
    S Time "waittime" false: WAIT_SYNCNBI_ALL WAIT_SYNCNBI_GETS WAIT_SYNCNBI_PUTS;
    W Value "sz" false: COLL_BROADCAST COLL_SCATTER COLL_GATHER COLL_GATHER_ALL COLL_EXCHANGE
        COLL_REDUCE COLL_SCAN;
    X Value "success" false: COLL_TRY_SYNC;
    X Time "waittime" false: COLL_WAIT_SYNC;
    B Count "cnt" false: BARRIER_NOTIFY;
    B Time "notify-wait interval" false: BARRIER_NOTIFYWAIT;
    B Time "waittime" false: BARRIER_WAIT;
    B Value "success" false: BARRIER_TRY;
    L Time "waittime" false: HSL_LOCK;
    L Time "holdtime" false: HSL_UNLOCK;
    L Value "success" false: HSL_TRYLOCK;
    A Count "cnt" false: AMREQUEST_SHORT AMREQUEST_MEDIUM AMREQUEST_LONG AMREQUEST_LONGASYNC
        AMREPLY_SHORT AMREPLY_MEDIUM AMREPLY_LONG
        AMREQUEST_SHORT_HANDLER AMREQUEST_MEDIUM_HANDLER AMREQUEST_LONG_HANDLER
        AMREPLY_SHORT_HANDLER AMREPLY_MEDIUM_HANDLER AMREPLY_LONG_HANDLER;
    I Count "cnt" false: AMPOLL;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_letters() {
        let mask = Mask::parse("HPzG");
        assert_eq!(mask.to_string(), "GPH");
        assert!(mask.has(Category::H) && !mask.has(Category::A));
        assert_eq!(Mask::all().to_string(), "GPSWXBLAICDNH");
        assert_eq!(Mask::parse(&Mask::all().to_string()), Mask::all());
        assert_eq!(Mask::parse("").to_string(), "");
    }

    #[test]
    fn a_counter_has_one_name() {
        for (i, c) in COUNTERS.iter().enumerate() {
            assert!(COUNTERS[..i].iter().all(|o| o.name != c.name), "{}", c.name);
        }
    }
}
