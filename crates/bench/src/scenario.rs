//! The scenarios: their names, units, and initial caches. Their actions are in `work`.

use super::State;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes moved, in millions, a second.
    Megabytes,
    /// Operations a second, with the name of the operation.
    Rate(&'static str),
    /// Seconds for all of it.
    Seconds,
    /// Growth of the client's memory in bytes, per operation.
    Memory,
}

impl Unit {
    /// The unit as it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Megabytes => "MB/s",
            Unit::Rate(name) => name,
            Unit::Seconds => "s",
            Unit::Memory => "B/inode",
        }
    }

    /// Which figure is better: `higher` or `lower`.
    pub const fn better(self) -> &'static str {
        match self {
            Unit::Megabytes | Unit::Rate(_) => "higher",
            Unit::Seconds | Unit::Memory => "lower",
        }
    }

    /// The unit of costs: a GiB, or one operation.
    pub const fn per(self) -> &'static str {
        match self {
            Unit::Megabytes => "GiB",
            Unit::Rate(_) | Unit::Seconds | Unit::Memory => "op",
        }
    }
}

/// The forms of a measurement that include a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every form.
    Usual,
    /// Only the long one: it works on a million files.
    Long,
    /// None: it runs when it is named. It works on several million files.
    Named,
}

/// From where the first side is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredFrom {
    /// Mounted over the Unix socket, with all local optimizations.
    Local,
    /// Mounted over TCP, as from another machine.
    Remote,
}

macro_rules! scenarios {
    ($($variant:ident, $name:literal, $unit:expr, $state:ident, $form:ident, $about:literal;)*) => {
        /// One thing to measure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Scenario { $(#[doc = $about] #[value(name = $name)] $variant,)* }

        impl Scenario {
            /// All of them, in the order in which they run.
            pub const ALL: [Scenario; [$($name),*].len()] = [$(Scenario::$variant),*];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Scenario::$variant => $name),* }
            }

            /// The unit of its figures.
            pub const fn unit(self) -> Unit {
                match self { $(Scenario::$variant => $unit),* }
            }

            /// The state of the caches at its start.
            pub(crate) const fn state(self) -> State {
                match self { $(Scenario::$variant => State::$state),* }
            }

            /// The forms that include it.
            pub const fn form(self) -> Form {
                match self { $(Scenario::$variant => Form::$form),* }
            }

            /// Its description, for people.
            pub const fn about(self) -> &'static str {
                match self { $(Scenario::$variant => $about),* }
            }
        }
    };
}

