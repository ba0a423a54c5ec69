//! Records in etcd: below `/rialto/CELL/1/`, by the same keys and with the same values as in the
//! embedded engine.
//!
//! A view is a revision of etcd, which the first read sets. A commit is one transaction: it is
//! executed if the counters' record and the state of the database are those that the view saw.
//! Its answer may be lost. So each transaction writes a random number, by which its sender, when it
//! sends it again, finds that it was executed.

use std::cell::Cell;
use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use types::Revision;

use super::client::{EtcdClient, EtcdError, OUT_OF_RANGE, TOO_LARGE};
use crate::engine::{Batch, Commit, Engine, View, Visit};
use crate::format::{self, State};
use crate::{CellError, key};

type Result<T> = std::result::Result<T, CellError>;

/// Records in one answer.
const PAGE: u64 = 1000;
/// etcd takes 128 operations in a transaction, and in each transaction inside it as many as are
/// left of these. So a tree of transactions takes many more.
const FAN: usize = 40;
/// Records, and bytes of them as they are sent, that are written at once without a condition: etcd
/// takes 1.5 MiB.
const FILL_RECORDS: usize = 4000;
const FILL_BYTES: usize = 768 << 10;
/// Bytes of a record beside its key and value, with room.
const RECORD_BYTES: usize = 64;

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct EtcdStore {
    pub(super) client: Arc<EtcdClient>,
    /// `/rialto/CELL/`.
    prefix: String,
}

/// The records as of a revision of etcd.
pub(crate) struct EtcdView {
    store: EtcdStore,
    /// 0: nothing was read yet.
    at: Cell<i64>,
    /// The revision of etcd that wrote the counters' record; 0: there is none, or none was read.
    counters_at: Cell<i64>,
}

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decoded(value: &Value) -> Result<Vec<u8>> {
    // An empty text is left out.
    let text = value.as_str().unwrap_or_default();
    STANDARD.decode(text).map_err(|_| CellError::Medium("etcd: its answer is no base64".to_owned()))
}

