//! Breaks: each reaches the sink once and is acknowledged once, over the connection that carried it
//! (DA-3), when the sink says so (CB-1).

use std::sync::Arc;

use crate::common::events::{Event, Recorder};
use crate::common::{FID, ScriptedServer, call, get_status, name, status};
use client::{BreakAck, Cell, Remote};
use parking_lot::Mutex;
use types::{Answer, BreakId, BreakItem, BreakReason, Call, Fid, VolumeCall};

fn item(fid: Fid) -> BreakItem {
    BreakItem { fid, reason: BreakReason::Data, name: None }
}

fn wait_acknowledged(server: &ScriptedServer, id: BreakId) -> Vec<Fid> {
    server.wait("the acknowledgement", |state| {
        state.acknowledged.iter().any(|(known, _)| *known == id)
    });
    let all = server.look(|state| state.acknowledged.clone());
    let mut of: Vec<_> = all.into_iter().filter(|(known, _)| *known == id).collect();
    assert_eq!(of.len(), 1, "acknowledged once");
    of.remove(0).1
}

fn start() -> (ScriptedServer, Arc<client::Session>, Arc<Recorder>) {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    server.wait("the back connection", |state| state.bound == 1);
    (server, session, recorder)
}

#[test]
fn a_break_is_acknowledged_with_the_files_that_are_held() {
    let (server, _session, recorder) = start();
    recorder.held.lock().push(FID);
    let id = server.break_promises(&[item(FID), item(Fid::new(7, 4, 1))]);
    assert_eq!(wait_acknowledged(&server, id), [FID]);
    let both = Event::Break(vec![item(FID), item(Fid::new(7, 4, 1))]);
    assert!(recorder.log().contains(&both));
}

#[test]
fn cb1_a_break_is_acknowledged_when_the_sink_says_so() {
    let (server, session, recorder) = start();
    *recorder.keeps.lock() = true;
    let first = server.break_promises(&[item(FID)]);
    recorder.wait_breaks(1);
    // Others are delivered and acknowledged meanwhile.
    *recorder.keeps.lock() = false;
    let second = server.break_promises(&[item(Fid::new(7, 4, 1))]);
    wait_acknowledged(&server, second);
    assert!(server.look(|state| state.acknowledged.iter().all(|(id, _)| *id != first)));
    let asking = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok(), "calls go on");
    recorder.acknowledge();
    wait_acknowledged(&server, first);
}

#[test]
fn da3_a_break_is_acknowledged_over_the_next_connection() {
    let (server, _session, recorder) = start();
    *recorder.keeps.lock() = true;
    let id = server.break_promises(&[item(FID)]);
    recorder.wait_breaks(1);
    server.cut();
    server.wait("the client is back", |state| state.attached.len() == 2 && state.bound == 2);
    *recorder.keeps.lock() = false;
    recorder.acknowledge();
    wait_acknowledged(&server, id);
}

#[test]
fn a_break_of_an_ended_session_is_not_acknowledged_later() {
    let (server, session, recorder) = start();
    *recorder.keeps.lock() = true;
    server.break_promises(&[item(FID)]);
    recorder.wait_breaks(1);
    server.end_sessions();
    recorder.wait(1, |event| *event == Event::LeaseLost);
    server.wait("another session", |state| state.attached.len() == 2);
    // The numbers begin again there: this acknowledgement would be another break's.
    recorder.acknowledge();
    let asking = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok());
    assert_eq!(server.look(|state| state.acknowledged.len()), 0);
}

#[test]
fn a_break_of_an_earlier_server_instance_is_not_acknowledged() {
    let (server, session, recorder) = start();
    server.always(|call| matches!(call, Call::ReclaimDone).then_some(Ok(Answer::Done)));
    *recorder.keeps.lock() = true;
    server.break_promises(&[item(FID)]);
    recorder.wait_breaks(1);
    server.restart(false);
    recorder.wait_restarts(1);
    recorder.acknowledge();
    let asking = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok());
    assert_eq!(server.look(|state| state.acknowledged.len()), 0);
}

