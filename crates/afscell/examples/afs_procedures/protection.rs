//! PR: users and groups.

use afs3::RpcMessage as _;
use afs3::protection::{
    PORT, PrIds, PrName, PrNames, PrUpdate, ProtectionAnswer, ProtectionCall, SERVICE, fields_mask,
};
use afs3::xdr::{Chars, XdrList};

use crate::asking::{Asker, Place, long_text, raw};

const PR: Place = Place { name: "PR", port: PORT, service: SERVICE };
/// A number that nothing has.
const UNKNOWN: i32 = 4_000_000;
const ADMINISTRATORS: i32 = -204;
const ANY_USER: i32 = -101;
const ANONYMOUS: i32 = 32766;
const ANN: i32 = 5001;
const BEN: i32 = 5002;
const CREW: i32 = -5001;
const TEAM: i32 = -5002;

fn name(text: &str) -> PrName {
    PrName::new(text.as_bytes()).unwrap()
}

fn names(all: &[&str]) -> PrNames {
    XdrList::new(all.iter().map(|one| Chars::new(one.as_bytes()).unwrap()).collect()).unwrap()
}

fn ids(all: &[i32]) -> PrIds {
    XdrList::new(all.to_vec()).unwrap()
}

struct Of<'a>(&'a mut Asker);

impl Of<'_> {
    fn ask(&mut self, case: &str, call: &ProtectionCall) -> Option<ProtectionAnswer> {
        self.0.ask(PR, case, &call.to_request())
    }

    fn raw(&mut self, case: &str, request: &[u8]) {
        self.0.ask::<ProtectionAnswer>(PR, case, request);
    }
}

pub fn ask(asker: &mut Asker) {
    let mut of = Of(asker);
    make(&mut of);
    names_and_numbers(&mut of);
    members(&mut of);
    read(&mut of);
    change(&mut of);
    remove(&mut of);
    // File servers of OpenAFS look the holder of the key up by the name in its token.
    let holder = ProtectionCall::INewEntry { name: name("afs"), id: 5099, owner: ADMINISTRATORS };
    of.ask("the holder of the key", &holder);
    let joins = ProtectionCall::AddToGroup { user: 5099, group: ADMINISTRATORS };
    of.ask("the holder of the key", &joins);
    of.raw("unknown procedure", &raw(499, |_| {}));
    of.raw("unknown procedure", &raw(531, |_| {}));
    of.raw("no arguments", &raw(500, |_| {}));
}

fn make(of: &mut Of<'_>) {
    use ProtectionCall::{INewEntry, NewEntry};
    for (case, text, id, owner) in [
        ("a user", "ann", ANN, 0),
        ("a second user", "ben", BEN, 0),
        ("the name is taken", "ann", 5003, 0),
        ("the number is taken", "ann2", ANN, 0),
        ("both are taken", "ann", ANN, 0),
        ("number 0", "zero", 0, 0),
        ("capitals", "UPPER", 5004, 0),
        ("a colon", "ann:x", 5005, 0),
        ("a line break", "a\nb", 5005, 0),
        ("an at sign", "ann@else.where", 5005, 0),
        ("a name of 1 byte", "a", 5006, 0),
        ("a name of 63 bytes", &"m".repeat(63), 5007, 0),
        ("a name of 64 bytes", &"m".repeat(64), 5008, 0),
        ("a group", "ann:crew", CREW, ANN),
        ("a group without prefix", "staff", TEAM, 0),
        ("a group of another", "ann:team", -5003, BEN),
        ("a group of an unknown owner", "who:team", -5003, UNKNOWN),
        ("a group of an unknown name", "who:team", -5003, ANN),
        ("a user's name for a group", "ann", -5005, 0),
        ("a group of the system", "system:cmp", -5006, 0),
        ("a colon before it", ":ann", -5007, ANN),
        ("two colons", "ann:a:b", -5007, ANN),
        ("the least number", "least", i32::MIN, 0),
        ("the number of everyone", "every", ANY_USER, 0),
    ] {
        let owner = if owner == 0 { ADMINISTRATORS } else { owner };
        of.ask(case, &INewEntry { name: name(text), id, owner });
    }
    of.raw(
        "a name of 65 bytes",
        &raw(500, |to| {
            long_text(to, 65);
            to.u32(5009);
            to.u32(0);
        }),
    );
    of.raw("cut off", &raw(500, |to| to.u32(3)));
    for (case, text, flag, owner) in [
        ("a user", "new", 0, 0),
        ("the name is taken", "new", 0, 0),
        ("a group", "ann:new", 2, ANN),
        ("a group without owner", "ownerless", 2, 0),
        ("a group of a group", "ann:sub", 2, CREW),
        ("a colon for a user", "a:b", 0, 0),
        ("another flag", "flag", 1, 0),
        ("all flags", "flags", -1, 0),
        ("an unknown owner", "x:y", 2, UNKNOWN),
        ("no name", "", 0, 0),
        ("no name for a group", "", 2, 0),
    ] {
        of.ask(case, &NewEntry { name: name(text), flag, owner });
    }
}

