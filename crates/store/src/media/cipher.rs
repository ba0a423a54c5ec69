//! Encryption of file contents: bodies and inline bodies, with one key per tree that a keeper
//! wraps.
//!
//! Model. An encrypted tree has a record `k` with its key, wrapped; the keeper (a file of keys, a
//! key server) unwraps it once. A change of the keeper's key rewrites only that record. Names,
//! statuses, attributes and sizes are not encrypted.
//!
//! *Bodies* keep their length and their holes: AES-256-XTS, as in disk encryption, in sectors of 4
//! KiB, with the vnode and the sector's number as the tweak. Each unit of 16 bytes depends only on
//! its own plain bytes and its position. So an interrupted write leaves each unit old or new, as it
//! does without encryption; a copy of the file is a copy of the body, whatever its name; and a unit
//! that was never written is zero in the file, which no written one is (but for one in 2^128). XTS
//! does not detect changes by a person who can write to the disk; the checksums detect accidents.
//!
//! *Inline bodies* are short records that are always rewritten as a whole: AES-256-GCM with a
//! random nonce and a key per vnode, bound to the vnode.
//!
//! *Checksums* of blocks cover the plain bytes and would confirm each guess of them: an attacker
//! who knows all but four bytes of a block would know the block. So a record of sums is sealed as
//! inline bodies are, with other keys, and bound to the record's own key (tree, vnode, group,
//! epoch). Each written record gets a random nonce of 96 bits; one vnode's key seals far fewer than
//! 2^32 of them. Trees that were encrypted before this was so are refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm;
use parking_lot::Mutex;
use types::{KeyKeeper, TREE_KEY_BYTES, TreeKey, VnodeNo, VolumeId};
use zeroize::Zeroizing;

use super::engine::{Batch, Engine, WriteCombiner, prefix_end};
use crate::StoreError;
use crate::format::key::{self, kind};
use crate::format::record::{self, GROUP_BLOCKS, Sums, TreeKeyRecord};

/// The bytes that are encrypted at once, with one tweak.
const SECTOR: usize = 4096;
/// The bytes that depend only on themselves and their position.
pub(crate) const UNIT: u64 = 16;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// The most trees whose state (encrypted or not) is cached.
const KNOWN_MAX: usize = 1 << 16;

/// The keys of the bodies of one tree.
pub(crate) struct BodyKey {
    /// Two keys: for the bytes and for the tweak.
    bodies: Zeroizing<[u8; 2 * TREE_KEY_BYTES]>,
    inline: TreeKey,
    sums: TreeKey,
}

impl fmt::Debug for BodyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyKey(..)")
    }
}

/// The error of a tree whose checksums are not encrypted.
fn of_older_form(tree: VolumeId) -> StoreError {
    StoreError::Locked(format!(
        "volume {} was encrypted by an older program, which left checksums of its files in the \
         clear: dump it with that \
         program ('rialto vos dump') and restore it with this one",
        tree.0
    ))
}

#[allow(clippy::needless_pass_by_value)] // by value, so that `map_err` takes its name
fn broken(error: ErrorStack) -> StoreError {
    StoreError::Medium(format!("encryption: {error}"))
}

/// Derives the key for one purpose.
fn derive(key: &[u8], purpose: &[u8]) -> Result<TreeKey, ErrorStack> {
    let key = PKey::hmac(key)?;
    let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
    let mut derived = TreeKey::default();
    signer.update(purpose)?;
    signer.sign(&mut derived[..])?;
    Ok(derived)
}

impl BodyKey {
    fn new(key: &TreeKey) -> Result<BodyKey, ErrorStack> {
        let mut bodies = Zeroizing::new([0; 2 * TREE_KEY_BYTES]);
        bodies[..TREE_KEY_BYTES].copy_from_slice(&derive(&key[..], b"rialto bodies: bytes")?[..]);
        bodies[TREE_KEY_BYTES..].copy_from_slice(&derive(&key[..], b"rialto bodies: places")?[..]);
        let [inline, sums] =
            [&b"rialto inline bodies"[..], b"rialto sums"].map(|purpose| derive(&key[..], purpose));
        Ok(BodyKey { bodies, inline: inline?, sums: sums? })
    }

