//! Decodes a request of the kernel once: afterwards every field is present and every name ends.
//!
//! The kernel is trusted not to attack, but a wrong assumption about its layouts must end in a
//! refused request, never in a panic or a wild read; so decoding is bounded by the bytes at hand
//! and uses no unchecked length.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, opcode};

/// The reason why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the operation needs.
    #[error("request is cut short")]
    Short,
    /// The header's length differs from the bytes read.
    #[error("a request declares {says} bytes and has {has}")]
    Length {
        /// The length in the header.
        says: u32,
        /// The number of bytes read.
        has: usize,
    },
    /// A name without its closing NUL.
    #[error("a name has no closing NUL")]
    Unterminated,
    /// An unknown operation.
    #[error("unknown operation {0}")]
    Unknown(u32),
}

/// One request: the caller (in the header) and the operation.
#[derive(Clone, Copy, Debug)]
pub struct KernelRequest<'a> {
    /// The kernel's number, node, and caller.
    pub header: abi::InHeader,
    /// The operation with its arguments.
    pub operation: Operation<'a>,
}

/// The operation of a request; its node is in the header. Names have no NUL and may be empty.
// Named and documented like the kernel's operations.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Init {
        of: abi::InitIn,
        flags2: u32,
    },
    Destroy,
    Interrupt {
        unique: u64,
    },
    Forget {
        lookups: u64,
    },
    BatchForget(&'a [u8]),
    Lookup {
        name: &'a [u8],
    },
    Getattr(abi::GetattrIn),
    Statx(abi::StatxIn),
    Setattr(abi::SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        of: abi::MknodIn,
        name: &'a [u8],
    },
    Mkdir {
        of: abi::MkdirIn,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        newdir: u64,
        flags: u32,
        from: &'a [u8],
        to: &'a [u8],
    },
    Link {
        oldnodeid: u64,
        name: &'a [u8],
    },
    Open(abi::OpenIn),
    Create {
        of: abi::CreateIn,
        name: &'a [u8],
    },
    Tmpfile(abi::CreateIn),
    Read(abi::ReadIn),
    Write {
        of: abi::WriteIn,
        data: &'a [u8],
    },
    Flush(abi::FlushIn),
    Release(abi::ReleaseIn),
    Fsync(abi::FsyncIn),
    Opendir(abi::OpenIn),
    Readdir {
        of: abi::ReadIn,
        plus: bool,
    },
    Releasedir(abi::ReleaseIn),
    Fsyncdir(abi::FsyncIn),
    Statfs,
    Syncfs,
    Setxattr {
        of: abi::SetxattrIn,
        name: &'a [u8],
        value: &'a [u8],
    },
    Getxattr {
        size: u32,
        name: &'a [u8],
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Getlk(abi::LkIn),
    Setlk {
        of: abi::LkIn,
        wait: bool,
    },
    Fallocate(abi::FallocateIn),
    Lseek(abi::LseekIn),
    /// Known, and refused for ever with `ENOSYS`: the kernel then does without or by itself.
    Unoffered(u32),
}

impl<'a> KernelRequest<'a> {
    /// The header alone, so that even an unknown request is answered.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn header(bytes: &[u8]) -> Result<abi::InHeader, DecodeError> {
        abi::InHeader::read_from_prefix(bytes)
            .map(|(header, _)| header)
            .map_err(|_| DecodeError::Short)
    }

    /// The request in `bytes`, which is what one read from the kernel returned.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (header, body) =
            abi::InHeader::read_from_prefix(bytes).map_err(|_| DecodeError::Short)?;
        if header.len as usize != bytes.len() {
            return Err(DecodeError::Length { says: header.len, has: bytes.len() });
        }
        let extensions = usize::from(header.total_extlen) * 8;
        let body = body
            .len()
            .checked_sub(extensions)
            .and_then(|end| body.get(..end))
            .ok_or(DecodeError::Short)?;
        Ok(KernelRequest { header, operation: Operation::decode(header.opcode, Body(body))? })
    }
}

