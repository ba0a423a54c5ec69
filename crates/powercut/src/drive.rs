//! A drive with a volatile cache.
//!
//! Model. A write is *taken* when it arrives, is visible to all later reads, and is then
//! *answered*. A flush covers the writes that were answered when it arrived, as the block layer
//! defines it; when the flush is answered they are on the medium. All other writes are in the
//! cache. Without power the drive takes no command and answers every one with an error. The command
//! that the cut meets is in the cache as well: the drive may have written some of it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::io::Errno;

use crate::{DriveImage, loss};

/// How the drive handles a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// The covered writes are on the medium before the answer.
    Obeyed,
    /// The drive answers and does nothing else. This shows that a test would notice.
    Ignored,
}

/// A drive. Thread-safe.
pub struct Drive {
    flushes: Flushes,
    state: Mutex<State>,
    off: Condvar,
}

/// The moment of the power cut. The command that it meets is not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At the write or flush with this number from now on, the next being 1.
    AtCommand(u64),
    /// At the flush with this number from now on.
    AtFlush(u64),
}

impl Cut {
    /// The cut that remains after a command; `None`: the power goes now.
    fn after(self, is_flush: bool) -> Option<Cut> {
        match self {
            Cut::AtCommand(number) => (number > 1).then(|| Cut::AtCommand(number - 1)),
            Cut::AtFlush(number) if !is_flush => Some(Cut::AtFlush(number)),
            Cut::AtFlush(number) => (number > 1).then(|| Cut::AtFlush(number - 1)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    OnUntil(Cut),
    Off,
}

struct State {
    power: Power,
    medium: DriveImage,
    /// The bytes that reads return: the medium and the cache.
    shown: DriveImage,
    cache: Vec<Write>,
    commands: u64,
    flushes: u64,
}

struct Write {
    number: u64,
    offset: u64,
    data: Vec<u8>,
    is_answered: bool,
}

impl Drive {
    /// A drive with power whose medium holds `image`.
    pub fn new(image: DriveImage, flushes: Flushes) -> Drive {
        let state = State {
            power: Power::On,
            shown: image.clone(),
            medium: image,
            cache: Vec::new(),
            commands: 0,
            flushes: 0,
        };
        Drive { flushes, state: Mutex::new(state), off: Condvar::new() }
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.state.lock().power = Power::Off;
        self.off.notify_all();
    }

    /// Plans a power cut, if the power is still on.
    pub fn cut_later(&self, cut: Cut) {
        let mut state = self.state.lock();
        if state.power != Power::Off {
            state.power = Power::OnUntil(cut);
        }
    }

    /// Waits until the power is off, at most this long; returns whether it is.
    pub fn wait_off(&self, most: Duration) -> bool {
        let mut state = self.state.lock();
        let is_on = |state: &mut State| state.power != Power::Off;
        !self.off.wait_while_for(&mut state, is_on, most).timed_out()
    }

    /// Number of writes and flushes that the drive took.
    pub fn commands(&self) -> u64 {
        self.state.lock().commands
    }

    /// Number of flushes that the drive answered.
    pub fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }

    /// Number of writes that no completed flush covers.
    pub fn unflushed(&self) -> usize {
        self.state.lock().cache.len()
    }

    /// One of the images that the medium may hold after a loss of power now; `seed` chooses.
    pub fn after_loss(&self, seed: u64) -> DriveImage {
        let state = self.state.lock();
        let mut image = state.medium.clone();
        let writes: Vec<_> =
            state.cache.iter().map(|write| (write.offset, &write.data[..])).collect();
        loss::choose(&writes, &mut SmallRng::seed_from_u64(seed), |offset, data| {
            image.write(offset, data);
        });
        image
    }

    /// The image of the medium after a shutdown: all of the cache is written.
    pub fn after_stop(&self) -> DriveImage {
        self.state.lock().shown.clone()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().shown.bytes()
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let state = self.state.lock();
        if state.power == Power::Off {
            return Err(Errno::IO);
        }
        let mut data = vec![0; length];
        state.shown.read(offset, &mut data);
        Ok(data)
    }

    /// Takes a write; returns the number for [`Drive::answer`].
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<u64, Errno> {
        let mut state = self.state.lock();
        if state.power == Power::Off {
            return Err(Errno::IO);
        }
        let number = state.commands;
        state.shown.write(offset, data);
        state.cache.push(Write { number, offset, data: data.to_vec(), is_answered: false });
        self.arrived(&mut state, false).map(|()| number)
    }

    /// The caller will send the write's answer next.
    pub(crate) fn answer(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(write) = state.cache.iter_mut().rev().find(|write| write.number == number) {
            write.is_answered = true;
        }
    }

    /// Takes a flush and completes it.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.power == Power::Off {
            return Err(Errno::IO);
        }
        self.arrived(&mut state, true)?;
        state.flushes += 1;
        if self.flushes == Flushes::Obeyed {
            let State { medium, cache, .. } = &mut *state;
            cache.retain(|write| {
                if write.is_answered {
                    medium.write(write.offset, &write.data);
                }
                !write.is_answered
            });
        }
        Ok(())
    }