    /// Encrypts `data`: whole units, at offset `at`, a multiple of the unit.
    pub(crate) fn encrypt(
        &self,
        vnode: VnodeNo,
        at: u64,
        data: &mut [u8],
    ) -> Result<(), ErrorStack> {
        let mut cipher = CipherCtx::new()?;
        cipher.encrypt_init(Some(Cipher::aes_256_xts()), Some(&self.bodies[..]), None)?;
        each_sector(at, data, |sector, inside, part| {
            cipher.encrypt_init(None, None, Some(&tweak(vnode, sector)))?;
            through(&mut cipher, inside, part)
        })
    }

    /// Decrypts the result of [`BodyKey::encrypt`]; units of zeros stay zeros.
    pub(crate) fn decrypt(
        &self,
        vnode: VnodeNo,
        at: u64,
        data: &mut [u8],
    ) -> Result<(), ErrorStack> {
        let mut cipher = CipherCtx::new()?;
        cipher.decrypt_init(Some(Cipher::aes_256_xts()), Some(&self.bodies[..]), None)?;
        each_sector(at, data, |sector, inside, part| {
            let (units, _) = part.as_chunks::<{ UNIT as usize }>();
            let holes: Vec<usize> =
                (0..units.len()).filter(|unit| u128::from_ne_bytes(units[*unit]) == 0).collect();
            if holes.len() == units.len() {
                return Ok(());
            }
            cipher.decrypt_init(None, None, Some(&tweak(vnode, sector)))?;
            through(&mut cipher, inside, part)?;
            for unit in holes {
                part[unit * UNIT as usize..][..UNIT as usize].fill(0);
            }
            Ok(())
        })
    }

    fn seal_inline(&self, vnode: VnodeNo, bytes: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        seal(&self.inline, vnode, &[], bytes)
    }

    fn open_inline(&self, vnode: VnodeNo, sealed: &[u8]) -> Option<Vec<u8>> {
        open(&self.inline, vnode, &[], sealed)
    }

    fn seal_sums(&self, vnode: VnodeNo, record: &[u8], sums: &Sums) -> Result<Vec<u8>, ErrorStack> {
        seal(&self.sums, vnode, record, &record::sums_to_bytes(sums))
    }

    fn open_sums(&self, vnode: VnodeNo, record: &[u8], sealed: &[u8]) -> Option<Sums> {
        record::sums_from_bytes(&open(&self.sums, vnode, record, sealed)?)
    }
}

/// The vnode's key for this purpose: two blocks, of the vnode and a counter, encrypted with the
/// purpose's key, which encrypts nothing else. As in RFC 8452, section 4. An HMAC took five times
/// as long as sealing a record.
fn of_vnode(purpose: &TreeKey, vnode: VnodeNo) -> Result<TreeKey, ErrorStack> {
    const BLOCK: usize = 16;
    let mut blocks = [0; 2 * BLOCK];
    for (counter, block) in (0..).zip(blocks.chunks_exact_mut(BLOCK)) {
        block[..8].copy_from_slice(&vnode.0.to_le_bytes());
        block[8] = counter;
    }
    let mut cipher = CipherCtx::new()?;
    cipher.encrypt_init(Some(Cipher::aes_256_ecb()), Some(&purpose[..]), None)?;
    cipher.set_padding(false);
    let mut encrypted = Zeroizing::new([0; 3 * BLOCK]);
    cipher.cipher_update(&blocks, Some(&mut encrypted[..]))?;
    let mut key = TreeKey::default();
    key.copy_from_slice(&encrypted[..TREE_KEY_BYTES]);
    Ok(key)
}

/// Nonce, tag and encrypted bytes, with the vnode's key for this purpose, bound to `to`.
fn seal(purpose: &TreeKey, vnode: VnodeNo, to: &[u8], bytes: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let key = of_vnode(purpose, vnode)?;
    let mut nonce = [0; NONCE_BYTES];
    openssl::rand::rand_bytes(&mut nonce)?;
    let mut tag = [0; TAG_BYTES];
    let sealed = symm::encrypt_aead(
        symm::Cipher::aes_256_gcm(),
        &key[..],
        Some(&nonce),
        to,
        bytes,
        &mut tag,
    )?;
    Ok([&nonce[..], &tag, &sealed].concat())
}