impl<'a> Operation<'a> {
    fn decode(code: u32, mut body: Body<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            opcode::LOOKUP => Operation::Lookup { name: body.name()? },
            opcode::FORGET => Operation::Forget { lookups: body.take::<abi::ForgetIn>()?.nlookup },
            opcode::BATCH_FORGET => Self::batch_forget(body)?,
            opcode::INTERRUPT => {
                Operation::Interrupt { unique: body.take::<abi::InterruptIn>()?.unique }
            }
            opcode::GETATTR => Operation::Getattr(body.take()?),
            opcode::STATX => Operation::Statx(body.take()?),
            opcode::SETATTR => Operation::Setattr(body.take()?),
            opcode::READLINK => Operation::Readlink,
            opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
            opcode::MKNOD => Operation::Mknod { of: body.take()?, name: body.name()? },
            opcode::MKDIR => Operation::Mkdir { of: body.take()?, name: body.name()? },
            opcode::UNLINK => Operation::Unlink { name: body.name()? },
            opcode::RMDIR => Operation::Rmdir { name: body.name()? },
            opcode::RENAME => {
                let of: abi::RenameIn = body.take()?;
                Operation::Rename {
                    newdir: of.newdir,
                    flags: 0,
                    from: body.name()?,
                    to: body.name()?,
                }
            }
            opcode::RENAME2 => {
                let of: abi::Rename2In = body.take()?;
                Operation::Rename {
                    newdir: of.newdir,
                    flags: of.flags,
                    from: body.name()?,
                    to: body.name()?,
                }
            }
            opcode::LINK => {
                let of: abi::LinkIn = body.take()?;
                Operation::Link { oldnodeid: of.oldnodeid, name: body.name()? }
            }
            opcode::CREATE => Operation::Create { of: body.take()?, name: body.name()? },
            opcode::TMPFILE => Operation::Tmpfile(body.take()?),
            opcode::INIT => Self::init(body)?,
            opcode::DESTROY => Operation::Destroy,
            _ => Self::decode_on_open(code, body)?,
        })
    }

    /// Decodes the operations on something open, and on the whole file system.
    fn decode_on_open(code: u32, mut body: Body<'a>) -> Result<Self, DecodeError> {
        Ok(match code {
            opcode::OPEN => Operation::Open(body.take()?),
            opcode::READ => Operation::Read(body.take()?),
            opcode::WRITE => {
                let of: abi::WriteIn = body.take()?;
                Operation::Write { of, data: body.bytes(of.size)? }
            }
            opcode::FLUSH => Operation::Flush(body.take()?),
            opcode::RELEASE => Operation::Release(body.take()?),
            opcode::FSYNC => Operation::Fsync(body.take()?),
            opcode::OPENDIR => Operation::Opendir(body.take()?),
            opcode::READDIR => Operation::Readdir { of: body.take()?, plus: false },
            opcode::READDIRPLUS => Operation::Readdir { of: body.take()?, plus: true },
            opcode::RELEASEDIR => Operation::Releasedir(body.take()?),
            opcode::FSYNCDIR => Operation::Fsyncdir(body.take()?),
            opcode::STATFS => Operation::Statfs,
            opcode::SYNCFS => Operation::Syncfs,
            opcode::SETXATTR => {
                let of: abi::SetxattrIn = body.take()?;
                Operation::Setxattr { of, name: body.name()?, value: body.bytes(of.size)? }
            }
            opcode::GETXATTR => {
                let of: abi::GetxattrIn = body.take()?;
                Operation::Getxattr { size: of.size, name: body.name()? }
            }
            opcode::LISTXATTR => {
                Operation::Listxattr { size: body.take::<abi::GetxattrIn>()?.size }
            }
            opcode::REMOVEXATTR => Operation::Removexattr { name: body.name()? },
            opcode::GETLK => Operation::Getlk(body.take()?),
            opcode::SETLK => Operation::Setlk { of: body.take()?, wait: false },
            opcode::SETLKW => Operation::Setlk { of: body.take()?, wait: true },
            opcode::FALLOCATE => Operation::Fallocate(body.take()?),
            opcode::LSEEK => Operation::Lseek(body.take()?),
            opcode::ACCESS
            | opcode::BMAP
            | opcode::IOCTL
            | opcode::POLL
            | opcode::NOTIFY_REPLY
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64 => Operation::Unoffered(code),
            _ => return Err(DecodeError::Unknown(code)),
        })
    }

    fn init(mut body: Body<'a>) -> Result<Self, DecodeError> {
        let of: abi::InitIn = body.take()?;
        let extended = u64::from(of.flags) & abi::init::INIT_EXT != 0;
        let flags2 = if extended { body.take::<abi::InitInMore>()?.flags2 } else { 0 };
        Ok(Operation::Init { of, flags2 })
    }

    fn batch_forget(mut body: Body<'a>) -> Result<Self, DecodeError> {
        let of: abi::BatchForgetIn = body.take()?;
        let length = u64::from(of.count) * size_of::<abi::ForgetOne>() as u64;
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| body.0.get(..length))
            .ok_or(DecodeError::Short)?;
        Ok(Operation::BatchForget(bytes))
    }
}

