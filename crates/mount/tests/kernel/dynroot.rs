//! The dynamic root, which shows cells.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use types::{Call, Caller, Fault, Name, VolumeCall, VolumeKind};
use venus::{DYNROOT, Dynroot, Error, KnownCells, RequestContext, VenusConfig, Volumes};

use crate::cell::{Cell, Client, eventually};

/// The cells that can be found, and a count of the requests.
#[derive(Default)]
struct World {
    listed: Mutex<Vec<String>>,
    asked: Mutex<BTreeMap<String, u32>>,
    root: OnceLock<Weak<Volumes>>,
}

struct Known(Arc<World>);

impl KnownCells for Known {
    fn own(&self) -> Option<String> {
        Some("our.test".to_owned())
    }

    fn listed(&self) -> Vec<String> {
        self.0.listed.lock().clone()
    }

    fn finds(&self, cell: &str) -> bool {
        *self.0.asked.lock().entry(cell.to_owned()).or_default() += 1;
        cell == "found.test"
    }

    fn is_released(&self, cell: &str) -> Option<bool> {
        let point = types::MountPoint::parse(format!("#{cell}:root.cell").as_bytes()).unwrap();
        let volumes = self.0.root.get()?.upgrade()?.of_cell(&point).ok()?;
        let released = Name::new(b"root.cell.readonly").unwrap();
        Some(volumes.find(&RequestContext::of(&Caller::ROOT), &released).is_ok())
    }
}

fn release(cell: &Cell) {
    let (of, name) = (cell.root("root.cell").volume, Name::new(b"root.cell.readonly").unwrap());
    let call = VolumeCall::Clone { id: None, of, name, kind: VolumeKind::ReadOnly, replace: false };
    cell.session().call(&Caller::ROOT, Call::Volume(call), None).unwrap();
}

fn mount(world: &Arc<World>, ours: &Cell, found: &Cell) -> Client {
    let root = Volumes::of(
        Dynroot::start(Box::new(Known(Arc::clone(world)))).unwrap(),
        VenusConfig::default(),
    );
    world.root.set(Arc::downgrade(&root)).unwrap();
    let sessions = [("our.test", ours.session()), ("found.test", found.session())];
    let reach = move |cell: &str| {
        let session =
            sessions.iter().find(|(name, _)| *name == cell).map(|(_, session)| Arc::clone(session));
        Ok(Volumes::of(session.ok_or(Error::Fault(Fault::NoVolume))?, VenusConfig::default()))
    };
    root.has_neighbours(None, Box::new(reach));
    ours.mount_from(root, DYNROOT)
}

fn names(client: &Client) -> Vec<String> {
    let each = fs::read_dir(client.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = each.collect();
    names.sort();
    names
}

#[test]
fn the_root_shows_the_cells_that_are_known_and_finds_others() {
    let (Some(ours), Some(found)) = (Cell::start(), Cell::start()) else { return };
    let world = Arc::new(World::default());
    for cell in [&ours, &found] {
        cell.add_volume("root.cell");
        cell.add_volume("home");
        cell.point("root.cell", "home", "#home");
    }
    release(&found);
    let client = mount(&world, &ours, &found);
    assert!(
        [".our", "our", "our.test"]
            .iter()
            .all(|name| names(&client).iter().any(|shown| shown == name))
    );
    fs::write(client.at("our.test/home/file"), "ours").unwrap();
    assert_eq!(
        fs::read_to_string(client.at("our/home/file")).unwrap(),
        "ours",
        "by its short name"
    );
    assert_eq!(
        fs::read_to_string(client.at(".our/home/file")).unwrap(),
        "ours",
        "nothing is released there"
    );
    let own = [".our", ".our.test", "our", "our.test"];
    eventually("what was found out is listed", || names(&client) == own);
    assert_eq!(fs::read_link(client.at(".our.test")).unwrap().to_str(), Some("our.test"));

    // It is the edge of a file system, and nothing can be made in it.
    let device = |at: &str| fs::metadata(client.at(at)).unwrap().dev();
    assert_eq!(device("") == device("our.test"), crate::is_flat());
    assert_eq!(fs::create_dir(client.at("new")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::metadata(client.at("")).unwrap().mode(), 0o40755);
    assert_eq!(rustix::fs::statvfs(client.at("")).unwrap().f_blocks, 0);

    // An absent cell is requested once, and an impossible name not at all.
    for absent in ["nobody.test", ".git", "HEAD", "Absent.Test", "-x.test"] {
        for _ in 0..3 {
            assert_eq!(
                fs::metadata(client.at(absent)).unwrap_err().kind(),
                ErrorKind::NotFound,
                "{absent}"
            );
        }
    }
    assert_eq!(*world.asked.lock(), BTreeMap::from([("nobody.test".to_owned(), 1)]));

    // A cell that is in no list.
    assert_eq!(names(&client), own);
    assert_eq!(fs::read_dir(client.at("found.test/home")).unwrap().count(), 0);
    assert_eq!(
        fs::write(client.at("found.test/new"), "").unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    fs::write(client.at(".found.test/new"), "written").unwrap();
    assert!(fs::metadata(client.at("found.test/new")).is_err(), "released later, or never");
    let all = [".found.test", ".our", ".our.test", "found.test", "our", "our.test"];
    eventually("what was found is listed", || names(&client) == all);
    assert_eq!(world.asked.lock()["found.test"], 1);
    assert_eq!(
        fs::read_to_string(client.at("our/home/file")).unwrap(),
        "ours",
        "and nobody was detached"
    );
    // Three below the root, and in one mount those below them too.
    assert_eq!(client.volumes_below(), if crate::is_flat() { 5 } else { 3 });
}

#[test]
fn cells_listed_later_are_shown_and_take_the_short_name() {
    let (Some(ours), Some(found)) = (Cell::start(), Cell::start()) else { return };
    let world = Arc::new(World::default());
    ours.add_volume("root.cell");
    let client = mount(&world, &ours, &found);
    fs::write(client.at("our/file"), "ours").unwrap();
    assert_eq!(fs::metadata(client.at("our.other")).unwrap_err().kind(), ErrorKind::NotFound);
    world.listed.lock().push("our.other".to_owned());
    eventually("the list is read again", || names(&client).contains(&"our.other".to_owned()));
    eventually("what is released is asked for", || {
        names(&client).contains(&".our.test".to_owned())
    });
    assert_eq!(names(&client), [".our.test", "our.other", "our.test"]);
    assert_eq!(fs::read_to_string(client.at("our.test/file")).unwrap(), "ours");
    // The kernel is notified of each name separately, after the list has changed.
    let error = |at: &str| {
        fs::read_dir(client.at(at)).err().and_then(|error| rustix::io::Errno::from_io_error(&error))
    };
    eventually("the short name is another's too", || {
        error("our/file") == Some(rustix::io::Errno::NOENT)
    });
    eventually("nobody knows where it is", || error("our.other") == Some(rustix::io::Errno::NODEV));
}
