//! Values drawn from bytes that the property tests choose.
//!
//! Model: a [`Sampler`] hands out the bytes in order, and zeros behind their end. So shorter bytes
//! give simpler values, and a failing test shrinks as its bytes do.

/// Hands out bytes.
pub(crate) struct Sampler<'a> {
    rest: &'a [u8],
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Sampler { rest: bytes }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }
}

/// A type of which values can be drawn.
pub(crate) trait Sample: Sized {
    fn sample(from: &mut Sampler<'_>) -> Self;
}

/// The messages of a service, of which one of a given procedure can be drawn.
pub(crate) trait SampleMessage: Sized {
    fn sample_of(procedure: u32, from: &mut Sampler<'_>) -> Self;
}

macro_rules! numbers {
    ($($kind:ident)*) => {$(
        impl Sample for $kind {
            fn sample(from: &mut Sampler<'_>) -> Self {
                $kind::from_be_bytes(std::array::from_fn(|_| from.byte()))
            }
        }
    )*};
}

numbers! { u8 i8 u16 i16 u32 i32 u64 i64 }

impl Sample for bool {
    fn sample(from: &mut Sampler<'_>) -> Self {
        from.byte() % 2 == 1
    }
}

impl<T: Sample> Sample for Box<T> {
    fn sample(from: &mut Sampler<'_>) -> Self {
        Box::new(T::sample(from))
    }
}

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn sample(from: &mut Sampler<'_>) -> Self {
        std::array::from_fn(|_| T::sample(from))
    }
}
