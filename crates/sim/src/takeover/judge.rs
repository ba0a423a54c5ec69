//! The answers that clients were given, and the rules that must hold of them.
//!
//! Each change leaves a *token* that none other leaves: eight bytes at the end of a log, or the
//! name of a file. So a log shows which changes it has, in which order, and how often.

use std::collections::{BTreeMap, BTreeSet};

use types::Time;

/// The knowledge of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenFate {
    /// It is under way.
    Waiting,
    /// It was acknowledged, at this time.
    Done(Time),
    /// It was refused: it must not be there.
    Refused,
    /// The session was lost with it: it may be there.
    Unknown,
    /// Its client was told that it is lost.
    Named,
    /// It was not stable when the power of the volume's server was lost.
    MayBeLost,
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenRecord {
    pub client: usize,
    /// Its log; `None`: a name in the root.
    pub log: Option<usize>,
    pub fate: TokenFate,
    pub is_stable: bool,
    /// The power of the volume's server was lost while it was under way: its answer may be one from
    /// before that.
    is_at_risk: bool,
    pub began: Time,
}

/// See the head of the file.
pub(super) struct TokenJudge {
    pub tokens: Vec<TokenRecord>,
    /// Tokens that reads have shown, by client, log and generation of the volume, and when the
    /// first of them ended. Another client may see a change before the break of it comes here.
    seen: BTreeMap<(usize, usize, u64), BTreeMap<u64, Time>>,
    /// Changes that may be lost if this server serves again after its power was lost.
    at_risk: BTreeMap<usize, Vec<u64>>,
    /// The volume's standbys are asynchronous: changes may be lost, and are named.
    pub is_async: bool,
}

/// A read of a log.
pub(super) struct LogRead<'a> {
    pub client: usize,
    pub log: usize,
    pub bytes: &'a [u8],
    /// All that was acknowledged before then must be there.
    pub began: Time,
    /// Of the volume from which it was read.
    pub generation: u64,
}

impl TokenJudge {
    pub fn new(is_async: bool) -> TokenJudge {
        let (tokens, seen, at_risk) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        TokenJudge { tokens, seen, at_risk, is_async }
    }

    /// A new change.
    pub fn begin(&mut self, client: usize, log: Option<usize>, began: Time) -> u64 {
        let (fate, is_stable, is_at_risk) = (TokenFate::Waiting, false, false);
        self.tokens.push(TokenRecord { client, log, fate, is_stable, is_at_risk, began });
        self.tokens.len() as u64 - 1
    }

    pub fn get(&self, token: u64) -> &TokenRecord {
        &self.tokens[token as usize]
    }

    /// It was acknowledged.
    pub fn done(&mut self, token: u64, now: Time, is_stable: bool) {
        let record = &mut self.tokens[token as usize];
        let may_be_lost = record.is_at_risk && !is_stable;
        record.fate = if may_be_lost { TokenFate::MayBeLost } else { TokenFate::Done(now) };
        record.is_stable = is_stable;
    }

    pub fn set(&mut self, token: u64, fate: TokenFate) {
        self.tokens[token as usize].fate = fate;
    }

    /// All that was acknowledged before then is stable.
    pub fn committed(&mut self, before: Time) {
        for record in &mut self.tokens {
            if matches!(record.fate, TokenFate::Done(at) if at < before) {
                record.is_stable = true;
            }
        }
    }

    /// The power of the volume's server is lost.
    pub fn power_lost(&mut self, server: usize) {
        for record in &mut self.tokens {
            record.is_at_risk |= record.fate == TokenFate::Waiting;
        }
        // A read may have shown one whose answer is on its way.
        let is_unstable = |record: &TokenRecord| {
            matches!(record.fate, TokenFate::Done(_) | TokenFate::Waiting) && !record.is_stable
        };
        let all = (0..).zip(&self.tokens).filter(|(_, record)| is_unstable(record));
        let lost: Vec<u64> = all.map(|(token, _)| token).collect();
        self.at_risk.entry(server).or_default().extend(lost);
    }

    /// The server has the volume, and serves it or feeds it to others.
    pub fn serves(&mut self, server: usize) {
        for token in self.at_risk.remove(&server).unwrap_or_default() {
            let record = &mut self.tokens[token as usize];
            if matches!(record.fate, TokenFate::Done(_)) && !record.is_stable {
                record.fate = TokenFate::MayBeLost;
            }
            self.seen.values_mut().for_each(|seen| _ = seen.remove(&token));
        }
    }

