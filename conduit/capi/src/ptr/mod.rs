// UNSAFETY: a C caller's pointers are bare addresses; here they become values that entries handle without unsafe code.
#![expect(unsafe_code, reason = "reads and writes through pointers of C callers")]
//! Arguments of the calls that C makes.
//!
//! ```text
//!  entry(dest: Remote, src: Source, n: Count)     what C passes: an address or a number, and its promise
//!    │ Source::of(Count), Array::of(Count), …     checked for null
//!    ▼
//!  Outgoing, Incoming, Own, Elements              memory with a length; their functions are safe
//! ```
//!
//! C makes the values of these types by calling an entry; Rust makes them by an unsafe `new` alone. Each type stands for one
//! promise of GASNet's specification, so an entry is a safe function of typed arguments.
//!
//! # Invariant
//!
//! An address meets a [`Count`] of its own call only, the one that the specification names beside it.

mod memory;

pub use memory::{Dest, Remote, Source};
pub(crate) use memory::{Incoming, Outgoing, Own};

use conduit::hsl::Hsl;
use std::ffi::{CStr, c_char, c_int};

/// A type of arguments: an address or a number of C, and what whoever passes it promises.
macro_rules! argument {
    ($(#[$about:meta])* $name:ident $(<$t:ident $(= $default:ty)?>)? ($inner:ty): $promise:literal) => {
        $(#[$about])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name $(<$t $(= $default)?>)? ($inner);

        impl $(<$t>)? $name $(<$t>)? {
            /// What a Rust program passes.
            ///
            /// # Safety
            #[doc = concat!($promise, ", for as long as the call that takes it says.")]
            pub const unsafe fn new(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}
pub(crate) use argument;

argument! {
    /// How many bytes or elements another argument of the same call has.
    Count<I = usize>(I): "The argument that the call sizes by it has so many"
}
argument! {
    /// An array that a call reads, which may be null.
    Array<T>(*const T): "It is null, or has the elements that the count beside it says"
}
argument! {
    /// An array that a call reads and writes, which may be null.
    ArrayMut<T>(*mut T): "It is null, or has the elements that the count beside it says, which may be written"
}
argument! {
    /// Where a result goes; null for nowhere.
    Out<T>(*mut T): "It is null or may be written"
}
argument! {
    /// State that C keeps between calls.
    State<T>(*mut T): "It is a value that may be read and written, which nobody else uses"
}
argument! {
    /// A string, or null.
    Text(*const c_char): "It is null or a string"
}
argument! {
    /// A string that lives as long as the program, or null.
    StaticText(*const c_char): "It is null or a string that lives as long as the program"
}
argument! {
    /// Memory of a handler-safe lock, or null.
    Lock(*mut Hsl): "It is null or memory of a lock"
}

impl Count<usize> {
    /// The number.
    #[inline]
    pub(crate) fn get(self) -> usize {
        self.0
    }

    /// So many for each of `n`, of an argument that has a part for each; the largest number if there is none so large.
    pub(crate) fn times(self, n: usize) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// One more, of an argument that the call says has one more.
    pub(crate) fn and_one(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Count<c_int> {
    /// `None` for a negative number.
    pub(crate) fn checked(self) -> Option<Count<usize>> {
        usize::try_from(self.0).ok().map(Count)
    }
}

/// A call names so many elements by null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NullArray {
    pub(crate) count: usize,
}

impl<T: Copy> Array<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Its elements; none of null.
    pub(crate) fn of(self, count: Count) -> Elements<T> {
        Elements {
            first: self.0,
            count: if self.0.is_null() { 0 } else { count.get() },
        }
    }

    /// Its elements; null for some is an error.
    pub(crate) fn given(self, count: Count) -> Result<Elements<T>, NullArray> {
        let elements = self.of(count);
        match count.get() {
            count if elements.len() < count => Err(NullArray { count }),
            _ => Ok(elements),
        }
    }
}

/// The elements of an array of the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements<T> {
    first: *const T,
    count: usize,
}

impl<T: Copy> Elements<T> {
    /// # Safety
    /// `count` elements at `first` are readable while the value is used; `first` is not looked at for none.
    pub(crate) unsafe fn new(first: *const T, count: usize) -> Self {
        Self { first, count }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<T> {
        // SAFETY: one of the elements, which are readable: `Array::new`, or `new`.
        (i < self.count).then(|| unsafe { self.first.wrapping_add(i).read_unaligned() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + use<'_, T> {
        (0..self.count).filter_map(|i| self.get(i))
    }

    /// All of them; of arrays that are aligned, as those of C's own types are.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the elements are readable: `Array::new`, or `new`.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl<T: Copy> ArrayMut<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Its elements; none of null.
    pub(crate) fn of(self, count: Count) -> ElementsMut<T> {
        ElementsMut(Array(self.0.cast_const()).of(count))
    }

    /// Its elements; null for some is an error.
    pub(crate) fn given(self, count: Count) -> Result<ElementsMut<T>, NullArray> {
        Array(self.0.cast_const()).given(count).map(ElementsMut)
    }
}

/// The elements of an array of the caller, which may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementsMut<T>(Elements<T>);

impl<T: Copy> ElementsMut<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.count
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<T> {
        self.0.get(i)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + use<'_, T> {
        self.0.iter()
    }

    /// The last element is none of them any more.
    pub(crate) fn drop_last(&mut self) {
        self.0.count = self.0.count.saturating_sub(1);
    }

    /// Stores element `i`, if there is one.
    #[inline]
    pub(crate) fn set(&self, i: usize, value: T) {
        if i < self.0.count {
            let to = self.0.first.cast_mut().wrapping_add(i);
            // SAFETY: one of the elements, which may be written: `ArrayMut::new`.
            unsafe { to.write_unaligned(value) };
        }
    }
}

impl<T> Out<T> {
    /// Stores the result, if the caller wants it; whether it does.
    pub(crate) fn set(self, value: T) -> bool {
        let wanted = !self.0.is_null();
        if wanted {
            // SAFETY: not null, so it may be written: `new`.
            unsafe { self.0.write_unaligned(value) };
        }
        wanted
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> State<T> {
    pub(crate) fn get(self) -> T {
        // SAFETY: a value that may be read: `new`.
        unsafe { self.0.read_unaligned() }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: a value that may be written: `new`.
        unsafe { self.0.write_unaligned(value) };
    }
}

impl Text {
    /// The string; `None` for null.
    pub(crate) fn get(&self) -> Option<&CStr> {
        // SAFETY: not null, so it is a string while the call lasts, which has this value: `new`.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }
}

impl StaticText {
    pub(crate) const NONE: Self = Self(std::ptr::null());

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The string; `None` for null.
    pub(crate) fn get(self) -> Option<&'static CStr> {
        // SAFETY: not null, so it is a string that lives as long as the program: `new`.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) fn as_ptr(self) -> *const c_char {
        self.0
    }
}

impl Lock {
    /// The lock; `None` for null.
    pub(crate) fn get(&self) -> Option<&Hsl> {
        // SAFETY: null, or a lock while the call lasts, which has this value: `new`.
        unsafe { self.0.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(n: usize) -> Count {
        // SAFETY: each test names arrays of so many, or null.
        unsafe { Count::new(n) }
    }

    #[test]
    fn an_array_has_its_elements_and_no_more() {
        let mut numbers = [3, 5, 7];
        // SAFETY: an array of this function.
        let array = unsafe { ArrayMut::new(numbers.as_mut_ptr()) };
        let two = array.of(count(2));
        assert_eq!((two.len(), two.get(1), two.get(2)), (2, Some(5), None));
        two.set(1, 6);
        two.set(2, 9);
        assert_eq!(numbers, [3, 6, 7]);
    }

    #[test]
    fn null_has_no_elements_and_takes_no_result() {
        // SAFETY: null.
        let array = unsafe { Array::<u32>::new(std::ptr::null()) };
        let none = array.of(count(5));
        assert_eq!(
            (none.len(), none.get(0), none.as_slice()),
            (0, None, &[][..])
        );
        let given = |n| array.given(count(n)).map(|all| all.len());
        assert_eq!((given(0), given(5)), (Ok(0), Err(NullArray { count: 5 })));
        // SAFETY: null.
        let out = unsafe { Out::new(std::ptr::null_mut()) };
        assert!(!out.set(1));
    }

    #[test]
    fn negative_numbers_are_no_counts() {
        // SAFETY: of no argument.
        let of = |n| unsafe { Count::<c_int>::new(n) }.checked().map(Count::get);
        assert_eq!((of(-1), of(0), of(16)), (None, Some(0), Some(16)));
    }
}