/// The members of a [`Operation::BatchForget`].
pub fn forgets(bytes: &[u8]) -> impl Iterator<Item = abi::ForgetOne> {
    bytes
        .chunks_exact(size_of::<abi::ForgetOne>())
        .filter_map(|chunk| abi::ForgetOne::read_from_bytes(chunk).ok())
}

/// The undecoded rest of a request.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, DecodeError> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| DecodeError::Short)?;
        self.0 = rest;
        Ok(value)
    }

    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(DecodeError::Unterminated)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.split_first().map_or(&[], |(_, rest)| rest);
        Ok(name)
    }

    fn bytes(&mut self, length: u32) -> Result<&'a [u8], DecodeError> {
        self.0.get(..length as usize).ok_or(DecodeError::Short)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn request(code: u32, body: &[u8]) -> Vec<u8> {
        let len = (size_of::<abi::InHeader>() + body.len()) as u32;
        let header =
            abi::InHeader { len, opcode: code, unique: 2, nodeid: 1, ..Default::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn names_end_at_their_nul_and_must_have_one() {
        let bytes = request(opcode::SYMLINK, b"name\0target\0");
        let Operation::Symlink { name, target } = KernelRequest::decode(&bytes).unwrap().operation
        else {
            panic!()
        };
        assert_eq!((name, target), (&b"name"[..], &b"target"[..]));
        let bytes = request(opcode::SYMLINK, b"name\0target");
        assert_eq!(KernelRequest::decode(&bytes).unwrap_err(), DecodeError::Unterminated);
        let bytes = request(opcode::LOOKUP, b"");
        assert_eq!(KernelRequest::decode(&bytes).unwrap_err(), DecodeError::Unterminated);
    }

    #[test]
    fn lengths_inside_are_checked_against_the_bytes_at_hand() {
        let of = abi::WriteIn { size: 5, ..Default::default() };
        let whole = request(opcode::WRITE, &[of.as_bytes(), b"12345"].concat());
        assert!(matches!(
            KernelRequest::decode(&whole).unwrap().operation,
            Operation::Write { data: b"12345", .. }
        ));
        let short = request(opcode::WRITE, &[of.as_bytes(), b"1234"].concat());
        assert_eq!(KernelRequest::decode(&short).unwrap_err(), DecodeError::Short);
        let many = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
        assert_eq!(
            KernelRequest::decode(&request(opcode::BATCH_FORGET, many.as_bytes())).unwrap_err(),
            DecodeError::Short
        );
    }

    #[test]
    fn extensions_are_cut_off_before_the_body_is_read() {
        let mut bytes = request(opcode::LOOKUP, b"ab\0extensio");
        bytes[36..38].copy_from_slice(&1u16.to_ne_bytes());
        assert!(matches!(
            KernelRequest::decode(&bytes).unwrap().operation,
            Operation::Lookup { name: b"ab" }
        ));
        bytes[36..38].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(KernelRequest::decode(&bytes).unwrap_err(), DecodeError::Short);
    }

    #[test]
    fn an_unknown_operation_is_reported_by_number() {
        assert_eq!(
            KernelRequest::decode(&request(999, b"")).unwrap_err(),
            DecodeError::Unknown(999)
        );
        assert!(matches!(
            KernelRequest::decode(&request(opcode::POLL, b"")).unwrap().operation,
            Operation::Unoffered(opcode::POLL)
        ));
    }
}
