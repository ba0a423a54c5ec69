//! The numbers under which AFS's clients see partitions.

use afs3::volumes::partition_number;

/// The number under which a partition is shown: one with a name that AFS does not have is 0, too,
/// since every place must have a number.
pub(crate) fn shown_number(name: &str) -> i32 {
    partition_number(name).unwrap_or(0)
}

/// The partition that a number means: that of its name, or one that is shown under it.
pub(crate) fn numbered<T>(all: Vec<T>, name: impl Fn(&T) -> &str, number: i32) -> Option<T> {
    let has_it = |one: &T| partition_number(name(one)) == Some(number);
    let at = all.iter().position(has_it);
    let at = at.or_else(|| all.iter().position(|one| shown_number(name(one)) == number));
    all.into_iter().nth(at?)
}
