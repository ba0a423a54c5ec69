//! Eight random numbers, and the call that they encode.

use bytes::Bytes;
use guard::{Acl, Rights};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    AllocateMode, AuthLevel, Call, Caller, Cookie, CreateHow, Fid, Name, NewKind, PrincipalId,
    RemoveWhat, RenameMode, RequestIdentity, SeekWhat, SetTime, StatusChange, Timestamp, XattrMode,
};

/// See the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct Op(pub [u16; 8]);

/// Bytes of one read when all is compared.
pub const WINDOW: u32 = 40_000;

const KIB: u64 = 1024;
/// Boundaries in bodies: the largest inline body, blocks, a page of checksums, and a far offset.
const JOINTS: [u64; 9] =
    [0, 1, 4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 1024 * KIB, (1024 + 16) * KIB, 1 << 40];

/// Callers other than the superuser.
pub const UIDS: [u32; 3] = [10, 11, 12];
const GROUPS: [PrincipalId; 3] =
    [PrincipalId(-300), PrincipalId(-301), PrincipalId::ADMINISTRATORS];

/// The first list of a world with lists.
pub fn everything_to_anybody() -> Bytes {
    list(&[(PrincipalId::ANYBODY, Rights::ALL)], &[])
}

fn list(given: &[(PrincipalId, Rights)], denied: &[(PrincipalId, Rights)]) -> Bytes {
    let mut list = Acl::new();
    for (entries, negative) in [(given, false), (denied, true)] {
        entries.iter().for_each(|(who, rights)| assert!(list.set(*who, *rights, negative)));
    }
    list.encode().into()
}

impl Op {
    /// The user and the group that it joins or leaves.
    pub fn regroups(&self) -> Option<(u32, PrincipalId)> {
        let [what, who, group, ..] = self.0;
        (what / 64 % 32 == 0)
            .then(|| (UIDS[usize::from(who % 3)], GROUPS[usize::from(group % 8).min(2)]))
    }

    /// A call about lists, instead of [`Op::resolve`]'s.
    pub fn about_lists(&self, pairs: &[(Fid, Fid)]) -> Option<(usize, Caller, Call)> {
        let [what, file, rights, first, second, value, more, flags] = self.0;
        let fid = pairs[usize::from(file) % pairs.len()].0;
        let call = match what / 64 % 32 {
            1..=3 => {
                let who = |number: u16| {
                    let all = [10, 11, 12, -300, -301, -101, -102];
                    PrincipalId(all[usize::from(number % 7)])
                };
                // Many rights are given, or most calls would be refused.
                let many = Rights(u32::from(rights | more) % 128).with(Rights::LOOKUP);
                let few = Rights(1 << (second / 7 % 7));
                let given =
                    [(who(first), many), (who(second), Rights(1 << (value % 7)).with(many))];
                let denied = [(who(value), few)];
                let list = list(&given, if value.is_multiple_of(3) { &denied } else { &[] });
                let away = more % 4 == 3 && fid != Fid::root(fid.volume);
                Call::SetAcl { fid, list: (!away).then_some(list), instead_of: None }
            }
            4 => Call::GetAcl { fid },
            5 | 6 => Call::Rights { fid },
            _ => return None,
        };
        Some((usize::from(flags / 2 % 2), caller(flags / 4), call))
    }

    /// A long sequence from a seed.
    pub fn sequence(seed: u64, length: usize) -> Vec<Op> {
        let mut rng = SmallRng::seed_from_u64(seed);
        (0..length).map(|_| Op(std::array::from_fn(|_| rng.random()))).collect()
    }

    pub fn hides_groups(&self) -> bool {
        self.0[7].is_multiple_of(2)
    }

