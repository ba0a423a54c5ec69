//! Access lists as AFS's text: the two counts, then a line `name TAB rights` for each entry.

use afs3::files::FilesAnswer;
use afs3::rights::{AclLine, AclText, AfsRights};
use afs3::structs::{AfsFid, AfsOpaque, FetchStatus, VolSync};
use bytes::Bytes;
use guard::{Acl, Rights};
use types::{Answer, Call, Kind, PrincipalId, PtsCall};

use super::{FileCall, find, unexpected};
use crate::Refusal;

impl FileCall<'_> {
    fn pts(&self, call: PtsCall) -> Result<Answer, Refusal> {
        let call = Call::Pts { on_behalf: None, call: Box::new(call) };
        Ok(self.services.ask_as_server(call)?)
    }

    pub(super) fn fetch_list(&self, fid: AfsFid) -> Result<FilesAnswer, Refusal> {
        let found = find(self, fid)?;
        let Answer::Acl { list, .. } = self.services.ask(Call::GetAcl { fid: found.fid })? else {
            return Err(unexpected());
        };
        let list = Acl::decode(&list).map_err(|_| Refusal::MEDIUM)?;
        let entries = || list.positive().iter().chain(list.negative());
        let ids = entries().map(|entry| entry.who).collect();
        let Answer::Names { names, .. } = self.pts(PtsCall::Names { ids })? else {
            return Err(unexpected());
        };
        // Numbers without a principal are their own names.
        let line = |((id, name), rights): ((PrincipalId, String), AfsRights)| {
            let name = if name.is_empty() { id.0.to_string() } else { name };
            AclLine { name: name.into_bytes(), rights }
        };
        let rights = entries().map(|entry| AfsRights(entry.rights.0));
        let mut positive: Vec<AclLine> = names.into_iter().zip(rights).map(line).collect();
        let negative = positive.split_off(list.positive().len().min(positive.len()));
        let text = AclText { positive, negative }.print().map_err(|_| Refusal::TOO_BIG)?;
        Ok(FilesAnswer::FetchACL {
            acl: AfsOpaque::new(text).map_err(|_| Refusal::TOO_BIG)?,
            status: self.shown(found.fid)?,
            sync: self.sync_of(fid.volume)?,
        })
    }

    pub(super) fn store_list(
        &self,
        fid: AfsFid,
        text: &[u8],
    ) -> Result<(FetchStatus, VolSync), Refusal> {
        let found = find(self, fid)?;
        if found.kind != Kind::Directory {
            return Err(Refusal::INVALID);
        }
        let text = AclText::parse(text).map_err(|_| Refusal::INVALID)?;
        let signs = text.positive.iter().map(|_| false).chain(text.negative.iter().map(|_| true));
        let lines = || text.positive.iter().chain(&text.negative);
        let names = lines().map(|line| String::from_utf8_lossy(&line.name).to_lowercase());
        let call = PtsCall::Numbers { names: names.collect() };
        let Answer::Names { names, .. } = self.pts(call)? else {
            return Err(unexpected());
        };
        let mut list = Acl::new();
        for ((line, negative), (who, _)) in lines().zip(signs).zip(names) {
            if who == PrincipalId::NONE {
                return Err(Refusal::INVALID);
            }
            if !list.set(who, Rights(line.rights.0), negative) {
                return Err(Refusal::TOO_BIG);
            }
        }
        let list = Some(Bytes::from(list.encode()));
        self.services.ask(Call::SetAcl { fid: found.fid, list, instead_of: None })?;
        Ok((self.shown(found.fid)?, self.sync_of(fid.volume)?))
    }
}