    /// Another server has the volume.
    pub fn leaves(&mut self, server: usize) {
        self.at_risk.remove(&server);
    }

    /// The tokens of a log.
    fn parse(&self, log: usize, bytes: &[u8]) -> Result<Vec<u64>, String> {
        if !bytes.len().is_multiple_of(8) {
            return Err(format!("log {log} has {} bytes", bytes.len()));
        }
        let mut all = Vec::new();
        for eight in bytes.chunks_exact(8) {
            let token = u64::from_be_bytes(eight.try_into().expect("eight bytes"));
            let known = self.tokens.get(token as usize);
            if known.is_none_or(|record| record.log != Some(log)) {
                return Err(format!("log {log} has {token}, which none wrote there"));
            }
            all.push(token);
        }
        Ok(all)
    }

    /// Judges a read that ends now.
    pub fn read(&mut self, now: Time, read: &LogRead<'_>) -> Result<(), String> {
        let &LogRead { client, log, bytes, began, generation } = read;
        let all = self.parse(log, bytes)?;
        let found: BTreeSet<u64> = all.iter().copied().collect();
        self.look_at_order(log, &all)?;
        for (token, record) in (0..).zip(&self.tokens) {
            let was_done = matches!(record.fate, TokenFate::Done(at) if at < began);
            if record.log == Some(log) && was_done && !self.is_async && !found.contains(&token) {
                return Err(format!(
                    "SB-1: log {log} lacks {token} of client {}, which was acknowledged",
                    record.client
                ));
            }
        }
        let seen = self.seen.entry((client, log, generation)).or_default();
        let gone = |(token, at): &(&u64, &Time)| **at < began && !found.contains(*token);
        if let Some((token, _)) = seen.iter().find(gone) {
            return Err(format!("coherence: log {log} had {token} before, and has it no more"));
        }
        // A cache, or an answer that was on its way, may still show a change that was lost since.
        let may_be_lost = |token: &u64| self.tokens[*token as usize].fate == TokenFate::MayBeLost;
        for token in found.into_iter().filter(|token| !may_be_lost(token)) {
            seen.entry(token).or_insert(now);
        }
        Ok(())
    }

    /// No change is there twice, none that was refused, and one that began after another was
    /// acknowledged comes after it.
    fn look_at_order(&self, log: usize, all: &[u64]) -> Result<(), String> {
        let mut there = BTreeSet::new();
        let mut latest_began = Time::ZERO;
        for token in all {
            let record = self.get(*token);
            if !there.insert(*token) {
                return Err(format!("SB-5: log {log} has {token} twice: client {}", record.client));
            }
            if record.fate == TokenFate::Refused {
                return Err(format!("log {log} has {token}, which was refused"));
            }
            if matches!(record.fate, TokenFate::Done(at) if at < latest_began) {
                return Err(format!("log {log} has {token} after one that began later"));
            }
            latest_began = latest_began.max(record.began);
        }
        Ok(())
    }

    /// The changes that made a name.
    pub fn names(&self) -> Vec<u64> {
        let all = (0..).zip(&self.tokens).filter(|(_, record)| record.log.is_none());
        all.map(|(token, _)| token).collect()
    }

    /// How many changes are known as done.
    pub fn done_count(&self) -> u64 {
        let is_done = |record: &&TokenRecord| matches!(record.fate, TokenFate::Done(_));
        self.tokens.iter().filter(is_done).count() as u64
    }

    /// Judges what is there at the end: the logs, and the names in the root. Returns how many were
    /// named as lost and are there all the same.
    pub fn end(&self, logs: &[Vec<u8>], names: &BTreeSet<u64>) -> Result<u64, String> {
        let mut found = names.clone();
        for (log, bytes) in logs.iter().enumerate() {
            let all = self.parse(log, bytes)?;
            self.look_at_order(log, &all)?;
            found.extend(all);
        }
        let mut needless = 0;
        for (token, record) in (0..).zip(&self.tokens) {
            let client = record.client;
            match record.fate {
                TokenFate::Done(_) if !found.contains(&token) => {
                    let rule = if self.is_async { "a loss that was not named" } else { "SB-1" };
                    return Err(format!("{rule}: {token} of client {client} is lost"));
                }
                TokenFate::Refused if found.contains(&token) => {
                    return Err(format!("{token} of client {client} was refused, and is there"));
                }
                TokenFate::Waiting => {
                    return Err(format!("{token} of client {client} has no answer"));
                }
                TokenFate::Named if found.contains(&token) => needless += 1,
                _ => {}
            }
        }
        Ok(needless)
    }
}