/// Numbers of 64 bits are text in JSON.
pub(super) fn number(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

/// The first record of an answer to a range.
fn first(range: &Value) -> Option<&Value> {
    range["kvs"].as_array()?.first()
}

/// Bytes other than letters, digits and `.-_` are `%` and two digits, so no name of a cell contains
/// a slash.
fn escaped(cell: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let one = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    cell.bytes().map(one).collect()
}

impl EtcdStore {
    pub(super) fn new(client: EtcdClient, cell: &str) -> EtcdStore {
        let prefix = format!("/rialto/{}/", escaped(cell));
        EtcdStore { client: Arc::new(client), prefix }
    }

    /// A key beside the records.
    pub fn beside(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn record(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), b"1/", key].concat()
    }

    /// Behind all records.
    fn end(&self) -> Vec<u8> {
        // The byte behind the slash.
        [self.prefix.as_bytes(), b"10"].concat()
    }

    /// Behind all keys of the cell.
    fn end_of_all(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        end.pop();
        end.push(b'/' + 1);
        end
    }

    /// The counters' record.
    pub fn counters_key(&self) -> Vec<u8> {
        self.record(key::COUNTERS)
    }

    /// # Errors
    /// etcd's.
    pub fn call(&self, path: &str, body: &Value) -> Result<Value> {
        Ok(self.client.call(path, body)?)
    }

    /// The text of the format; `None`: the cell has no database here.
    ///
    /// # Errors
    /// etcd's.
    pub fn format(&self) -> Result<Option<String>> {
        let body = json!({"key": encoded(self.beside("format"))});
        let range = self.call("/v3/kv/range", &body)?;
        first(&range).map(|found| Ok(text_of(&decoded(&found["value"])?))).transpose()
    }

    /// The state of the database; `None`: it is not there.
    ///
    /// # Errors
    /// etcd's.
    pub fn state(&self) -> Result<Option<State>> {
        let name = self.beside("format");
        self.format()?.map(|text| format::parse_state(&name, &text)).transpose()
    }

    /// Replaces the state, if it is `before`. False: it is another one.
    ///
    /// # Errors
    /// etcd's.
    pub fn set_state(&self, before: Option<&State>, after: Option<&State>) -> Result<bool> {
        let name = encoded(self.beside("format"));
        let compare = match before {
            None => json!({"key": name, "target": "VERSION", "version": "0"}),
            Some(state) => json!({"key": name, "target": "VALUE",
                "value": encoded(format::state_text(state))}),
        };
        let change = match after {
            Some(state) => json!({"request_put": {"key": name,
                "value": encoded(format::state_text(state))}}),
            None => json!({"request_delete_range": {"key": name}}),
        };
        let answer =
            self.call("/v3/kv/txn", &json!({"compare": [compare], "success": [change]}))?;
        if answer["succeeded"] == true {
            return Ok(true);
        }
        // The answer to a first attempt may have been lost.
        Ok(self.state()?.as_ref() == after)
    }

    /// Does the cell have keys here?
    ///
    /// # Errors
    /// etcd's.
    pub fn is_empty(&self) -> Result<bool> {
        let body = json!({"key": encoded(&self.prefix), "range_end": encoded(self.end_of_all()),
            "count_only": true});
        Ok(number(&self.call("/v3/kv/range", &body)?["count"]) == 0)
    }

    /// Removes all records.
    ///
    /// # Errors
    /// etcd's.
    pub fn clear(&self) -> Result<()> {
        let body = json!({"key": encoded(self.record(b"")), "range_end": encoded(self.end())});
        self.call("/v3/kv/deleterange", &body).map(drop)
    }

    /// Writes records without any condition, in as many transactions as it takes.
    ///
    /// # Errors
    /// etcd's.
    pub fn fill(&self, batch: &Batch) -> Result<()> {
        let send =
            |some: Vec<Value>| self.call("/v3/kv/txn", &json!({"success": tree(some)})).map(drop);
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (key, value) in batch.iter() {
            let more = self.prefix.len() + key.len() + value.map_or(0, <[u8]>::len) + RECORD_BYTES;
            if some.len() == FILL_RECORDS || bytes + more > FILL_BYTES && !some.is_empty() {
                send(std::mem::take(&mut some))?;
                bytes = 0;
            }
            some.push(self.operation(key, value));
            bytes += more;
        }
        if some.is_empty() { Ok(()) } else { send(some) }
    }

    fn operation(&self, key: &[u8], value: Option<&[u8]>) -> Value {
        let key = encoded(self.record(key));
        match value {
            Some(value) => json!({"request_put": {"key": key, "value": encoded(value)}}),
            None => json!({"request_delete_range": {"key": key}}),
        }
    }

    /// Why a commit whose condition failed was not executed, or that it was.
    fn judge(&self, answer: &Value, nonce: &str, next: Revision) -> Result<Commit> {
        let range = |at: usize| first(&answer["responses"][at]["response_range"]);
        if range(1).is_some_and(|last| last["value"] == nonce) {
            return Ok(Commit::Done);
        }
        let name = self.beside("format");
        let text = range(0).map(|found| decoded(&found["value"])).transpose()?;
        let state = text.map(|text| format::parse_state(&name, &text_of(&text))).transpose()?;
        need_in_use(state.as_ref(), &name)?;
        if self.writer_of(next)?.is_some_and(|writer| writer == nonce) {
            return Ok(Commit::Done);
        }
        Ok(Commit::Overtaken)
    }

    /// The random number of the transaction that made a revision of the database: others may have
    /// come since.
    fn writer_of(&self, revision: Revision) -> Result<Option<String>> {
        let change = encoded(self.record(&key::change(revision)));
        let change = self.call("/v3/kv/range", &json!({"key": change}))?;
        let Some(change) = first(&change) else { return Ok(None) };
        let last = encoded(self.beside("last"));
        let body = json!({"key": last, "revision": change["mod_revision"]});
        let last = self.call("/v3/kv/range", &body)?;
        Ok(first(&last).and_then(|last| last["value"].as_str()).map(str::to_owned))
    }
}