/// The bytes that [`seal`] sealed; `None`: the input is not its result.
fn open(purpose: &TreeKey, vnode: VnodeNo, to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_at_checked(NONCE_BYTES)?;
    let (tag, bytes) = rest.split_at_checked(TAG_BYTES)?;
    let key = of_vnode(purpose, vnode).ok()?;
    symm::decrypt_aead(symm::Cipher::aes_256_gcm(), &key[..], Some(nonce), to, bytes, tag).ok()
}

fn tweak(vnode: VnodeNo, sector: u64) -> [u8; 16] {
    (u128::from(vnode.0) << 64 | u128::from(sector)).to_le_bytes()
}

/// Visits the parts of `data` that lie in one sector each: the sector, the offset of the part in
/// it, and the part.
fn each_sector(
    at: u64,
    mut data: &mut [u8],
    mut visit: impl FnMut(u64, usize, &mut [u8]) -> Result<(), ErrorStack>,
) -> Result<(), ErrorStack> {
    let mut at = at;
    while !data.is_empty() {
        let (sector, inside) = (at / SECTOR as u64, (at % SECTOR as u64) as usize);
        let count = data.len().min(SECTOR - inside);
        let (part, rest) = data.split_at_mut(count);
        visit(sector, inside, part)?;
        data = rest;
        at += count as u64;
    }
    Ok(())
}

/// Sends a part of a sector through a cipher at the sector's beginning.
fn through(cipher: &mut CipherCtx, inside: usize, part: &mut [u8]) -> Result<(), ErrorStack> {
    if inside == 0 {
        return cipher.cipher_update_inplace(part, part.len()).map(drop);
    }
    // The bytes before the part do not matter: units are independent.
    let mut sector = [0; SECTOR];
    let end = inside + part.len();
    sector[inside..end].copy_from_slice(part);
    cipher.cipher_update_inplace(&mut sector[..end], end)?;
    part.copy_from_slice(&sector[inside..end]);
    Ok(())
}

/// The result of [`crate::Partition::wrap_keys_anew`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// The number of volumes whose keys are wrapped with the keeper's current key.
    pub wrapped: usize,
    /// For each other volume, why its key did not change.
    pub left: Vec<String>,
}

/// A record of a tree's key that is to be replaced.
pub(crate) struct Anew {
    pub(crate) key: Vec<u8>,
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
}

/// The keys of a partition's trees.
pub(crate) struct Ciphers {
    engine: Arc<WriteCombiner>,
    keeper: Option<Arc<dyn KeyKeeper>>,
    /// A tree may be encrypted.
    any: AtomicBool,
    known: Mutex<HashMap<VolumeId, Option<Arc<BodyKey>>>>,
}

impl Ciphers {
    pub(crate) fn new(engine: Arc<WriteCombiner>, keeper: Option<Arc<dyn KeyKeeper>>) -> Ciphers {
        Ciphers { engine, keeper, any: AtomicBool::new(true), known: Mutex::default() }
    }

    /// Checks once whether any tree is encrypted, so that nothing is read where none is.
    pub(crate) fn check_any(&self) -> Result<(), StoreError> {
        let prefix = [kind::CIPHER];
        let mut any = false;
        self.engine.scan(&prefix, &prefix_end(&prefix), &mut |_, _| {
            any = true;
            std::ops::ControlFlow::Break(())
        })?;
        self.any.store(any, Ordering::SeqCst);
        Ok(())
    }

    /// The key of the tree's bodies; `None`: they are not encrypted.
    ///
    /// # Errors
    /// `Locked` if the keeper does not give the key; `Damaged`, `Medium`.
    pub(crate) fn of(&self, tree: VolumeId) -> Result<Option<Arc<BodyKey>>, StoreError> {
        if !self.any.load(Ordering::SeqCst) {
            return Ok(None);
        }
        if let Some(known) = self.known.lock().get(&tree) {
            return Ok(known.clone());
        }
        let found = match self.key_record(tree)? {
            Some(TreeKeyRecord { seals_sums: false, .. }) => return Err(of_older_form(tree)),
            Some(record) => Some(self.unwrap(tree, &record.wrapped)?),
            None => None,
        };
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(tree, found.clone());
        Ok(found)
    }