fn names_and_numbers(of: &mut Of<'_>) {
    use ProtectionCall::{IDToName, ListMax, NameToID, SetMax};
    for (case, all) in [
        ("none", names(&[])),
        ("one", names(&["ann"])),
        ("capitals", names(&["ANN", "System:AnyUser"])),
        ("unknown", names(&["nothere", "ann", ""])),
        ("with the realm", names(&["ann@X.ORG", "ann@x.org", "ann@else.where"])),
        ("51", names(&["ben"; 51])),
    ] {
        of.ask(case, &NameToID { names: all });
    }
    for (case, all) in [
        ("none", ids(&[])),
        ("one", ids(&[ANN])),
        ("unknown", ids(&[UNKNOWN, -UNKNOWN, 0, i32::MIN, i32::MAX])),
        ("the system's", ids(&[-101, -102, -203, -204, ANONYMOUS])),
        ("backup", ids(&[-205])),
        ("51", ids(&[CREW; 51])),
    ] {
        of.ask(case, &IDToName { ids: all });
    }
    of.raw("a count that is too high", &raw(505, |to| to.u32(0x7fff_ffff)));
    of.ask("before", &ListMax {});
    for (case, id, group_flag) in [
        ("of users", 9000, 0),
        ("of groups", -9000, 1),
        ("a group for users", -1, 0),
        ("a user for groups", 1, 1),
        ("0 for users", 0, 0),
        ("0 for groups", 0, 1),
        ("of groups, flag 2", -9001, 2),
    ] {
        of.ask(case, &SetMax { id, group_flag });
    }
    of.ask("after", &ListMax {});
    of.ask("of users, as before", &SetMax { id: 9000, group_flag: 0 });
    of.ask("of groups, as before", &SetMax { id: -9000, group_flag: 2 });
}

fn members(of: &mut Of<'_>) {
    use ProtectionCall::{AddToGroup, IsAMemberOf, RemoveFromGroup};
    for (case, user, group) in [
        ("a user", ANN, CREW),
        ("again", ANN, CREW),
        ("another", BEN, CREW),
        ("an unknown user", UNKNOWN, CREW),
        ("an unknown group", ANN, -UNKNOWN),
        ("a user for a group", ANN, BEN),
        ("a group in a group", CREW, TEAM),
        ("a group in itself", CREW, CREW),
        ("a circle", TEAM, CREW),
        ("everyone", ANN, ANY_USER),
        ("the anonymous user", ANONYMOUS, CREW),
        ("number 0", 0, CREW),
        ("group 0", ANN, 0),
        ("administrators", BEN, ADMINISTRATORS),
    ] {
        of.ask(case, &AddToGroup { user, group });
    }
    for (case, user, group) in [
        ("a member", ANN, CREW),
        ("no member", UNKNOWN, CREW),
        ("by a group", ANN, TEAM),
        ("everyone", ANN, ANY_USER),
        ("all users", ANN, -102),
        ("an unknown group", ANN, -UNKNOWN),
        ("a user for a group", ANN, BEN),
        ("the anonymous user", ANONYMOUS, CREW),
        ("a group", CREW, TEAM),
        ("numbers 0", 0, 0),
    ] {
        of.ask(case, &IsAMemberOf { user, group });
    }
    for (case, user, group) in [
        ("administrators", BEN, ADMINISTRATORS),
        ("no member", BEN, ADMINISTRATORS),
        ("an unknown user", UNKNOWN, CREW),
        ("an unknown group", ANN, -UNKNOWN),
        ("a user for a group", ANN, BEN),
        ("group 0", ANN, 0),
        ("number 0", 0, CREW),
    ] {
        of.ask(case, &RemoveFromGroup { user, group });
    }
}