scenarios! {
    SeqWrite, "seq-write", Unit::Megabytes, Warm, Usual, "write a large file in 1 MiB pieces, and \
        close it";
    SeqWriteFsync, "seq-write-fsync", Unit::Megabytes, Warm, Usual, "the same with fsync before \
        the close";
    SeqReadWarm, "seq-read-warm", Unit::Megabytes, Warm, Usual, "read a large file that was read \
        twice before";
    SeqReadCold, "seq-read-cold", Unit::Megabytes, Cold, Usual, "read a large file that nobody \
        has in memory";
    MmapReadWarm, "mmap-read-warm", Unit::Megabytes, Warm, Usual, "copy a large file that was \
        read twice out of a memory map";
    RandReadWarm, "rand-read-warm", Unit::Rate("ops/s"), Warm, Usual,
        "read 4 KiB at random places of such a file";
    RemoteSeqRead, "remote-seq-read", Unit::Megabytes, Cold, Usual,
        "read a large file over TCP, nothing in memory or in the disk cache";
    RemoteSeqReadFirst, "remote-seq-read-first", Unit::Megabytes, First, Usual,
        "the same with the file in the server's memory: no disk, as for a bare stream";
    RemoteReadWarm, "remote-read-warm", Unit::Megabytes, Warm, Usual,
        "read a large file of another machine that was read twice before, and so is in the disk \
            cache";
    RemoteMmapWarm, "remote-mmap-warm", Unit::Megabytes, Warm, Usual, "copy such a file out of a \
        memory map";
    RemoteRandWarm, "remote-rand-warm", Unit::Rate("ops/s"), Warm, Usual,
        "read 4 KiB at random places of such a file";
    RemoteSeqWrite, "remote-seq-write", Unit::Megabytes, Warm, Usual, "write a large file over \
        TCP, and fsync";
    Create4k, "create-4k", Unit::Rate("files/s"), Warm, Usual, "create files, write 4 KiB, close";
    Create5000, "create-5000", Unit::Rate("files/s"), Warm, Usual, "the same with 5,000 files in \
        one directory";
    CreateDurable, "create-durable", Unit::Seconds, Warm, Usual,
        "the same with 10,000 files, and fsync of their directory in the end";
    StatWarm, "stat-warm", Unit::Rate("ops/s"), Warm, Usual, "stat files whose attributes are \
        known";
    StatAbsent, "stat-absent", Unit::Rate("ops/s"), Warm, Usual, "stat names that are not there, \
        just asked for";
    StatFirst, "stat-first", Unit::Rate("ops/s"), First, Usual, "stat files for the first time \
        since mounting";
    ListCold, "list-cold", Unit::Rate("entries/s"), Cold, Usual,
        "list a large directory and stat each entry, nothing in memory";
    List100k, "list-100k", Unit::Seconds, Cold, Usual, "ls -l of 100,000 entries, nothing in \
        memory";
    ReadSmallWarm, "read-small-warm", Unit::Rate("files/s"), Warm, Usual,
        "open, read and close 4 KiB files that were just read";
    ReadSmallFirst, "read-small-first", Unit::Rate("files/s"), First, Usual, "the same for the \
        first time since mounting";
    ReadSmallCold, "read-small-cold", Unit::Rate("files/s"), Cold, Usual, "the same with nothing \
        in memory";
    Unlink, "unlink", Unit::Rate("files/s"), Warm, Usual, "remove 4 KiB files";
    Unpack, "unpack", Unit::Rate("files/s"), Warm, Usual, "unpack an archive of a source tree \
        with tar";
    DuCold, "du-cold", Unit::Seconds, Cold, Usual, "du -s of that tree, nothing in memory";
    DuWarm, "du-warm", Unit::Seconds, Warm, Usual, "the same a second time";
    GrepCold, "grep-cold", Unit::Seconds, Cold, Usual, "grep -r through that tree, nothing in \
        memory";
    GrepWarm, "grep-warm", Unit::Seconds, Warm, Usual, "the same a second time";
    RemoveTree, "remove-tree", Unit::Rate("files/s"), Warm, Usual, "remove such a tree";
    MemoryInode, "memory-inode", Unit::Memory, First, Usual,
        "growth of the mount's memory for each of 100,000 files that are listed and stat'ed";
    List1m, "list-1m", Unit::Seconds, Cold, Long, "ls -l of 1,000,000 entries, nothing in memory";
    Restart1m, "restart-1m", Unit::Seconds, Warm, Long,
        "a server with 1,000,000 files that was killed: from its start to its first reply";
    Memory5m, "memory-5m", Unit::Memory, First, Named,
        "memory-inode with 5,000,000 files in 500 directories: far more than the mount's memory \
            budget holds";
}

impl Scenario {
    /// From where the first side is measured.
    pub const fn place(self) -> MeasuredFrom {
        match self {
            Scenario::RemoteSeqRead
            | Scenario::RemoteSeqReadFirst
            | Scenario::RemoteReadWarm
            | Scenario::RemoteMmapWarm
            | Scenario::RemoteRandWarm
            | Scenario::RemoteSeqWrite => MeasuredFrom::Remote,
            _ => MeasuredFrom::Local,
        }
    }

    /// Count of empty files that it needs, if any.
    pub const fn empty_files(self) -> Option<usize> {
        match self {
            Scenario::List100k | Scenario::MemoryInode => Some(100_000),
            Scenario::List1m | Scenario::Restart1m => Some(1_000_000),
            Scenario::Memory5m => Some(5_000_000),
            _ => None,
        }
    }

    /// Directories that the empty files are in.
    pub const fn empty_directories(self) -> usize {
        match self {
            Scenario::Memory5m => 500,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_say_their_size() {
        for (index, scenario) in Scenario::ALL.into_iter().enumerate() {
            assert!(
                Scenario::ALL
                    .into_iter()
                    .skip(index + 1)
                    .all(|other| other.name() != scenario.name())
            );
        }
        for scenario in Scenario::ALL {
            let form = match scenario.empty_files() {
                Some(5_000_000) => Form::Named,
                Some(1_000_000) => Form::Long,
                _ => Form::Usual,
            };
            assert_eq!(scenario.form(), form, "{}", scenario.name());
        }
    }

    #[test]
    fn less_time_and_memory_are_better_and_higher_rates() {
        assert_eq!(
            (Scenario::Unpack.unit().better(), Scenario::Unpack.unit().per()),
            ("higher", "op")
        );
        assert_eq!(
            (Scenario::SeqWrite.unit().better(), Scenario::SeqWrite.unit().per()),
            ("higher", "GiB")
        );
        assert_eq!(Scenario::DuCold.unit().better(), "lower");
        assert_eq!(Scenario::MemoryInode.unit().better(), "lower");
    }
}