    /// The tree's key as stored; `None`: it has none.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub(crate) fn wrapped(&self, tree: VolumeId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.key_record(tree)?.map(|record| record.wrapped))
    }

    fn key_record(&self, tree: VolumeId) -> Result<Option<TreeKeyRecord>, StoreError> {
        if !self.any.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let key = key::cipher(tree);
        self.engine.get(&key)?.map(|value| TreeKeyRecord::decode(&key, &value)).transpose()
    }

    /// The number of the keeper's key that wraps the tree's key; `None`: the tree is not encrypted.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub(crate) fn wrapped_by(&self, tree: VolumeId) -> Result<Option<u32>, StoreError> {
        let number =
            |wrapped: Vec<u8>| self.keeper.as_ref().map_or(0, |keeper| keeper.wrapped_by(&wrapped));
        Ok(self.wrapped(tree)?.map(number))
    }

    fn unwrap(&self, tree: VolumeId, wrapped: &[u8]) -> Result<Arc<BodyKey>, StoreError> {
        let keeper = self.keeper()?;
        let key = keeper
            .unwrap(wrapped)
            .map_err(|why| StoreError::Locked(format!("volume {}: {why}", tree.0)))?;
        BodyKey::new(&key).map(Arc::new).map_err(broken)
    }

    fn keeper(&self) -> Result<&Arc<dyn KeyKeeper>, StoreError> {
        self.keeper.as_ref().ok_or_else(|| {
            StoreError::Locked("this server has no keys for encrypted volumes".to_owned())
        })
    }

    /// Makes the key of a new tree, wrapped.
    ///
    /// # Errors
    /// `Locked`.
    pub(crate) fn make(&self) -> Result<Vec<u8>, StoreError> {
        let mut key = TreeKey::default();
        openssl::rand::rand_bytes(&mut key[..]).map_err(broken)?;
        self.keeper()?.wrap(&key).map_err(StoreError::Locked)
    }

    /// Stores the key of a tree that has no records yet, or only a key that another keeper's key
    /// wraps. The caller applies the batch next.
    ///
    /// # Errors
    /// `Locked` if the keeper cannot unwrap it: nothing that it encrypts could be read.
    pub(crate) fn put(
        &self,
        tree: VolumeId,
        wrapped: &[u8],
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let opened = self.unwrap(tree, wrapped)?;
        let key = key::cipher(tree);
        let record = TreeKeyRecord { wrapped: wrapped.to_vec(), seals_sums: true };
        batch.put(&key, &record.encode(&key));
        self.any.store(true, Ordering::SeqCst);
        self.known.lock().insert(tree, Some(opened));
        Ok(())
    }

    /// Each tree's key as stored, and wrapped with the keeper's current key. The keeper may be
    /// slow.
    ///
    /// # Errors
    /// `Medium`.
    pub(crate) fn wrapped_anew(&self) -> Result<(Vec<Anew>, Vec<String>), StoreError> {
        let prefix = [kind::CIPHER];
        let mut found = Vec::new();
        self.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })?;
        let (mut anew, mut left) = (Vec::new(), Vec::new());
        for (key, old) in found {
            match self.wrap_one(&key, &old) {
                Ok(new) => anew.push(Anew { key, old, new }),
                Err(why) => left.push(why.to_string()),
            }
        }
        Ok((anew, left))
    }

    fn wrap_one(&self, key: &[u8], old: &[u8]) -> Result<Vec<u8>, StoreError> {
        let keeper = self.keeper()?;
        let record = TreeKeyRecord::decode(key, old)?;
        let tree_key = keeper.unwrap(&record.wrapped).map_err(StoreError::Locked)?;
        let wrapped = keeper.wrap(&tree_key).map_err(StoreError::Locked)?;
        Ok(TreeKeyRecord { wrapped, ..record }.encode(key))
    }

    /// The batch of `put` was not applied, or the tree was removed.
    pub(crate) fn forget(&self, tree: VolumeId) {
        self.known.lock().remove(&tree);
    }

    /// Encodes the record of a group's sums under `key`, encrypted if the tree is.
    ///
    /// # Errors
    /// `Locked`, `Medium`.
    pub(crate) fn encode_sums(
        &self,
        tree: VolumeId,
        vnode: VnodeNo,
        key: &[u8],
        sums: &Sums,
    ) -> Result<Vec<u8>, StoreError> {
        match self.of(tree)? {
            Some(cipher) => {
                let sealed = cipher.seal_sums(vnode, key, sums).map_err(broken)?;
                Ok(record::encode_sealed_sums(key, &sealed))
            }
            None => Ok(record::encode_sums(key, sums)),
        }
    }

    /// Decodes such a record; the sums of a tombstone are all holes. In an encrypted tree a record
    /// in the clear is damaged.
    ///
    /// # Errors
    /// `Damaged`; `Locked`.
    pub(crate) fn decode_sums(
        &self,
        tree: VolumeId,
        vnode: VnodeNo,
        key: &[u8],
        value: &[u8],
    ) -> Result<Sums, StoreError> {
        let Some(cipher) = self.of(tree)? else { return record::decode_sums(key, value) };
        match record::decode_sealed_sums(key, value)? {
            Some(sealed) => {
                cipher.open_sums(vnode, key, sealed).ok_or_else(|| record::damaged("checksum", key))
            }
            None => Ok([0; GROUP_BLOCKS as usize]),
        }
    }

    /// Encodes an inline body, encrypted if the tree is.
    ///
    /// # Errors
    /// `Locked`, `Medium`.
    pub(crate) fn seal_inline(
        &self,
        tree: VolumeId,
        vnode: VnodeNo,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        match self.of(tree)? {
            Some(key) => key.seal_inline(vnode, bytes).map(Some).map_err(broken),
            None => Ok(None),
        }
    }

    /// Decodes the result of [`Ciphers::seal_inline`].
    ///
    /// # Errors
    /// `Damaged` if it is no such result; `Locked`.
    pub(crate) fn open_inline(
        &self,
        tree: VolumeId,
        vnode: VnodeNo,
        bytes: bytes::Bytes,
    ) -> Result<bytes::Bytes, StoreError> {
        let Some(key) = self.of(tree)? else { return Ok(bytes) };
        let opened = key.open_inline(vnode, &bytes);
        opened.map(Into::into).ok_or_else(|| {
            StoreError::Damaged(format!("inline body of vnode {} of {}", vnode.0, tree.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> BodyKey {
        BodyKey::new(&TreeKey::new([byte; TREE_KEY_BYTES])).unwrap()
    }

    /// Any range of units is encrypted and decrypted by itself as it is within the whole.
    #[test]
    fn each_unit_is_by_itself() {
        let (key, vnode) = (key(1), VnodeNo(8));
        let plain: Vec<u8> = (0..3 * SECTOR).map(|at| (at / 7) as u8).collect();
        let mut whole = plain.clone();
        key.encrypt(vnode, 0, &mut whole).unwrap();
        for (from, to) in [(0, 16), (16, 48), (4080, 4112), (4096, 8192), (100 * 16, 700 * 16)] {
            let mut part = plain[from..to].to_vec();
            key.encrypt(vnode, from as u64, &mut part).unwrap();
            assert_eq!(part, whole[from..to], "{from}..{to}");
            key.decrypt(vnode, from as u64, &mut part).unwrap();
            assert_eq!(part, plain[from..to], "{from}..{to}");
        }
    }

    #[test]
    fn unwritten_units_are_zeros_and_written_ones_encrypted() {
        let (key, vnode) = (key(1), VnodeNo(8));
        let mut file = vec![0; 2 * SECTOR];
        key.encrypt(vnode, 32, &mut file[32..64]).unwrap();
        assert!(
            file[32..64].chunks(16).all(|unit| unit.iter().any(|byte| *byte != 0)),
            "written zeros are no hole"
        );
        let mut read = file.clone();
        key.decrypt(vnode, 0, &mut read).unwrap();
        assert_eq!(read, vec![0; 2 * SECTOR]);
        let mut other = file.clone();
        key.decrypt(VnodeNo(10), 0, &mut other).unwrap();
        assert_ne!(other, read, "the tweak contains the vnode");
        let mut wrong = file;
        super::tests::key(2).decrypt(vnode, 0, &mut wrong).unwrap();
        assert_ne!(wrong, read);
    }

    #[test]
    fn an_inline_body_belongs_to_its_vnode_and_shows_each_change() {
        let key = key(3);
        let sealed = key.seal_inline(VnodeNo(4), b"short").unwrap();
        assert_eq!(key.open_inline(VnodeNo(4), &sealed).as_deref(), Some(&b"short"[..]));
        assert_eq!(key.open_inline(VnodeNo(6), &sealed), None);
        assert_ne!(sealed, key.seal_inline(VnodeNo(4), b"short").unwrap());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(key.open_inline(VnodeNo(4), &damaged), None);
            assert_eq!(key.open_inline(VnodeNo(4), &sealed[..at]), None);
        }
    }

    #[test]
    fn keys_of_vnodes_and_purposes_are_all_different() {
        let key = key(3);
        let all = |purpose: &TreeKey| {
            (0..1000)
                .map(|no| of_vnode(purpose, VnodeNo(no << 20 | no)).unwrap().to_vec())
                .collect()
        };
        let (inline, sums): (Vec<_>, Vec<_>) = (all(&key.inline), all(&key.sums));
        let distinct: std::collections::HashSet<_> = inline.iter().chain(&sums).collect();
        assert_eq!(distinct.len(), 2000);
        assert!(inline.iter().all(|key| key[..16] != key[16..]));
        // `openssl enc -aes-256-ecb -nopad` encrypts the two blocks to the same value; keys on
        // disks depend on it.
        let derived = of_vnode(
            &TreeKey::new(std::array::from_fn(|at| at as u8)),
            VnodeNo(0x7766_5544_3322_1100),
        )
        .unwrap();
        let golden = 0xed3e_b112_3cbc_b8ad_0164_e6c3_eb0d_c53e_u128.to_be_bytes();
        assert_eq!(derived[..16], golden);
        let golden = 0xb760_9eb5_5d9d_4367_b997_6dd6_2264_562a_u128.to_be_bytes();
        assert_eq!(derived[16..], golden);
    }

    #[test]
    fn m11_sums_belong_to_their_record_and_show_each_change() {
        let key = key(3);
        let sums: Sums = std::array::from_fn(|at| at as u32 * 0x0101_0101);
        let sealed = key.seal_sums(VnodeNo(4), b"record", &sums).unwrap();
        assert_eq!(key.open_sums(VnodeNo(4), b"record", &sealed), Some(sums));
        assert_ne!(
            sealed,
            key.seal_sums(VnodeNo(4), b"record", &sums).unwrap(),
            "equal blocks have different sums records"
        );
        let others = [(VnodeNo(6), &b"record"[..]), (VnodeNo(4), b"another")];
        assert!(
            others.iter().all(|(vnode, record)| key.open_sums(*vnode, record, &sealed).is_none())
        );
        assert!(super::tests::key(4).open_sums(VnodeNo(4), b"record", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(key.open_sums(VnodeNo(4), b"record", &damaged), None);
            assert_eq!(key.open_sums(VnodeNo(4), b"record", &sealed[..at]), None);
        }
    }

    proptest! {
        #[test]
        fn both_ways(bytes in prop::collection::vec(any::<u8>(), 1..600), at in 0..700u64) {
            let bytes: Vec<u8> = bytes.into_iter().cycle().take(bytes_of(at)).collect();
            let mut data = bytes.clone();
            key(9).encrypt(VnodeNo(2), at * UNIT, &mut data).unwrap();
            key(9).decrypt(VnodeNo(2), at * UNIT, &mut data).unwrap();
            prop_assert_eq!(data, bytes);
        }
    }

    fn bytes_of(at: u64) -> usize {
        ((at % 400 + 1) * UNIT) as usize
    }
}