fn read(of: &mut Of<'_>) {
    use ProtectionCall as Call;
    let all = [
        ("a user", ANN),
        ("a user in no group", 5004),
        ("a group", CREW),
        ("a group in a group", TEAM),
        ("everyone", ANY_USER),
        ("all users", -102),
        ("administrators", ADMINISTRATORS),
        ("the anonymous user", ANONYMOUS),
        ("unknown", UNKNOWN),
        ("unknown group", -UNKNOWN),
        ("number 0", 0),
        ("the least number", i32::MIN),
    ];
    for (case, id) in all {
        of.ask(case, &Call::ListEntry { id });
        of.ask(case, &Call::ListElements { id });
        of.ask(case, &Call::GetCPS { id });
        of.ask(case, &Call::GetCPS2 { id, host: 0x0a00_0001 });
        of.ask(case, &Call::ListOwned { id, last: 0 });
        of.ask(case, &Call::ListSuperGroups { id });
        of.ask(case, &Call::WhereIsIt { id });
    }
    of.ask("a last that is not there", &Call::ListOwned { id: ANN, last: 77 });
    of.ask("a negative last", &Call::ListOwned { id: ANN, last: -1 });
    of.ask("a host", &Call::GetHostCPS { host: 0x0a00_0001 });
    of.ask("host 0", &Call::GetHostCPS { host: 0 });
    for (case, position) in [("0", 0), ("negative", -1), ("odd", 77), ("far", i32::MAX)] {
        of.ask(case, &Call::DumpEntry { position });
    }
    for (case, flags, start) in [
        ("users", 1, 0),
        ("groups", 2, 0),
        ("both", 3, 0),
        ("neither", 0, 0),
        ("a start beyond the end", 3, i32::MAX - 100),
        ("a negative start", 3, -1),
    ] {
        of.ask(case, &Call::ListEntries { flags, start });
    }
}

