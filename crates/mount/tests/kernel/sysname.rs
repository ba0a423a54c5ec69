//! `@sys` in names.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::cell::Cell;

fn read(path: &Path) -> Result<String, ErrorKind> {
    fs::read_to_string(path).map_err(|error| error.kind())
}

fn order(at: &Path, list: &str) {
    rustix::fs::getxattr(at, format!("rialto.do:sysname:{list}"), &mut [0_u8; 8]).unwrap();
}

fn list(at: &Path) -> String {
    let mut bytes = [0; 256];
    let length = rustix::fs::getxattr(at, "rialto.sysname", &mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[test]
fn names_with_sys_mean_the_first_existing_of_the_list() {
    let Some(cell) = Cell::start() else { return };
    cell.add_volume("work");
    cell.point("root", "work", "%work");
    let (client, other) = (cell.mount(), cell.mount());
    order(&client.at(""), "one two");
    assert_eq!(
        [list(&client.at("")), list(&client.at("work"))],
        ["one two", "one two"],
        "of the whole mount"
    );
    assert_ne!(list(&other.at("")), "one two", "and of no other");
    for dir in ["", "work/"] {
        let (at, there) = (
            |name: &str| client.at(&format!("{dir}{name}")),
            |name: &str| other.at(&format!("{dir}{name}")),
        );
        let (sys, end) = (at("@sys/bin/tool"), at("lib.@sys"));
        for absent in [&sys, &end, &at("@sys")] {
            assert_eq!(read(absent), Err(ErrorKind::NotFound));
            assert_eq!(read(absent), Err(ErrorKind::NotFound), "asked again");
        }
        fs::create_dir_all(at("two/bin")).unwrap();
        fs::write(at("two/bin/tool"), "two").unwrap();
        fs::write(at("lib.two"), "two").unwrap();
        std::os::unix::fs::symlink("@sys/bin/tool", at("tool")).unwrap();
        assert_eq!(
            [read(&sys), read(&at("tool")), read(&end)],
            [Ok("two".into()), Ok("two".into()), Ok("two".into())]
        );
        // Another client adds an entry that takes precedence.
        fs::create_dir_all(there("one/bin")).unwrap();
        fs::write(there("one/bin/tool"), "one").unwrap();
        fs::write(there("lib.one"), "one").unwrap();
        assert_eq!(
            [read(&sys), read(&at("tool")), read(&end)],
            [Ok("one".into()), Ok("one".into()), Ok("one".into())]
        );
        assert_eq!(
            read(&at("two/bin/tool")),
            Ok("two".into()),
            "under its own name it is what it was"
        );
        fs::remove_file(there("lib.one")).unwrap();
        assert_eq!(read(&end), Ok("two".into()));
        // Another list.
        order(&at(""), "two one");
        assert_eq!([read(&sys), read(&at("tool"))], [Ok("two".into()), Ok("two".into())]);
        order(&at(""), "three");
        assert_eq!(read(&sys), Err(ErrorKind::NotFound));
        // If nothing of the list exists, the name means itself.
        fs::write(at("lib.@sys"), "itself").unwrap();
        assert_eq!([read(&end), read(&at("lib.two"))], [Ok("itself".into()), Ok("two".into())]);
        order(&at(""), "one two");
        assert_eq!(read(&end), Ok("two".into()));
    }
}
