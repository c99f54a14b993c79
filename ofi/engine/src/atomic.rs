//! Atomic operations on a peer's memory: the peer's engine makes them, one after the other.
//!
//! They are atomic among each other, whichever endpoint of the peer's process they come by, and not against its processor.

use extended::Extended;
use host::fork::Own;
use std::sync::Mutex;

mod extended;

/// Held while an operation changes memory.
pub(crate) static TURN: Own<Mutex<()>> = Own::unset();

/// What an operation works on; the numbers are libfabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum Datatype {
    I8 = 0,
    U8 = 1,
    I16 = 2,
    U16 = 3,
    I32 = 4,
    U32 = 5,
    I64 = 6,
    U64 = 7,
    F32 = 8,
    F64 = 9,
    ComplexF32 = 10,
    ComplexF64 = 11,
    LongDouble = 12,
    ComplexLongDouble = 13,
    I128 = 14,
    U128 = 15,
}

/// What is done; the numbers are libfabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum Operation {
    Min = 0,
    Max = 1,
    Sum = 2,
    Product = 3,
    LogicalOr = 4,
    LogicalAnd = 5,
    BitOr = 6,
    BitAnd = 7,
    LogicalXor = 8,
    BitXor = 9,
    Read = 10,
    Write = 11,
    SwapIfEqual = 12,
    SwapIfNotEqual = 13,
    SwapIfLessOrEqual = 14,
    SwapIfLess = 15,
    SwapIfGreaterOrEqual = 16,
    SwapIfGreater = 17,
    SwapMasked = 18,
}

/// What an operation brings and wants beside its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing.
    Plain,
    /// What was there before.
    Fetch,
    /// That, and it brings values to compare with.
    Compare,
}

impl Datatype {
    const ALL: [Self; 16] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::ComplexF32,
        Self::ComplexF64,
        Self::LongDouble,
        Self::ComplexLongDouble,
        Self::I128,
        Self::U128,
    ];

    /// That of libfabric's number; `None` for those that are not there. What C calls a long double is another format on other
    /// processors.
    pub fn of(number: u32) -> Option<Self> {
        let datatype = Self::ALL.get(number as usize).copied();
        datatype.filter(|datatype| cfg!(target_arch = "x86_64") || !datatype.is_long_double())
    }

    /// Bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::ComplexF32 => 8,
            Self::ComplexF64 | Self::LongDouble | Self::I128 | Self::U128 => 16,
            Self::ComplexLongDouble => 32,
        }
    }

    const fn is_complex(self) -> bool {
        matches!(
            self,
            Self::ComplexF32 | Self::ComplexF64 | Self::ComplexLongDouble
        )
    }

    const fn is_long_double(self) -> bool {
        matches!(self, Self::LongDouble | Self::ComplexLongDouble)
    }

    const fn is_integer(self) -> bool {
        (self as u8) < Self::F32 as u8 || matches!(self, Self::I128 | Self::U128)
    }
}

impl Operation {
    const ALL: [Self; 19] = [
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Product,
        Self::LogicalOr,
        Self::LogicalAnd,
        Self::BitOr,
        Self::BitAnd,
        Self::LogicalXor,
        Self::BitXor,
        Self::Read,
        Self::Write,
        Self::SwapIfEqual,
        Self::SwapIfNotEqual,
        Self::SwapIfLessOrEqual,
        Self::SwapIfLess,
        Self::SwapIfGreaterOrEqual,
        Self::SwapIfGreater,
        Self::SwapMasked,
    ];

