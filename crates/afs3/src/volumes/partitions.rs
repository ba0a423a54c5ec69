//! Partitions by AFS's numbers and names: `/vicepa` is 0, `/vicepaa` is 26.

/// The first number that no partition has.
const PARTITIONS: i32 = 256;
const LETTERS: i32 = 26;

/// The number of a partition; `None`: AFS has no such name.
pub fn partition_number(name: &str) -> Option<i32> {
    let letters = name.trim_start_matches('/').strip_prefix("vicep")?;
    let number = match letters.as_bytes() {
        [one @ b'a'..=b'z'] => i32::from(one - b'a'),
        [tens @ b'a'..=b'z', one @ b'a'..=b'z'] => {
            LETTERS + i32::from(tens - b'a') * LETTERS + i32::from(one - b'a')
        }
        _ => return None,
    };
    (number < PARTITIONS).then_some(number)
}

/// The name of a partition; `None`: there is no such number.
pub fn partition_name(number: i32) -> Option<String> {
    let letter = |number: i32| char::from(b'a' + (number % LETTERS) as u8);
    match number {
        0..LETTERS => Some(format!("/vicep{}", letter(number))),
        LETTERS..PARTITIONS => {
            let rest = number - LETTERS;
            Some(format!("/vicep{}{}", letter(rest / LETTERS), letter(rest)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_partitions_are_each_others() {
        for (name, number) in
            [("/vicepa", 0), ("/vicepz", 25), ("/vicepaa", 26), ("/vicepba", 52), ("/vicepiv", 255)]
        {
            assert_eq!(
                (partition_number(name), partition_name(number).as_deref()),
                (Some(number), Some(name))
            );
        }
        for number in 0..PARTITIONS {
            assert_eq!(partition_number(&partition_name(number).unwrap()), Some(number));
        }
        for odd in ["/vicep", "/data", "vicepA", "/vicepaaa", "/vicepiw"] {
            assert_eq!(partition_number(odd), None, "{odd}");
        }
        assert_eq!((partition_name(-1), partition_name(PARTITIONS)), (None, None));
    }
}
