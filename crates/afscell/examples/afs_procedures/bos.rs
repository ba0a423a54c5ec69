//! BOZO: the processes of a machine, in which an instance `rialto` is expected.

use afs3::RpcMessage as _;
use afs3::bos::{BosAnswer, BosCall, BosText, KTime, PORT, SERVICE};
use afs3::xdr::Chars;

use crate::asking::{Asker, Place, long_text, raw};

const BOZO: Place = Place { name: "BOZO", port: PORT, service: SERVICE };

fn text(of: &str) -> BosText {
    BosText::new(of.as_bytes()).unwrap()
}

struct Of<'a>(&'a mut Asker);

impl Of<'_> {
    fn ask(&mut self, case: &str, call: &BosCall) -> Option<BosAnswer> {
        self.0.ask(BOZO, case, &call.to_request())
    }
}

pub fn ask(asker: &mut Asker) {
    let mut of = Of(asker);
    read(&mut of);
    change(&mut of);
    for number in [79, 117] {
        of.0.ask::<BosAnswer>(BOZO, "unknown procedure", &raw(number, |_| {}));
    }
    let too_long = raw(83, |to| long_text(to, 257));
    of.0.ask::<BosAnswer>(BOZO, "a name of 257 bytes", &too_long);
    // OpenAFS's server looks before the front of its keys, and may end by that.
    of.ask("negative", &BosCall::ListKeys { index: -1 });
    // It looks for its program where it is installed, and ends if it is not.
    of.ask("a change", &BosCall::ReBozo {});
}

fn read(of: &mut Of<'_>) {
    for (case, index) in [("the first", 0), ("beyond the end", 99), ("negative", -1)] {
        of.ask(case, &BosCall::EnumerateInstance { index });
        of.ask(case, &BosCall::ListSUsers { index });
        if index >= 0 {
            of.ask(case, &BosCall::ListKeys { index });
        }
        of.ask(case, &BosCall::GetCellHost { index: index as u32 });
    }
    for (case, instance) in
        [("the instance", "rialto"), ("none", ""), ("unknown", "nothere"), ("long", LONG)]
    {
        of.ask(case, &BosCall::GetStatus { instance: text(instance) });
        of.ask(case, &BosCall::GetInstanceInfo { instance: text(instance) });
        of.ask(case, &BosCall::GetInstanceStrings { instance: text(instance) });
        for number in [0, 9, 999, -1] {
            let case = format!("{case}, parameter {number}");
            of.ask(&case, &BosCall::GetInstanceParm { instance: text(instance), number });
        }
    }
    of.ask("it", &BosCall::GetCellName {});
    for kind in [0, 1, 2, 3, -1] {
        of.ask(&format!("kind {kind}"), &BosCall::GetRestartTime { kind });
    }
    of.ask("it", &BosCall::GetRestrictedMode {});
    for path in ["/usr/lib/openafs/nothere", "", "nothere"] {
        of.ask(&format!("of '{path}'"), &BosCall::GetDates { path: text(path) });
    }
    for name in ["/nothere", "nothere", ""] {
        of.ask(&format!("'{name}'"), &BosCall::GetLog { name: text(name) });
    }
    of.ask("it", &BosCall::WaitAll {});
}

/// A name of 256 bytes.
const LONG: &str = concat!(
    "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii",
    "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii",
    "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii",
    "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii",
);

fn change(of: &mut Of<'_>) {
    let none = || text("");
    let instance = || text("nothere");
    let create = BosCall::CreateBnode {
        kind: text("nosuchtype"),
        instance: instance(),
        p1: none(),
        p2: none(),
        p3: none(),
        p4: none(),
        p5: none(),
        p6: text("__NONOTIFIER__"),
    };
    of.ask("of an unknown kind", &create);
    of.ask("unknown", &BosCall::DeleteBnode { instance: instance() });
    of.ask("unknown", &BosCall::SetStatus { instance: instance(), status: 1 });
    of.ask("unknown", &BosCall::SetTStatus { instance: instance(), status: 1 });
    of.ask("unknown", &BosCall::Restart { instance: instance() });
    of.ask("unknown", &BosCall::DeleteSUser { name: text("nothere") });
    of.ask("unknown", &BosCall::DeleteKey { version: 99 });
    of.ask("unknown", &BosCall::DeleteCellHost { name: text("nothere") });
    of.ask("unknown", &BosCall::UnInstall { path: text("/nothere") });
    let install = |path: &str| BosCall::Install { path: text(path), size: 0, flags: 0, date: 0 };
    of.ask("unknown", &install("/nothere/x"));
    of.ask("of everything", &BosCall::Prune { flags: 0 });
    of.ask("of no kind", &BosCall::SetRestartTime { kind: 9, time: KTime::default() });
    of.ask("nothing", &BosCall::StartupAll {});
    of.ask("true", &BosCall::Exec { command: text("true") });
    // Each is undone by the next.
    let cell = of.0.cell.clone();
    let key = Chars::new(b"1234567").unwrap();
    for call in [
        BosCall::AddSUser { name: text("mallory") },
        BosCall::AddSUser { name: text("mallory") },
        BosCall::ListSUsers { index: 0 },
        BosCall::DeleteSUser { name: text("mallory") },
        BosCall::AddKey { version: 99, key },
        BosCall::AddKey { version: 99, key },
        BosCall::DeleteKey { version: 99 },
        BosCall::SetCellName { name: text("else.where") },
        BosCall::SetCellName { name: text(&cell) },
        BosCall::AddCellHost { name: text("host.else.where") },
        BosCall::DeleteCellHost { name: text("host.else.where") },
        BosCall::ShutdownAll {},
        BosCall::RestartAll {},
        BosCall::SetRestrictedMode { mode: 1 },
        BosCall::SetRestrictedMode { mode: 0 },
        BosCall::SetNoAuthFlag { flag: 1 },
        BosCall::SetNoAuthFlag { flag: 0 },
    ] {
        of.ask("a change", &call);
    }
}
