//! The cost of rights where access lists decide: a request for each directory and user, one more
//! for each file with a list of its own.

use std::sync::Arc;

use crate::common::{Client, TestServer, name};
use guard::{Acl, Cps, Rights};
use types::{Caller, Fault, Fid, PrincipalId, RequestIdentity};
use venus::{LookupReply, RequestContext};

/// Uid 1000 + n is principal n.
struct Known;

impl vice::Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        Ok(Cps::new(PrincipalId(caller.uid as i32 - 1000), caller.who.level, []))
    }
}

fn list(entries: &[(i32, &str)]) -> Acl {
    let mut list = Acl::new();
    entries.iter().for_each(|(who, rights)| {
        assert!(list.set(PrincipalId(*who), rights.parse().unwrap(), false));
    });
    list
}

fn caller(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Box::default()), who: RequestIdentity::NAMED }
}

/// As a mount does for each name that it looks up.
fn look(client: &Client, caller: &Caller, file: &str) -> (Fid, Rights) {
    let request = RequestContext::of(caller);
    let LookupReply::Entry(entry) =
        client.venus.lookup(&request, client.root, &name(file)).unwrap()
    else {
        panic!("{file} is not there")
    };
    client.venus.access().ruled_by(&entry.status, client.root, entry.stamp);
    (entry.status.fid, client.venus.access().rights(&request, entry.status.fid).unwrap().0)
}

#[test]
fn a_walk_asks_once_for_the_directory_and_once_for_each_list() {
    let server = TestServer::with_principals(Arc::new(Known));
    let maker = server.client(1);
    for file in 0..30 {
        let (_, handle) = maker.create(&format!("f{file}"));
        maker.close(handle);
    }
    let root = Caller::ROOT;
    maker
        .venus
        .access()
        .set_acl(&RequestContext::of(&root), server.root, Some(&list(&[(1, "rl"), (2, "l")])), None)
        .unwrap();

    let client = server.client(2);
    let walk = |uid: u32| -> Vec<String> {
        (0..30).map(|file| look(&client, &caller(uid), &format!("f{file}")).1.to_string()).collect()
    };
    assert_eq!(walk(1001), vec!["rl"; 30]);
    assert_eq!(client.wire.take().get("Rights"), Some(&1), "for the directory");
    assert_eq!(walk(1002), vec!["l"; 30]);
    assert_eq!(client.wire.take().get("Rights"), Some(&1), "for another user");
    assert_eq!((walk(1001), walk(1002)), (vec!["rl".to_owned(); 30], vec!["l".to_owned(); 30]));
    assert_eq!(client.wire.take().get("Rights"), None, "warm");

    let (seven, _) = look(&client, &caller(1001), "f7");
    maker
        .venus
        .access()
        .set_acl(&RequestContext::of(&root), seven, Some(&list(&[(2, "rw")])), None)
        .unwrap();
    let mut wanted = vec!["rl"; 30];
    wanted[7] = "l";
    assert_eq!(walk(1001), wanted);
    assert_eq!(client.wire.take().get("Rights"), Some(&2), "for the directory and the file");
    let mut wanted = vec!["l"; 30];
    wanted[7] = "rlw";
    assert_eq!(walk(1002), wanted);
    assert_eq!(walk(1002), wanted);
    assert_eq!(client.wire.take().get("Rights"), Some(&2));
    maker.venus.access().set_acl(&RequestContext::of(&root), seven, None, None).unwrap();
    assert_eq!(walk(1002), vec!["l"; 30]);
    assert_eq!(client.wire.take().get("Rights"), Some(&1));
}

#[test]
fn a_list_change_that_did_not_see_the_last_one_is_refused() {
    let server = TestServer::with_principals(Arc::new(Known));
    let client = server.client(1);
    let root = Caller::ROOT;
    let request = RequestContext::of(&root);
    client.venus.access().set_acl(&request, server.root, Some(&list(&[(1, "rl")])), None).unwrap();
    // Eight threads at once, each of which adds one entry.
    std::thread::scope(|scope| {
        for number in 10..18 {
            let (client, request) = (&client, &request);
            scope.spawn(move || {
                loop {
                    let (_, mut seen) = client.venus.access().acl(request, client.root).unwrap();
                    let sum = seen.sum();
                    assert!(seen.set(PrincipalId(number), Rights::READ, false));
                    match client.venus.access().set_acl(
                        request,
                        client.root,
                        Some(&seen),
                        Some(sum),
                    ) {
                        Ok(()) => break,
                        Err(venus::Error::Fault(Fault::Conflict)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let all: Vec<i32> = client
        .venus
        .access()
        .acl(&request, server.root)
        .unwrap()
        .1
        .positive()
        .iter()
        .map(|entry| entry.who.0)
        .collect();
    assert_eq!(all, [1, 10, 11, 12, 13, 14, 15, 16, 17]);
}
