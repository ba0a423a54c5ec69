//! Levels of protection of rxkad.

/// How data packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RxkadLevel {
    /// Only a checksum of the packet's place.
    Clear = 0,
    /// The length, and the first bytes of data, are encrypted.
    Auth = 1,
    /// Everything is encrypted.
    Crypt = 2,
}

impl RxkadLevel {
    /// The level with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(RxkadLevel::Clear),
            1 => Some(RxkadLevel::Auth),
            2 => Some(RxkadLevel::Crypt),
            _ => None,
        }
    }
}
