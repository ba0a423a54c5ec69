//! Arrays and linked lists.

use super::{WORD_BYTES, Xdr, XdrError, XdrReader, XdrWriter};

/// The limit of an array `T<>`, which has none of its own: the input's size bounds it.
pub const UNBOUNDED: usize = u32::MAX as usize;

/// `T<MAX>`: a count and so many elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdrList<T, const MAX: usize = UNBOUNDED>(Vec<T>);

impl<T, const MAX: usize> XdrList<T, MAX> {
    /// The elements, if there are not too many.
    ///
    /// # Errors
    /// [`XdrError::TooMany`].
    pub fn new(all: Vec<T>) -> Result<Self, XdrError> {
        match all.len() {
            count if count > MAX => Err(XdrError::TooMany { count, most: MAX }),
            _ => Ok(XdrList(all)),
        }
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// The elements, without a copy.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: usize> Default for XdrList<T, MAX> {
    fn default() -> Self {
        XdrList(Vec::new())
    }
}

impl<T: Xdr, const MAX: usize> Xdr for XdrList<T, MAX> {
    const LEAST_BYTES: usize = WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        to.u32(self.0.len() as u32);
        self.0.iter().for_each(|one| one.put(to));
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        // So the list takes no more memory than the input has.
        const { assert!(size_of::<T>() <= T::LEAST_BYTES) };
        let count = from.count(MAX, T::LEAST_BYTES)?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(T::get(from)?);
        }
        Ok(XdrList(all))
    }
}

/// A linked list: before each element a word 1, and behind the last one a word 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdrChain<T>(pub Vec<T>);

impl<T: Xdr> Xdr for XdrChain<T> {
    const LEAST_BYTES: usize = WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        for one in &self.0 {
            true.put(to);
            one.put(to);
        }
        false.put(to);
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        const { assert!(size_of::<T>() <= T::LEAST_BYTES) };
        let mut all = Vec::new();
        while bool::get(from)? {
            all.push(T::get(from)?);
        }
        Ok(XdrChain(all))
    }
}

/// `T[N]`: N elements.
impl<T: Xdr + Copy + Default, const N: usize> Xdr for [T; N] {
    const LEAST_BYTES: usize = N * T::LEAST_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        self.iter().for_each(|one| one.put(to));
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::get(from)?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod drawn {
    use super::{XdrChain, XdrList};
    use crate::sample::{Sample, Sampler};

    impl<T: Sample, const MAX: usize> Sample for XdrList<T, MAX> {
        fn sample(from: &mut Sampler<'_>) -> Self {
            let count = usize::from(u8::sample(from)) % 5 % MAX.saturating_add(1);
            XdrList((0..count).map(|_| T::sample(from)).collect())
        }
    }

    impl<T: Sample> Sample for XdrChain<T> {
        fn sample(from: &mut Sampler<'_>) -> Self {
            let count = usize::from(u8::sample(from)) % 4;
            XdrChain((0..count).map(|_| T::sample(from)).collect())
        }
    }
}
