//! Random numbers without state: each is a function of a seed, a stream and a counter.

/// The finaliser of splitmix64 (public domain): every bit of the result depends on every bit.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The golden ratio in 64 bits.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// 64 random bits of `stream` under `seed`: those of number `counter`.
pub(crate) const fn draw(seed: u64, stream: u64, counter: u64) -> u64 {
    let start = mix(seed.wrapping_add(mix(stream.wrapping_add(STEP))));
    mix(start.wrapping_add(counter.wrapping_mul(STEP)))
}

/// What a [`draw`] is below with the probability `part / whole`; saturates at one.
pub(crate) fn threshold(part: u128, whole: u64) -> u64 {
    u64::try_from((part << 64) / u128::from(whole)).unwrap_or(u64::MAX)
}

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// The sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `n`, which is not zero; the bias is below `n / 2^64`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}