    /// That of libfabric's number; `None` for those that are not there.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether there is this operation on this type in this form.
    pub const fn is_valid(self, on: Datatype, form: Form) -> bool {
        let compares = self as u8 >= Self::SwapIfEqual as u8;
        let fits = match form {
            Form::Plain => !compares && !matches!(self, Self::Read),
            Form::Fetch => !compares,
            Form::Compare => compares,
        };
        let on_type = match self {
            Self::BitOr | Self::BitAnd | Self::BitXor | Self::SwapMasked => on.is_integer(),
            Self::Min
            | Self::Max
            | Self::SwapIfLessOrEqual
            | Self::SwapIfLess
            | Self::SwapIfGreaterOrEqual
            | Self::SwapIfGreater => !on.is_complex(),
            _ => true,
        };
        fits && on_type
    }
}

/// What one element becomes: of what it is, the operand, and what is compared with.
fn ordered<T: PartialOrd + Copy>(op: Operation, old: T, new: T, with: T) -> Option<T> {
    let swap = |is| Some(if is { new } else { old });
    match op {
        Operation::Min => swap(new < old),
        Operation::Max => swap(new > old),
        Operation::SwapIfLessOrEqual => swap(with <= old),
        Operation::SwapIfLess => swap(with < old),
        Operation::SwapIfGreaterOrEqual => swap(with >= old),
        Operation::SwapIfGreater => swap(with > old),
        _ => None,
    }
}

/// The same, of operations that need no order.
fn plain<T: PartialEq + Copy>(
    op: Operation,
    old: T,
    new: T,
    with: T,
    (zero, one): (T, T),
) -> Option<T> {
    let truth = |is| Some(if is { one } else { zero });
    let (a, b) = (old != zero, new != zero);
    match op {
        Operation::LogicalOr => truth(a || b),
        Operation::LogicalAnd => truth(a && b),
        Operation::LogicalXor => truth(a != b),
        Operation::Read => Some(old),
        Operation::Write => Some(new),
        Operation::SwapIfEqual => Some(if with == old { new } else { old }),
        Operation::SwapIfNotEqual => Some(if with != old { new } else { old }),
        _ => None,
    }
}

macro_rules! integers {
    ($($name:ident $type:ty),*) => {$(
        fn $name(op: Operation, old: &mut [u8], new: &[u8], with: &[u8]) -> Option<()> {
            let read = |bytes: &[u8]| bytes.try_into().ok().map(<$type>::from_ne_bytes);
            let (is, new, with) = (read(old)?, read(new)?, read(with)?);
            let becomes = match op {
                Operation::Sum => is.wrapping_add(new),
                Operation::Product => is.wrapping_mul(new),
                Operation::BitOr => is | new,
                Operation::BitAnd => is & new,
                Operation::BitXor => is ^ new,
                Operation::SwapMasked => (new & with) | (is & !with),
                _ => ordered(op, is, new, with).or_else(|| plain(op, is, new, with, (0, 1)))?,
            };
            old.copy_from_slice(&becomes.to_ne_bytes());
            Some(())
        }
    )*};
}

macro_rules! floats {
    ($($name:ident $complex:ident $type:ty, $zero:expr, $one:expr);*) => {$(
        fn $name(op: Operation, old: &mut [u8], new: &[u8], with: &[u8]) -> Option<()> {
            let read = |bytes: &[u8]| bytes.try_into().ok().map(<$type>::from_ne_bytes);
            let (is, new, with) = (read(old)?, read(new)?, read(with)?);
            let becomes = match op {
                Operation::Sum => is + new,
                Operation::Product => is * new,
                _ => ordered(op, is, new, with).or_else(|| plain(op, is, new, with, ($zero, $one)))?,
            };
            old.copy_from_slice(&becomes.to_ne_bytes());
            Some(())
        }

        fn $complex(op: Operation, old: &mut [u8], new: &[u8], with: &[u8]) -> Option<()> {
            let half = old.len() / 2;
            let part = |bytes: &[u8]| bytes.try_into().ok().map(<$type>::from_ne_bytes);
            let read = |bytes: &[u8]| Some((part(bytes.get(..half)?)?, part(bytes.get(half..)?)?));
            let (is, new, with) = (read(old)?, read(new)?, read(with)?);
            let becomes = match op {
                Operation::Sum => (is.0 + new.0, is.1 + new.1),
                Operation::Product => (is.0 * new.0 - is.1 * new.1, is.0 * new.1 + is.1 * new.0),
                _ => plain(op, is, new, with, (($zero, $zero), ($one, $zero)))?,
            };
            let (re, im) = old.split_at_mut(half);
            re.copy_from_slice(&becomes.0.to_ne_bytes());
            im.copy_from_slice(&becomes.1.to_ne_bytes());
            Some(())
        }
    )*};
}

