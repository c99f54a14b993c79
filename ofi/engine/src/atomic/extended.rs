//! C's `long double` of x86-64: the 80-bit extended format of the x87, for which Rust has no type.
//!
//! A value is `significand * 2^(exponent - 16383 - 63)`. The significand has its leading one; without it the value is subnormal, and its
//! exponent is 0, which counts as 1. Results are rounded to the nearest value, of two to the even one, as the x87 does unless told.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Neg, Sub};

const BIAS: i32 = 16_383;
/// The exponent of infinities and of what is not a number.
const SPECIAL: u16 = 0x7fff;
/// The leading one of a significand.
const LEADING: u64 = 1 << 63;
/// What tells a quiet NaN from one that signals.
const QUIET: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
pub(super) struct Extended {
    negative: bool,
    exponent: u16,
    significand: u64,
}

impl Extended {
    pub(super) const ZERO: Self = Self::new(false, 0, 0);
    pub(super) const ONE: Self = Self::new(false, BIAS as u16, LEADING);
    /// What the x87 makes of an operation that has no result.
    const INDEFINITE: Self = Self::new(true, SPECIAL, LEADING | QUIET);

    const fn new(negative: bool, exponent: u16, significand: u64) -> Self {
        Self {
            negative,
            exponent,
            significand,
        }
    }

    const fn infinity(negative: bool) -> Self {
        Self::new(negative, SPECIAL, LEADING)
    }

    /// Of the 16 bytes that C gives it the last six mean nothing.
    pub(super) fn from_ne_bytes(bytes: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        let head = (bits >> 64) as u16;
        Self::new(head >> 15 == 1, head & SPECIAL, bits as u64)
    }

    pub(super) fn to_ne_bytes(self) -> [u8; 16] {
        let head = u16::from(self.negative) << 15 | self.exponent;
        (u128::from(head) << 64 | u128::from(self.significand)).to_le_bytes()
    }

    /// Encodings without the leading one where it must be count as such, as on the x87.
    const fn is_nan(self) -> bool {
        let leads = self.significand & LEADING != 0;
        let fraction = self.significand & !LEADING != 0;
        self.exponent != 0 && !leads || self.exponent == SPECIAL && fraction
    }

    const fn is_infinite(self) -> bool {
        self.exponent == SPECIAL && self.significand == LEADING
    }

    const fn is_zero(self) -> bool {
        self.exponent == 0 && self.significand == 0
    }

    /// The exponent that the significand is multiplied with.
    fn scale(self) -> i32 {
        i32::from(self.exponent.max(1))
    }

    /// What an operation with something that is not a number makes; `None` if both are numbers.
    fn nan(self, other: Self) -> Option<Self> {
        let nan = [self, other].into_iter().find(|value| value.is_nan())?;
        let significand = nan.significand | LEADING | QUIET;
        Some(Self::new(nan.negative, SPECIAL, significand))
    }

    /// The value nearest to `bits * 2^(scale - BIAS - 63)`; of bits that were lost the lowest one tells.
    fn round(negative: bool, bits: u128, scale: i32) -> Self {
        let Some(top) = bits.checked_ilog2() else {
            return Self::new(negative, 0, 0);
        };
        let mut shift = top as i32 - 63;
        let mut scale = scale + shift;
        if scale < 1 {
            (shift, scale) = (shift + 1 - scale, 1);
        }
        let Ok(down) = u32::try_from(shift) else {
            // Fewer bits than there is room for.
            let significand = (bits << shift.unsigned_abs()) as u64;
            return Self::encoded(negative, scale, significand);
        };
        let kept = bits.checked_shr(down).unwrap_or(0);
        let rest = bits - kept.checked_shl(down).unwrap_or(0);
        let half = 1u128.checked_shl(down.wrapping_sub(1)).unwrap_or(u128::MAX);
        let up = down > 0 && (rest > half || (rest == half && kept & 1 == 1));
        match u64::try_from(kept + u128::from(up)) {
            Ok(significand) => Self::encoded(negative, scale, significand),
            Err(_) => Self::encoded(negative, scale + 1, LEADING),
        }
    }

    fn encoded(negative: bool, scale: i32, significand: u64) -> Self {
        match u16::try_from(scale) {
            _ if significand & LEADING == 0 => Self::new(negative, 0, significand),
            Ok(exponent) if exponent < SPECIAL => Self::new(negative, exponent, significand),
            _ => Self::infinity(negative),
        }
    }

    /// By amount alone, of numbers.
    fn compare_amounts(self, other: Self) -> Ordering {
        let amount = |value: Self| (value.scale(), value.significand);
        amount(self).cmp(&amount(other))
    }
}

impl PartialEq for Extended {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self.is_nan() || other.is_nan() {
            return None;
        }
        if self.is_zero() && other.is_zero() {
            return Some(Ordering::Equal);
        }
        Some(match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_amounts(*other),
            (true, true) => other.compare_amounts(*self),
        })
    }
}

impl Neg for Extended {
    type Output = Self;

    fn neg(self) -> Self {
        Self::new(!self.negative, self.exponent, self.significand)
    }
}

impl Add for Extended {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        /// Bits behind the significand, so that what is rounded off is seen.
        const MORE: u32 = 62;
        if let Some(nan) = self.nan(other) {
            return nan;
        }
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) if self.negative != other.negative => return Self::INDEFINITE,
            (true, _) => return Self::infinity(self.negative),
            (_, true) => return Self::infinity(other.negative),
            (false, false) => {}
        }
        let (large, small) = match self.compare_amounts(other) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        let away = large.scale().abs_diff(small.scale());
        let of = |value: Self| u128::from(value.significand) << MORE;
        let shifted = of(small).checked_shr(away).unwrap_or(0);
        let lost = shifted.checked_shl(away).unwrap_or(0) != of(small);
        let shifted = shifted | u128::from(lost);
        let (bits, negative) = if large.negative == small.negative {
            (of(large) + shifted, large.negative)
        } else {
            // Amounts that are equal leave a zero, which has no sign.
            let bits = of(large) - shifted;
            (bits, large.negative && bits != 0)
        };
        Self::round(negative, bits, large.scale() - MORE as i32)
    }
}