#[test]
fn breaks_without_a_sink_are_acknowledged_at_once() {
    let server = ScriptedServer::start();
    let _session = server.session();
    let id = server.break_promises(&[item(FID)]);
    assert_eq!(wait_acknowledged(&server, id), []);
}

#[test]
fn breaks_come_in_order_and_while_calls_wait() {
    let (server, session, recorder) = start();
    let asking = call(&session, get_status());
    let received = server.next();
    let ids: Vec<BreakId> =
        (1..=50).map(|number| server.break_promises(&[item(Fid::new(7, 2 * number, 1))])).collect();
    for id in ids {
        wait_acknowledged(&server, id);
    }
    let breaks = |event: &Event| match event {
        Event::Break(items) => Some(items[0].fid.vnode.0),
        _ => None,
    };
    let order: Vec<u64> = recorder.log().iter().filter_map(breaks).collect();
    assert_eq!(order, (1..=50).map(|number| 2 * number).collect::<Vec<_>>());
    server.answer(&received, Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok());
}

#[test]
fn a_late_sink_learns_of_the_running_lease() {
    let server = ScriptedServer::start();
    let session = server.session();
    let first = Recorder::of(&*session);
    first.wait(1, |event| *event == Event::Renewed);
    let second = Recorder::of(&*session);
    second.wait(1, |event| *event == Event::Renewed);
}

#[test]
fn a_break_of_several_volumes_waits_for_all_of_them() {
    let server = ScriptedServer::start();
    server.always(|call| match call {
        Call::Volume(VolumeCall::Examine { volume: types::WhichVolume::Name(of) }) => {
            let id = if *of == name("one") { 7 } else { 8 };
            let volumes = vec![types::VolumeInfo {
                id: types::VolumeId(id),
                tree: types::VolumeId(id),
                kind: types::VolumeKind::ReadWrite,
                state: types::VolumeState::Online,
                partition: types::PartitionNo(0),
                epoch: 1,
                origin: None,
                name: of.clone(),
                created: Default::default(),
                updated: Default::default(),
                quota_bytes: 0,
                quota_files: 0,
                used_bytes: 0,
                used_files: 0,
                encrypted: None,
            }];
            Some(Ok(Answer::Volumes { volumes, end: true }))
        }
        _ => None,
    });
    let cell = Cell::new(server.session());
    let one = cell.find(&name("one"), None).unwrap();
    let two = cell.find(&name("two"), None).unwrap();
    let (of_one, of_two) = (Recorder::of(&*one), Recorder::of(&*two));
    *of_two.keeps.lock() = true;
    let (mine, yours) = (Fid::new(7, 2, 1), Fid::new(8, 2, 1));
    of_one.held.lock().push(mine);
    of_two.held.lock().push(yours);
    let id = server.break_promises(&[item(mine), item(yours), item(Fid::new(9, 2, 1))]);
    of_one.wait_breaks(1);
    of_two.wait_breaks(1);
    assert_eq!(server.look(|state| state.acknowledged.len()), 0);
    of_two.acknowledge();
    let mut held = wait_acknowledged(&server, id);
    held.sort_unstable();
    assert_eq!(held, [mine, yours]);
    assert!(one.stands() && two.stands());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "CB-1")]
fn cb1_an_acknowledgement_that_is_dropped_is_a_fault() {
    drop(BreakAck::new(|_| ()));
}

#[test]
fn parts_of_an_acknowledgement_send_it_once() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let ack = BreakAck::new(move |held| log.lock().push(held));
    let mut parts = ack.split(3);
    let files = [2, 4, 6].map(|vnode| Fid::new(7, vnode, 1));
    for (part, file) in parts.iter_mut().zip(files) {
        part.hold([file]);
    }
    while let Some(part) = parts.pop() {
        assert_eq!(sent.lock().len(), 0, "a part is left");
        std::thread::spawn(move || part.acknowledge()).join().unwrap();
    }
    let mut held = sent.lock().remove(0);
    held.sort_unstable();
    assert_eq!(held, files);
    assert_eq!(sent.lock().len(), 0);
}