    /// Counts a command; returns an error if the power went before it was completed.
    fn arrived(&self, state: &mut State, is_flush: bool) -> Result<(), Errno> {
        state.commands += 1;
        if let Power::OnUntil(cut) = state.power {
            state.power = cut.after(is_flush).map_or(Power::Off, Power::OnUntil);
        }
        if state.power != Power::Off {
            return Ok(());
        }
        self.off.notify_all();
        Err(Errno::IO)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    fn first_byte(image: &DriveImage) -> u8 {
        let mut byte = [0];
        image.read(0, &mut byte);
        byte[0]
    }

    fn outcomes(drive: &Drive) -> BTreeSet<u8> {
        (0..200).map(|seed| first_byte(&drive.after_loss(seed))).collect()
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it() {
        let drive = Drive::new(DriveImage::new(8192), Flushes::Obeyed);
        let first = drive.write(0, &[1; 512]).unwrap();
        drive.flush().unwrap();
        assert_eq!(outcomes(&drive), BTreeSet::from([0, 1]), "it was not answered yet");
        drive.answer(first);
        drive.flush().unwrap();
        assert_eq!(outcomes(&drive), BTreeSet::from([1]));
        let second = drive.write(0, &[2; 512]).unwrap();
        drive.answer(second);
        assert_eq!(drive.read(0, 1).unwrap(), [2]);
        assert_eq!(outcomes(&drive), BTreeSet::from([1, 2]));
        assert_eq!(first_byte(&drive.after_stop()), 2);
    }

    #[test]
    fn a_drive_that_ignores_flushes_may_lose_all() {
        let drive = Drive::new(DriveImage::new(8192), Flushes::Ignored);
        let number = drive.write(0, &[1; 512]).unwrap();
        drive.answer(number);
        drive.flush().unwrap();
        assert_eq!(outcomes(&drive), BTreeSet::from([0, 1]));
    }

    #[test]
    fn after_the_cut_nothing_is_taken() {
        let drive = Drive::new(DriveImage::new(8192), Flushes::Obeyed);
        drive.cut_later(Cut::AtCommand(2));
        let number = drive.write(0, &[1; 512]).unwrap();
        drive.answer(number);
        assert!(!drive.wait_off(Duration::ZERO));
        assert_eq!(drive.flush(), Err(Errno::IO), "the power goes while it is under way");
        assert!(drive.wait_off(Duration::ZERO));
        assert_eq!(drive.write(0, &[2; 512]), Err(Errno::IO));
        assert_eq!(drive.read(0, 1), Err(Errno::IO));
        assert_eq!(outcomes(&drive), BTreeSet::from([0, 1]));
    }

    #[test]
    fn a_cut_at_a_flush_lets_writes_pass() {
        let drive = Drive::new(DriveImage::new(8192), Flushes::Obeyed);
        drive.cut_later(Cut::AtFlush(2));
        drive.flush().unwrap();
        for number in 0..9 {
            drive.write(number * 512, &[1; 512]).unwrap();
        }
        assert_eq!((drive.flush(), drive.unflushed()), (Err(Errno::IO), 9));
    }

    #[test]
    fn the_write_that_the_cut_meets_may_be_there() {
        let drive = Drive::new(DriveImage::new(8192), Flushes::Obeyed);
        drive.cut_later(Cut::AtCommand(1));
        assert_eq!(drive.write(0, &[1; 512]), Err(Errno::IO));
        assert_eq!(outcomes(&drive), BTreeSet::from([0, 1]));
    }
}