    /// Client, user and call. Files are chosen among all that ever existed, new ones more often.
    pub fn resolve(&self, pairs: &[(Fid, Fid)]) -> (usize, Caller, Call) {
        let [what, file, second, first_name, other_name, value, more, flags] = self.0;
        let pick = |number: u16| {
            let recent = pairs.len().min(12);
            let from = if number.is_multiple_of(3) { 0 } else { pairs.len() - recent };
            pairs[from + usize::from(number / 3) % (pairs.len() - from)].0
        };
        let directory = |number: u16| {
            let directories: Vec<Fid> =
                pairs.iter().map(|(fid, _)| *fid).filter(|fid| fid.vnode.is_directory()).collect();
            if number.is_multiple_of(16) {
                pick(number)
            } else {
                directories[usize::from(number / 16) % directories.len()]
            }
        };
        let (fid, dir, to_dir) = (pick(file), directory(file), directory(second));
        let (name, other) = (short_name(first_name), short_name(other_name));
        let hold = more.is_multiple_of(3);
        let call = match what % 64 {
            0..=9 => Call::Make { dir, name, kind: kind(value), mode: mode(more), how: how(flags) },
            10 => Call::MakeUnnamed { dir, mode: mode(more) },
            11..=13 => Call::Link { fid, dir: to_dir, name },
            14..=19 => {
                let what = match value % 9 {
                    0 | 3 | 6 => RemoveWhat::Directory,
                    1 | 4 => RemoveWhat::MountPoint,
                    _ => RemoveWhat::File,
                };
                Call::Remove { dir, name, what, hold }
            }
            20..=27 => {
                let modes = [
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::MountPoint,
                ];
                let mode = modes[usize::from(value % 5)];
                Call::Rename { from_dir: dir, from: name, to_dir, to: other, mode, hold }
            }
            28..=29 => Call::Lookup { dir, name },
            30..=31 => Call::ReadDir {
                dir,
                cookie: Cookie::START,
                bytes_max: 500,
                plus: value.is_multiple_of(2),
            },
            32 => Call::ReadLink { fid },
            33 if value.is_multiple_of(3) => Call::ByVnode { fid, parent: more.is_multiple_of(2) },
            33 => Call::GetStatus { fid },
            34..=39 => Call::SetStatus { fid, change: status_change(value, more, flags, second) },
            40..=41 => Call::XattrSet {
                fid,
                name: attribute(first_name),
                value: text(value, 100),
                mode: xattr_mode(more),
            },
            42 => Call::XattrGet { fid, name: attribute(first_name) },
            43 => Call::XattrList { fid },
            44 => Call::XattrRemove { fid, name: attribute(first_name) },
            45..=51 => {
                let offset = (more % 5 != 0).then(|| place(value, second));
                Call::Write {
                    fid,
                    offset,
                    data: text(more, 20_000),
                    stable: flags % 32 == 3,
                    kill_privileges: flags % 8 == 1,
                }
            }
            52..=54 => {
                Call::Read { fid, offset: place(value, second), length: u32::from(more % 30_000) }
            }
            55..=56 => {
                let modes = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroExtend,
                    AllocateMode::ZeroKeepSize,
                ];
                let length = u64::from(more % 50) * KIB + u64::from(flags % 3);
                let mode = modes[usize::from(first_name % 5)];
                Call::Allocate { fid, offset: place(value, second), length, mode }
            }
            57..=58 => {
                let what = if more.is_multiple_of(2) { SeekWhat::Data } else { SeekWhat::Hole };
                Call::Seek { fid, offset: place(value, second), what }
            }
            59 if value.is_multiple_of(2) => {
                let time = |number: u16| match number % 3 {
                    0 => Timestamp::new(-5, 7),
                    1 => Timestamp::new(5, 0),
                    _ => Timestamp::new(i64::MAX, 0),
                };
                Call::NoteRead { fid, was: time(more), at: time(flags) }
            }
            59 => Call::Commit { fid },
            60 => Call::VolumeStatus { fid },
            61 => Call::Hold { fids: vec![fid] },
            _ => Call::Unhold { fids: vec![fid, pick(second)] },
        };
        // The result of a hold depends on promises, which the model does not have.
        let held = matches!(call, Call::Hold { .. });
        let caller = if held { Caller::ROOT } else { caller_of_any_level(flags / 4) };
        (usize::from(flags / 2 % 2), caller, call)
    }
}

/// On a trusted host, with a token, or without proof.
fn caller_of_any_level(number: u16) -> Caller {
    let level = [AuthLevel::Named, AuthLevel::Password, AuthLevel::Named, AuthLevel::Nobody]
        [usize::from(number / 8 % 4)];
    let caller = caller(number);
    Caller { who: RequestIdentity { level, ..RequestIdentity::NOBODY }, ..caller }
}

fn caller(number: u16) -> Caller {
    let (uid, gid, groups): (u32, u32, &[u32]) = match number % 8 {
        0..=3 => (0, 0, &[]),
        4 | 5 => (10, 100, &[200]),
        6 => (11, 100, &[]),
        _ => (12, 300, &[200, 100]),
    };
    Caller { uid, gid, groups: Some(groups.into()), who: types::RequestIdentity::NAMED }
}