fn change(of: &mut Of<'_>) {
    use ProtectionCall::{ChangeEntry, ListEntry, SetFieldsEntry, UpdateEntry};
    let quota = fields_mask::GROUP_QUOTA;
    for (case, id, mask, flags, group_quota) in [
        ("flags of a group", CREW, fields_mask::PRIVACY, 0xff, 0),
        ("flags of a user", ANN, fields_mask::PRIVACY, 0xff, 0),
        ("one flag", ANN, 1, 0, 0),
        ("the quota of a user", ANN, quota, 0, 3),
        ("the quota of a group", CREW, quota, 0, 3),
        ("a quota of -1", ANN, quota, 0, -1),
        ("a quota of -2", ANN, quota, 0, -2),
        ("foreign users", CREW, fields_mask::USER_QUOTA, 0, 0),
        ("nothing", ANN, 0, 0xff, 9),
        ("other bits", ANN, 0x0fff_ff00, 0xff, 9),
        ("unknown", UNKNOWN, fields_mask::PRIVACY, 0xff, 0),
        ("number 0", 0, fields_mask::PRIVACY, 0xff, 0),
        ("everyone", ANY_USER, fields_mask::PRIVACY, 0xff, 0),
        ("the anonymous user", ANONYMOUS, fields_mask::PRIVACY, 0xff, 0),
    ] {
        let (user_quota, spare1, spare2) = (2, 0, 0);
        of.ask(case, &SetFieldsEntry { id, mask, flags, group_quota, user_quota, spare1, spare2 });
    }
    of.ask("after SetFieldsEntry", &ListEntry { id: ANN });
    of.ask("after SetFieldsEntry", &ListEntry { id: CREW });
    for (case, id, text, owner, new_id) in [
        ("a name", BEN, "benny", 0, 0),
        ("a name that is taken", BEN, "ann", 0, 0),
        ("the name that it has", BEN, "benny", 0, 0),
        ("capitals", BEN, "BEN", 0, 0),
        ("a colon for a user", BEN, "ben:x", 0, 0),
        ("a group's owner", CREW, "", BEN, 0),
        ("a group's name", CREW, "ben:gang", 0, 0),
        ("a group's name of another", CREW, "ann:gang", 0, 0),
        ("a group's name without prefix", CREW, "gang", 0, 0),
        ("owner and name", CREW, "ann:crew", ANN, 0),
        ("a user's owner", BEN, "", ANN, 0),
        ("an unknown owner", CREW, "", UNKNOWN, 0),
        ("a group as owner", TEAM, "", CREW, 0),
        ("itself as owner", TEAM, "", TEAM, 0),
        ("a number", BEN, "", 0, 5012),
        ("a number that is taken", ANN, "", 0, 5004),
        ("a group's number for a user", ANN, "", 0, -7000),
        ("the number that it has", ANN, "", 0, ANN),
        ("nothing", ANN, "", 0, 0),
        ("unknown", UNKNOWN, "x", 0, 0),
        ("number 0", 0, "x", 0, 0),
        ("everyone", ANY_USER, "any", 0, 0),
        ("administrators", ADMINISTRATORS, "admins", 0, 0),
        ("the anonymous user", ANONYMOUS, "anon", 0, 0),
        ("a name of the system", TEAM, "system:team", 0, 0),
    ] {
        of.ask(case, &ChangeEntry { id, name: name(text), owner, new_id });
    }
    of.ask(
        "the number as before",
        &ChangeEntry { id: 5012, name: name(""), owner: 0, new_id: BEN },
    );
    of.ask("after ChangeEntry", &ListEntry { id: BEN });
    of.ask("after ChangeEntry", &ListEntry { id: CREW });
    of.ask("after ChangeEntry", &ListEntry { id: TEAM });
    let update = PrUpdate {
        mask: 0,
        flags: 0,
        id: 0,
        owner: 0,
        creator: 0,
        group_quota: 0,
        user_quota: 0,
        count: 0,
        reserved: [0; 5],
        name: Chars::new(b"").unwrap(),
    };
    for (case, id, text) in [("nothing", ANN, ""), ("by name", 0, "ann"), ("unknown", UNKNOWN, "")]
    {
        of.ask(case, &UpdateEntry { id, name: name(text), update: Box::new(update.clone()) });
    }
}

fn remove(of: &mut Of<'_>) {
    use ProtectionCall::{Delete, GetCPS, ListElements, ListEntry, ListOwned, RemoveFromGroup};
    of.ask("a member", &RemoveFromGroup { user: ANN, group: CREW });
    of.ask("again", &RemoveFromGroup { user: ANN, group: CREW });
    for (case, id) in [
        ("a user with groups", ANN),
        ("again", ANN),
        ("a group with members", CREW),
        ("unknown", UNKNOWN),
        ("number 0", 0),
        ("everyone", ANY_USER),
        ("administrators", ADMINISTRATORS),
        ("the anonymous user", ANONYMOUS),
    ] {
        of.ask(case, &Delete { id });
    }
    of.ask("of a user that is gone", &GetCPS { id: ANN });
    of.ask("of a group that is gone", &ListElements { id: CREW });
    of.ask("of an owner that is gone", &ListEntry { id: TEAM });
    of.ask("without owner", &ListOwned { id: 0, last: 0 });
    for id in [BEN, TEAM, 5004, 5006, 5007] {
        of.ask("what was made", &Delete { id });
    }
}