integers!(on_i8 i8, on_u8 u8, on_i16 i16, on_u16 u16, on_i32 i32, on_u32 u32, on_i64 i64, on_u64 u64, on_i128 i128, on_u128 u128);
floats!(on_f32 on_c32 f32, 0.0, 1.0; on_f64 on_c64 f64, 0.0, 1.0;
    on_long on_complex_long Extended, Extended::ZERO, Extended::ONE);

/// Makes an operation on each element. `None`: it is not there, or lengths differ; then some may have been made.
pub(crate) fn apply(
    datatype: Datatype,
    op: Operation,
    target: &mut [u8],
    operand: &[u8],
    compare: &[u8],
) -> Option<()> {
    let element = match datatype {
        Datatype::I8 => on_i8,
        Datatype::U8 => on_u8,
        Datatype::I16 => on_i16,
        Datatype::U16 => on_u16,
        Datatype::I32 => on_i32,
        Datatype::U32 => on_u32,
        Datatype::I64 => on_i64,
        Datatype::U64 => on_u64,
        Datatype::F32 => on_f32,
        Datatype::F64 => on_f64,
        Datatype::ComplexF32 => on_c32,
        Datatype::ComplexF64 => on_c64,
        Datatype::LongDouble => on_long,
        Datatype::ComplexLongDouble => on_complex_long,
        Datatype::I128 => on_i128,
        Datatype::U128 => on_u128,
    };
    let size = datatype.size();
    if target.len() != operand.len() || target.len() != compare.len() {
        return None;
    }
    let others = operand.chunks_exact(size).zip(compare.chunks_exact(size));
    target
        .chunks_exact_mut(size)
        .zip(others)
        .try_for_each(|(old, (new, with))| element(op, old, new, with))
}

/// A request, as it travels: numbers, and then operands and what is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) datatype: Datatype,
    pub(crate) op: Operation,
    pub(crate) form: Form,
    /// Bytes of the operand.
    pub(crate) len: u32,
}

