//! The identity cache in bytes, for a start of this server while the database is away.
//!
//! The form: a magic, the revision of the database, then uids, holders of tokens and CPSs, each
//! list preceded by its length. Numbers are little-endian. The driver adds the time and a checksum,
//! and stores the file.

use std::net::IpAddr;
use std::sync::Arc;

use guard::Cps;
use types::{AuthLevel, PrincipalId, Revision};

use super::{Holder, Identities, Key, NO_NEWS, Remembered};

const MAGIC: &[u8] = b"rialto principals 2\n";
/// Maximum number of stored entries of each list: it bounds the file's size (some 20 MB if all are
/// in 100 groups). The others are looked up again.
const KEPT_MAX: usize = 1 << 14;

impl Identities {
    /// The identity cache, if it has changed since change `seen`.
    pub fn learnt(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        // The time of the news counts for servers' keys too, though no user may have come yet.
        if let Some(db) = self.cell.available() {
            self.cache.refresh(db.access());
        }
        let remembered = self.cache.remembered.read();
        let is_new = remembered.changes != seen && remembered.known != NO_NEWS;
        is_new.then(|| (remembered.changes, encode(&remembered)))
    }

    /// Loads the cache of an earlier server instance. False: the bytes are damaged.
    pub fn remember_learnt(&self, bytes: &[u8]) -> bool {
        let Some(restored) = decode(bytes) else { return false };
        *self.cache.remembered.write() = restored;
        true
    }
}

fn encode(remembered: &Remembered) -> Vec<u8> {
    let mut to = Writer(MAGIC.to_vec());
    to.u64(remembered.known.0);
    to.count(remembered.uids.len());
    for (uid, id) in remembered.uids.iter().take(KEPT_MAX) {
        to.u32(*uid);
        to.id(*id);
    }
    // An unused number may get a principal at any time: it is looked up again.
    let holders =
        || remembered.holders.iter().filter_map(|(id, holder)| Some((id, holder.as_ref()?)));
    to.count(holders().count());
    for (id, holder) in holders().take(KEPT_MAX) {
        to.id(*id);
        to.u32(holder.uid);
        to.u32(holder.gid);
        to.list(&holder.groups, Writer::u32);
        to.list(&holder.all, Writer::id);
        to.u64(holder.tokens_after as u64);
        to.0.push(u8::from(holder.locked));
    }
    to.count(remembered.subdomains.len());
    for (key, cps) in remembered.subdomains.iter().take(KEPT_MAX) {
        to.id(key.principal);
        to.0.extend([key.level as u8, u8::from(key.superuser)]);
        let host = key.host.map(|host| host.to_string()).unwrap_or_default();
        to.0.push(host.len() as u8);
        to.0.extend(host.as_bytes());
        to.list(cps.numbers(), Writer::id);
    }
    to.0
}

fn decode(bytes: &[u8]) -> Option<Remembered> {
    let mut from = Reader(bytes.strip_prefix(MAGIC)?);
    let mut restored = Remembered { known: Revision(from.u64()?), ..Remembered::default() };
    for _ in 0..from.count()? {
        restored.uids.insert(from.u32()?, from.id()?);
    }
    for _ in 0..from.count()? {
        let id = from.id()?;
        let holder = Holder {
            uid: from.u32()?,
            gid: from.u32()?,
            groups: from.list(Reader::u32)?.into(),
            all: from.list(Reader::id)?,
            tokens_after: from.u64()? as i64,
            locked: from.u8()? != 0,
        };
        restored.holders.insert(id, Some(Arc::new(holder)));
    }
    for _ in 0..from.count()? {
        let (principal, level, superuser) =
            (from.id()?, AuthLevel::from_wire(from.u8()?)?, from.u8()? != 0);
        let length = usize::from(from.u8()?);
        let host = std::str::from_utf8(from.take(length)?).ok()?;
        let host = if host.is_empty() { None } else { Some(host.parse::<IpAddr>().ok()?) };
        let cps = Cps::new(principal, level, from.list(Reader::id)?);
        restored.subdomains.insert(Key { principal, level, superuser, host }, cps);
    }
    from.0.is_empty().then_some(restored)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn id(&mut self, id: PrincipalId) {
        self.0.extend(id.0.to_le_bytes());
    }

    fn count(&mut self, of: usize) {
        self.u32(of.min(KEPT_MAX) as u32);
    }

    fn list<T: Copy>(&mut self, all: &[T], put: impl Fn(&mut Writer, T)) {
        self.u32(all.len() as u32);
        all.iter().for_each(|one| put(self, *one));
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn id(&mut self) -> Option<PrincipalId> {
        self.array().map(|bytes| PrincipalId(i32::from_le_bytes(bytes)))
    }

    fn count(&mut self) -> Option<usize> {
        self.u32().map(|count| count as usize).filter(|count| *count <= KEPT_MAX)
    }

    /// A length is accepted only up to the number of remaining bytes.
    fn list<T>(&mut self, take: impl Fn(&mut Reader<'b>) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| take(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered() -> Remembered {
        let mut all = Remembered { known: Revision(17), ..Remembered::default() };
        all.uids.insert(4711, PrincipalId(1));
        all.uids.insert(77, PrincipalId::ANONYMOUS);
        let groups = vec![PrincipalId(-204), PrincipalId(-300)];
        let holder = Holder {
            uid: 4711,
            gid: 100,
            groups: [200, 201].into(),
            all: groups.clone(),
            tokens_after: -5,
            locked: true,
        };
        all.holders.insert(PrincipalId(1), Some(Arc::new(holder)));
        all.holders.insert(PrincipalId(9), None);
        for host in [None, Some("10.1.2.3".parse().unwrap()), Some("fe80::1".parse().unwrap())] {
            let (principal, level) = (PrincipalId(1), AuthLevel::Password);
            let key = Key { principal, level, superuser: false, host };
            all.subdomains.insert(key, Cps::new(principal, level, groups.iter().copied()));
        }
        all
    }

    #[test]
    fn what_is_kept_comes_back_and_damage_does_not() {
        let all = remembered();
        let bytes = encode(&all);
        let restored = decode(&bytes).unwrap();
        assert_eq!(
            (restored.known, &restored.uids, &restored.subdomains),
            (all.known, &all.uids, &all.subdomains)
        );
        let holder = |of: &Remembered| {
            let found = of.holders.get(&PrincipalId(1)).cloned().flatten().unwrap();
            (
                found.uid,
                found.gid,
                found.groups.to_vec(),
                found.all.clone(),
                found.tokens_after,
                found.locked,
            )
        };
        assert_eq!(holder(&restored), holder(&all));
        assert!(
            !restored.holders.contains_key(&PrincipalId(9)),
            "an unknown principal may be made later"
        );
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_none(), "{end}");
        }
    }
}