impl Sub for Extended {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        // What is not a number keeps its sign.
        self.nan(other).unwrap_or_else(|| self + -other)
    }
}

impl Mul for Extended {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        if let Some(nan) = self.nan(other) {
            return nan;
        }
        let negative = self.negative != other.negative;
        if self.is_infinite() || other.is_infinite() {
            return match self.is_zero() || other.is_zero() {
                true => Self::INDEFINITE,
                false => Self::infinity(negative),
            };
        }
        let bits = u128::from(self.significand) * u128::from(other.significand);
        Self::round(negative, bits, self.scale() + other.scale() - BIAS - 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a double, which each has exactly.
    fn of(value: f64) -> Extended {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let negative = value.is_sign_negative();
        match exponent {
            0x7ff => Extended::new(negative, SPECIAL, LEADING | fraction << 11),
            0 => Extended::round(negative, fraction.into(), 1 - 1023 + BIAS + 11),
            _ => {
                let exponent = (exponent - 1023 + BIAS) as u16;
                Extended::new(negative, exponent, LEADING | fraction << 11)
            }
        }
    }

    fn bits(value: Extended) -> (bool, u16, u64) {
        (value.negative, value.exponent, value.significand)
    }

    #[test]
    fn sums_and_products_are_those_of_doubles_where_these_are_exact() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let [a, b] = [(); 2].map(|()| f64::from(random.i32(..)) * 2f64.powi(random.i32(-9..9)));
            assert_eq!(bits(of(a) + of(b)), bits(of(a + b)), "{a} + {b}");
            assert_eq!(bits(of(a) - of(b)), bits(of(a - b)), "{a} - {b}");
            let (c, d) = (f64::from(random.i16(..)), a);
            assert_eq!(bits(of(c) * of(d)), bits(of(c * d)), "{c} * {d}");
            assert_eq!(of(a).partial_cmp(&of(b)), a.partial_cmp(&b));
        }
    }

    #[test]
    fn results_are_rounded_to_the_nearest_and_to_the_even_one() {
        let least = Extended::new(false, 0, 1);
        let ulp = Extended::new(false, BIAS as u16 - 63, LEADING);
        let half = Extended::new(false, BIAS as u16 - 64, LEADING);
        let one = |more: u64| Extended::new(false, BIAS as u16, LEADING + more);
        assert_eq!(bits(Extended::ONE + ulp), bits(one(1)));
        assert_eq!(bits(Extended::ONE + half), bits(one(0)));
        assert_eq!(bits(one(1) + half), bits(one(2)));
        assert_eq!(bits(Extended::ONE + (half + least)), bits(one(0)));
        let more = Extended::new(false, BIAS as u16 - 64, LEADING + 1);
        assert_eq!(bits(Extended::ONE + more), bits(one(1)));
        let all = Extended::new(false, BIAS as u16, u64::MAX);
        let two = Extended::new(false, BIAS as u16 + 1, LEADING);
        assert_eq!(bits(all + half), bits(two));
        assert_eq!(bits(one(1) * one(1)), bits(one(2)));
    }

    #[test]
    fn the_ends_of_the_range_are_reached() {
        let largest = Extended::new(false, SPECIAL - 1, u64::MAX);
        let (least, normal) = (Extended::new(false, 0, 1), Extended::new(false, 1, LEADING));
        assert_eq!(bits(largest + largest), bits(Extended::infinity(false)));
        assert_eq!(bits(-largest * largest), bits(Extended::infinity(true)));
        assert_eq!(bits(least * least), (false, 0, 0));
        assert_eq!(bits(normal - least), (false, 0, LEADING - 1));
        assert_eq!(bits((normal - least) + least), bits(normal));
        let half = Extended::new(false, BIAS as u16 - 1, LEADING);
        assert_eq!(bits(normal * half), (false, 0, LEADING / 2));
        assert_eq!(bits(least * half), (false, 0, 0));
        assert_eq!(bits(Extended::new(false, 0, 3) * half), (false, 0, 2));
    }

    #[test]
    fn what_is_no_number_is_so_and_equals_nothing() {
        let (infinity, zero) = (Extended::infinity(false), Extended::ZERO);
        for nan in [
            infinity - infinity,
            infinity * zero,
            Extended::new(false, SPECIAL, LEADING | 1) + Extended::ONE,
            // No leading one.
            Extended::new(false, BIAS as u16, 1) * Extended::ONE,
        ] {
            assert!(nan.is_nan() && nan != nan && nan.significand & QUIET != 0);
            assert_eq!(nan.partial_cmp(&zero), None);
        }
        assert!(zero == -zero && -infinity < infinity && -infinity == -infinity);
        assert_eq!(bits(-zero + -zero), bits(-zero));
        assert_eq!(bits(-Extended::ONE + Extended::ONE), bits(zero));
    }

    #[test]
    fn bytes_are_those_of_the_processor() {
        let mut bytes = [0; 16];
        bytes[7..10].copy_from_slice(&[0x80, 0xff, 0xbf]);
        assert_eq!(bits(Extended::from_ne_bytes(bytes)), bits(-Extended::ONE));
        assert_eq!((-Extended::ONE).to_ne_bytes(), bytes);
        bytes[10..].fill(0xff);
        assert_eq!(bits(Extended::from_ne_bytes(bytes)), bits(-Extended::ONE));
    }
}