impl Request {
    /// Bytes before the operand.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[..8].copy_from_slice(&self.key.to_le_bytes());
        b[8..16].copy_from_slice(&self.offset.to_le_bytes());
        b[16..19].copy_from_slice(&[self.datatype as u8, self.op as u8, self.form as u8]);
        b[20..].copy_from_slice(&self.len.to_le_bytes());
        b
    }

    /// The request, its operand, and what it compares with; `None` if it makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        let long = |at: usize| head[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let len = u32::from_le_bytes(*head[20..].first_chunk()?);
        let form = match head[18] {
            0 => Form::Plain,
            1 => Form::Fetch,
            2 => Form::Compare,
            _ => return None,
        };
        let request = Self {
            key: long(0)?,
            offset: long(8)?,
            datatype: Datatype::of(head[16].into())?,
            op: Operation::of(head[17].into())?,
            form,
            len,
        };
        let (operand, compare) = rest.split_at_checked(len as usize)?;
        let compared = if form == Form::Compare { len } else { 0 };
        let whole = (len as usize).is_multiple_of(request.datatype.size());
        let valid = request.op.is_valid(request.datatype, form) && whole;
        (valid && compare.len() == compared as usize).then_some((request, operand, compare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_those_of_the_manual() {
        let on = |op, old: i32, new: i32, with: i32| {
            let mut bytes = old.to_ne_bytes();
            let (new, with) = (new.to_ne_bytes(), with.to_ne_bytes());
            apply(Datatype::I32, op, &mut bytes, &new, &with).unwrap();
            i32::from_ne_bytes(bytes)
        };
        for (op, old, new, with, due) in [
            (Operation::Min, 5, -3, 0, -3),
            (Operation::Max, 5, -3, 0, 5),
            (Operation::Sum, i32::MAX, 1, 0, i32::MIN),
            (Operation::Product, 6, 7, 0, 42),
            (Operation::LogicalOr, 0, 9, 0, 1),
            (Operation::LogicalAnd, 4, 0, 0, 0),
            (Operation::LogicalXor, 4, 9, 0, 0),
            (Operation::BitOr, 5, 2, 0, 7),
            (Operation::BitAnd, 6, 3, 0, 2),
            (Operation::BitXor, 6, 3, 0, 5),
            (Operation::Read, 6, 3, 0, 6),
            (Operation::Write, 6, 3, 0, 3),
            (Operation::SwapIfEqual, 6, 3, 6, 3),
            (Operation::SwapIfEqual, 6, 3, 5, 6),
            (Operation::SwapIfNotEqual, 6, 3, 5, 3),
            (Operation::SwapIfLessOrEqual, 6, 3, 6, 3),
            (Operation::SwapIfLess, 6, 3, 6, 6),
            (Operation::SwapIfGreaterOrEqual, 6, 3, 7, 3),
            (Operation::SwapIfGreater, 6, 3, 6, 6),
            (Operation::SwapMasked, 0b1100, 0b1010, 0b0110, 0b1010),
        ] {
            assert_eq!(on(op, old, new, with), due, "{op:?}");
        }
        let (mut c, d) = (
            [1.0f64, 2.0].map(f64::to_ne_bytes).concat(),
            [3.0f64, -1.0].map(f64::to_ne_bytes).concat(),
        );
        let op = Operation::Product;
        apply(Datatype::ComplexF64, op, &mut c, &d, &[0; 16]).unwrap();
        assert_eq!(c, [5.0f64, 5.0].map(f64::to_ne_bytes).concat());
    }

    #[test]
    fn every_valid_operation_is_there_and_no_other_is_asked_for() {
        let mut valid = 0;
        for datatype in Datatype::ALL {
            for op in Operation::ALL {
                for form in [Form::Plain, Form::Fetch, Form::Compare] {
                    if !op.is_valid(datatype, form) {
                        continue;
                    }
                    valid += 1;
                    let mut target = vec![0; 3 * datatype.size()];
                    let other = target.clone();
                    assert_eq!(apply(datatype, op, &mut target, &other, &other), Some(()));
                }
            }
        }
        // Of 10 integers 11, 12 and 7; of 3 floats 8, 9 and 6; of 3 complex ones 6, 7 and 2.
        assert_eq!(valid, 10 * 30 + 3 * 23 + 3 * 15);
        assert!(
            apply(
                Datatype::F32,
                Operation::BitOr,
                &mut [0; 4],
                &[0; 4],
                &[0; 4]
            )
            .is_none()
        );
    }

    #[test]
    fn requests_travel_and_nonsense_is_none() {
        let request = Request {
            key: 7,
            offset: 1 << 40,
            datatype: Datatype::U16,
            op: Operation::SwapIfEqual,
            form: Form::Compare,
            len: 4,
        };
        let mut bytes = request.encode().to_vec();
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            Request::decode(&bytes),
            Some((request, &[1, 2, 3, 4][..], &[5, 6, 7, 8][..]))
        );
        for (at, value) in [(16, 16), (17, 19), (18, 3), (18, 0), (20, 3), (23, 1)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(Request::decode(&wrong), None, "{at}");
        }
        assert_eq!(Request::decode(&bytes[..23]), None);
    }
}