fn short_name(number: u16) -> Name {
    let names: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"\xff\xfe", b"e f", b"g", &[b'x'; 255]];
    Name::new(names[usize::from(number % 8)]).unwrap()
}

fn kind(number: u16) -> NewKind {
    match number % 24 {
        0..=9 => NewKind::File,
        10..=15 => NewKind::Directory,
        16 | 17 => NewKind::Symlink(text(number, 60)),
        18 | 19 => NewKind::Fifo,
        20 | 21 => NewKind::Socket,
        22 => NewKind::MountPoint(mount_point(number)),
        _ => NewKind::CharDevice(u64::from(number) << 32 | 7),
    }
}

/// Mostly a valid one.
fn mount_point(number: u16) -> Bytes {
    let targets: [&[u8]; 5] = [b"#a", b"%b", b"#cell.org:c", b"%cell.org:d.readonly", b"e"];
    Bytes::from_static(targets[usize::from(number / 24 % 5)])
}

fn mode(number: u16) -> u16 {
    let modes = [0o777, 0o755, 0o700, 0o644, 0o2777, 0o1777, 0o6775, 0o070, 0o7777, 0o5751];
    modes[usize::from(number % 10)]
}

fn how(number: u16) -> CreateHow {
    match number / 8 % 4 {
        0 => CreateHow::Unchecked,
        1 => CreateHow::Exclusive(u64::from(number / 64 % 4)),
        _ => CreateHow::Guarded,
    }
}

fn status_change(value: u16, more: u16, flags: u16, second: u16) -> StatusChange {
    let given = |bit: u16| value & (1 << bit) != 0 && value & (8 << bit) != 0;
    let time = |number: u16| {
        if number.is_multiple_of(3) { SetTime::Now } else { SetTime::To(Timestamp::new(-5, 7)) }
    };
    StatusChange {
        mode: given(0).then(|| mode(more) | if more.is_multiple_of(7) { 0o70000 } else { 0 }),
        uid: given(1).then(|| [0, 10, 11, 12][usize::from(more / 16 % 4)]),
        gid: given(2).then(|| [0, 100, 200, 300][usize::from(more / 64 % 4)]),
        size: (value.is_multiple_of(5)).then(|| place(more, second)),
        accessed: given(4).then(|| time(flags)),
        modified: given(5).then(|| time(flags / 3)),
        kill_privileges: flags % 16 == 3,
        through_handle: more.is_multiple_of(3),
        hold: more.is_multiple_of(5),
    }
}

fn attribute(number: u16) -> Bytes {
    let names: [&[u8]; 9] = [
        b"user.a",
        b"user.b",
        b"user.",
        b"trusted.t",
        b"security.capability",
        b"security.s",
        b"system.posix_acl_access",
        b"plain",
        &[b'u'; 256],
    ];
    Bytes::from_static(match names[usize::from(number % 9)] {
        [b'u', b'u', ..] => Box::leak(vec![b'u'; 256].into_boxed_slice()),
        other => Box::leak(other.to_vec().into_boxed_slice()),
    })
}

fn xattr_mode(number: u16) -> XattrMode {
    [XattrMode::Either, XattrMode::Create, XattrMode::Replace][usize::from(number % 3)]
}

/// Some bytes, often none, never the same.
fn text(number: u16, bytes_max: u16) -> Bytes {
    let length = if number.is_multiple_of(11) { 0 } else { number % bytes_max };
    (0..length).map(|at| (at.wrapping_mul(31).wrapping_add(number) % 251) as u8 | 1).collect()
}

/// An offset near a boundary.
fn place(number: u16, off: u16) -> u64 {
    let joint = JOINTS[usize::from(number) % JOINTS.len()];
    match off % 4 {
        0 => joint,
        1 => joint + u64::from(off % 97),
        2 => joint.saturating_sub(u64::from(off % 97)),
        _ => (joint + u64::from(off)) % (1 << 41),
    }
}

/// Offsets where a body is compared: all of a short one, around the boundaries of a long one.
pub fn windows(size: u64) -> Vec<u64> {
    let window = u64::from(WINDOW);
    let all = (0..size.div_ceil(window).min(8)).map(|at| at * window);
    let joints =
        JOINTS.iter().map(|joint| joint.saturating_sub(window / 2)).filter(|at| *at < size);
    all.chain(joints).chain([size.saturating_sub(window / 2)]).collect()
}