/// Checks that changes may be made.
pub(super) fn need_in_use(state: Option<&State>, name: &str) -> Result<()> {
    match state {
        Some(State::InUse) => Ok(()),
        Some(State::Filling(_)) => Err(CellError::Moved {
            from: name.to_owned(),
            to: "nowhere yet: a migration into it has not ended (run it again)".to_owned(),
        }),
        Some(State::Moving(to) | State::Moved(to)) => {
            Err(CellError::Moved { from: name.to_owned(), to: to.clone() })
        }
        None => Err(CellError::Misuse(format!(
            "no database of this cell is in etcd ({name} is not there): check the cell's name and \
             the endpoints; 'rialto cell migrate --to etcd' brings the database there"
        ))),
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As few levels of transactions as etcd takes.
fn tree(mut operations: Vec<Value>) -> Vec<Value> {
    while operations.len() > FAN {
        let some = operations.chunks(FAN);
        operations = some.map(|some| json!({"request_txn": {"success": some}})).collect();
    }
    operations
}

impl EtcdView {
    fn range(&self, mut body: Value) -> std::result::Result<Value, EtcdError> {
        if self.at.get() > 0 {
            body["revision"] = self.at.get().to_string().into();
        }
        let answer = self.store.client.call("/v3/kv/range", &body);
        match answer {
            Ok(answer) => {
                if self.at.get() == 0 {
                    self.at.set(number(&answer["header"]["revision"]));
                }
                Ok(answer)
            }
            // etcd has forgotten what it had then, or this member has not come so far.
            Err(EtcdError::Refused { code: OUT_OF_RANGE, .. }) => Err(EtcdError::Lost),
            Err(error) => Err(error),
        }
    }

    /// The records of a page, and whether more follow.
    fn page(&self, from: &[u8], limit: &mut u64) -> Result<(Vec<Value>, bool)> {
        loop {
            let answer = self.range(json!({"key": encoded(from),
                "range_end": encoded(self.store.end()), "limit": limit.to_string()}));
            match answer {
                Ok(answer) => {
                    let records = answer["kvs"].as_array().cloned().unwrap_or_default();
                    return Ok((records, answer["more"] == true));
                }
                // Their values are longer than one answer may be.
                Err(EtcdError::Refused { code: TOO_LARGE, .. }) if *limit > 1 => *limit /= 2,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl View for EtcdView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let answer = self.range(json!({"key": encoded(self.store.record(key))}))?;
        let found = first(&answer);
        if key == key::COUNTERS {
            self.counters_at.set(found.map_or(0, |found| number(&found["mod_revision"])));
        }
        found.map(|found| decoded(&found["value"])).transpose()
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let (mut from, mut limit) = (self.store.record(from), PAGE);
        let begin = self.store.record(b"").len();
        loop {
            let (records, more) = self.page(&from, &mut limit)?;
            for found in &records {
                let (key, value) = (decoded(&found["key"])?, decoded(&found["value"])?);
                if !visit(key.get(begin..).unwrap_or_default(), &value)? {
                    return Ok(());
                }
                from = key;
            }
            if !more || records.is_empty() {
                return Ok(());
            }
            from.push(0);
        }
    }
}

impl Engine for EtcdStore {
    type View<'a> = EtcdView;

    fn view(&self) -> EtcdView {
        EtcdView { store: self.clone(), at: Cell::new(0), counters_at: Cell::new(0) }
    }

    fn commit(&self, view: &EtcdView, batch: &Batch, next: Revision) -> Result<Commit> {
        let mut random = [0; 16];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| CellError::Medium("no random numbers".to_owned()))?;
        let nonce = encoded(random);
        let format = encoded(self.beside("format"));
        let last = encoded(self.beside("last"));
        let mut success =
            tree(batch.iter().map(|(key, value)| self.operation(key, value)).collect());
        success.push(json!({"request_put": {"key": last, "value": nonce}}));
        let body = json!({
            "compare": [
                {"key": encoded(self.counters_key()), "target": "MOD",
                    "mod_revision": view.counters_at.get().to_string()},
                {"key": format, "target": "VALUE",
                    "value": encoded(format::state_text(&State::InUse))},
            ],
            "success": success,
            "failure": [{"request_range": {"key": format}}, {"request_range": {"key": last}}],
        });
        let answer = self.call("/v3/kv/txn", &body)?;
        if answer["succeeded"] == true {
            return Ok(Commit::Done);
        }
        self.judge(&answer, &nonce, next)
    }

    /// etcd refuses what is too much for it.
    fn need_room(&self) -> Result<()> {
        Ok(())
    }
}
