//! Spans and waits of requests, as a listener in the process sees them.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::*;
use observe::names::{CLIENT_CALL, FIELDS, SERVER_CALL, TARGET};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use types::{Answer, Call};

/// A span: its name and its fields as text.
type Seen = (&'static str, BTreeMap<&'static str, String>);

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Seen>>>);

impl<S: tracing::Subscriber> Layer<S> for Listener {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, S>,
    ) {
        if attributes.metadata().target() != TARGET {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        self.0.lock().unwrap().push((attributes.metadata().name(), fields.0));
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

#[test]
fn a_call_has_a_span_at_the_client_and_one_at_the_server() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(listener.clone()))
        .unwrap();
    let cell = Cell::new();
    let session = connect(cell.tcp());
    let dir = root(&session);
    let file = make(&session, dir, "file");
    write(&session, file, 0, &b"text"[..]);
    ask(&session, Call::Commit { fid: file });
    let Answer::Report(report) = ask(&session, Call::ServerReport) else { panic!("a report") };

    let seen = listener.0.lock().unwrap().clone();
    for layer in [CLIENT_CALL, SERVER_CALL] {
        let write = seen.iter().find(|(name, fields)| *name == layer && fields["op"] == "write");
        let (_, fields) = write.unwrap_or_else(|| panic!("{layer} of Write in {seen:?}"));
        let names: Vec<&str> = fields.keys().copied().collect();
        let mut expected = FIELDS.map(|(name, _)| name);
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(fields["fid"], file.to_string());
        assert_eq!(fields["volume"], file.volume.0.to_string());
    }
    let sessions = |layer| {
        let of_layer = seen.iter().filter(move |(name, _)| *name == layer);
        of_layer.filter_map(|(_, fields)| fields.get("session").cloned()).collect::<Vec<_>>()
    };
    let at_client = sessions(CLIENT_CALL);
    assert!(!at_client.is_empty());
    assert!(at_client.iter().all(|session| sessions(SERVER_CALL).contains(session)));

    for wait in ["server_call", "client_call"] {
        assert!(report.contains(&format!("\"name\":\"{wait}\"")), "{wait}: {report}");
    }
}
