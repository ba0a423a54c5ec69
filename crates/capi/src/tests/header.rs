//! The header says what the crate has: functions, numbers, structs; and compilers take it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use types::{DataUse, Fault, Kind};

use crate::completions::CompletionRecord;
use crate::error::{OWN, errno_of_fault, of_fault, rialto_abi, rialto_errno};
use crate::names::EntryRecord;
use crate::operations::{CREATE, EXCLUSIVE, TRUNCATE};
use crate::records::{StatusRecord, TimeRecord};
use crate::sharing::HowRecord;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The header without its comments.
fn header() -> String {
    let text = std::fs::read_to_string(here("include/rialto.h")).unwrap();
    let mut code = String::new();
    for (at, part) in text.split("/*").enumerate() {
        let rest = if at == 0 { part } else { part.split_once("*/").unwrap().1 };
        code.push_str(rest);
    }
    code
}

/// The words that begin with this and are followed by an opening bracket.
fn functions(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices("rialto_") {
        let is_begin = text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if is_begin && rest[end..].starts_with('(') {
            let arguments = rest[end..].split([';', '{']).next().unwrap();
            found.insert(rest[..end].to_owned(), arguments.to_owned());
        }
    }
    found
}

/// The functions that the crate exports, by their text.
fn exported() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(here("src")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, rest) = part.split_once("extern \"C\" fn ").unwrap();
            let name = rest.split('(').next().unwrap().to_owned();
            let arguments = rest[name.len()..].split("->").next().unwrap().to_owned();
            all.insert(name, arguments);
        }
    }
    all
}

/// How many arguments a list of them has: `(a: T, b: fn(T, U))`, or C's.
fn arity(arguments: &str) -> usize {
    let (mut depth, mut count, mut is_empty) = (0, 0, true);
    for c in arguments.chars() {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' if depth == 1 => break,
            ')' | '>' => depth -= 1,
            ',' if depth == 1 => {
                count += 1;
                is_empty = true;
            }
            c if !c.is_whitespace() && depth == 1 => is_empty = false,
            _ => {}
        }
    }
    let none = arguments.replace(char::is_whitespace, "").starts_with("(void)");
    count + usize::from(!is_empty && !none)
}

#[test]
fn header_and_crate_have_the_same_functions() {
    let (header, crate_has) = (functions(&header()), exported());
    assert!(crate_has.len() > 30, "{crate_has:?}");
    let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&header), names(&crate_has));
    for (name, arguments) in &crate_has {
        assert_eq!(arity(&header[name]), arity(arguments), "arguments of {name}");
    }
}

/// The numbers of the header: each `NAME = NUMBER`.
fn numbers() -> BTreeMap<String, i64> {
    let text = header();
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .windows(3)
        .filter(|words| words[0].starts_with("RIALTO_") && words[1] == "=")
        .map(|words| (words[0].to_owned(), words[2].trim_end_matches(',').parse().unwrap()))
        .collect()
}

#[test]
fn the_header_has_each_number_under_its_name() {
    let mut expected: BTreeMap<String, i64> = BTreeMap::from([("RIALTO_OK".to_owned(), 0)]);
    for fault in Fault::ALL {
        expected.insert(format!("RIALTO_E{fault:?}").to_uppercase(), of_fault(fault).into());
    }
    expected.extend(OWN.iter().map(|own| (own.name.to_owned(), own.number.into())));
    for kind in (1..=u8::MAX).filter_map(Kind::from_wire) {
        let mut name = String::from("RIALTO_KIND");
        for c in format!("{kind:?}").chars() {
            if c.is_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        expected.insert(name, kind as i64);
    }
    for one in DataUse::ALL {
        expected.insert(format!("RIALTO_USE_{one:?}").to_uppercase(), one as i64);
    }
    let flags = [("CREATE", CREATE), ("EXCLUSIVE", EXCLUSIVE), ("TRUNCATE", TRUNCATE)];
    expected.extend(flags.map(|(name, flag)| (format!("RIALTO_{name}"), i64::from(flag))));
    assert_eq!(numbers(), expected);
    let code = header();
    assert!(code.contains(&format!("#define RIALTO_ABI {}\n", rialto_abi())));
    let most = types::limits::PAYLOAD_BYTES_MAX;
    assert!(code.contains(&format!("#define RIALTO_OPERATION_BYTES_MAX {most}\n")));
}

#[test]
fn errnos_are_those_of_a_mount() {
    for fault in Fault::ALL {
        let mount = mount::errno_of_fault(fault).raw_os_error();
        assert_eq!(errno_of_fault(fault), mount, "{fault:?}");
        assert_eq!(rialto_errno(of_fault(fault)), mount);
    }
    assert_eq!(rialto_errno(0), 0);
    assert!(OWN.iter().all(|own| rialto_errno(own.number) == own.errno && own.number < -1000));
}

/// Assertions about the layout of each struct, in C and C++.
fn layout() -> String {
    let mut text = String::new();
    macro_rules! layout {
        ($rust:ty, $c:literal, $($field:ident),*) => {
            let _ = writeln!(text, "CHECK(sizeof({}) == {});", $c, size_of::<$rust>());
            $(let _ = writeln!(
                text, "CHECK(offsetof({}, {}) == {});",
                $c, stringify!($field), offset_of!($rust, $field)
            );)*
        };
    }
    layout!(TimeRecord, "rialto_time_t", seconds, nanoseconds, reserved);
    layout!(
        StatusRecord,
        "rialto_status_t",
        volume,
        vnode,
        unique,
        kind,
        mode,
        uid,
        gid,
        links,
        reserved,
        size,
        used,
        version,
        accessed,
        modified,
        changed,
        created
    );
    layout!(HowRecord, "rialto_how_t", access, deny, flags, mode, key, reserved);
    layout!(EntryRecord, "rialto_entry_t", name, name_bytes, kind, has_status, status);
    layout!(
        CompletionRecord,
        "rialto_completion_t",
        tag,
        buffer,
        error,
        reserved,
        bytes,
        offset,
        size,
        version
    );
    text
}

#[test]
fn compilers_of_c_and_cpp_take_the_header_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let languages = [
        ("cc", "-std=c11", "c", "#define CHECK(it) _Static_assert(it, #it)"),
        ("c++", "-std=c++17", "cpp", "#define CHECK(it) static_assert(it, #it)"),
    ];
    for (compiler, standard, ending, check) in languages {
        let program = dir.path().join(format!("program.{ending}"));
        // Twice: the header must guard itself.
        let include = "#include \"rialto.h\"\n";
        let mut text = format!("{include}{include}{check}\n{}", layout());
        // Each function has an address: the declarations are no macros.
        for name in functions(&header()).keys() {
            let _ = writeln!(text, "void take_{name}(void);");
            let _ = writeln!(text, "void take_{name}(void) {{ (void)&{name}; }}");
        }
        std::fs::write(&program, text).unwrap();
        let output = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
            .arg(here("include"))
            .arg(&program)
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {standard}: {said}");
    }
}
