use super::*;

fn read(line: &str) -> Result<String, String> {
    let mut words = line.split(' ').map(OsString::from);
    let suite = words.next().expect("a suite");
    let read = read_line(&suite.to_string_lossy(), &words.collect::<Vec<_>>());
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    read.map(|line| line.words.iter().map(text).collect::<Vec<_>>().join(" "))
        .map_err(|failure| failure.to_string())
}

#[test]
fn every_word_of_openafs_is_ours_or_has_its_reason() {
    let mut missing = Vec::new();
    for suite in ["fs", "pts", "vos"] {
        let mut cli = Cli::command();
        let command = cli.find_subcommand_mut(suite).expect("a suite");
        command.build();
        // The parser makes the verb help; typed.rs answers version.
        let verbs = verbs(suite).filter(|row| !["help", "version"].contains(&row.name));
        for row in verbs {
            let Some(own) = find(command, row.name) else {
                if foreign_verb(suite, row.name).is_none() {
                    missing.push(format!("{suite} {}", row.name));
                }
                continue;
            };
            let has = own_options(own);
            for option in row.options() {
                let is_own = has.iter().any(|(name, _)| name == option.name);
                let foreign = foreign_option(suite, row.name, option.name).is_some();
                if is_own == foreign {
                    missing.push(format!("{suite} {} -{}", row.name, option.name));
                }
            }
        }
    }
    assert_eq!(missing, [""; 0], "neither ours nor foreign, or both");
}

#[test]
fn a_word_means_what_openafs_makes_of_it() {
    for (typed, meant) in [
        ("vos e root.cell", "vos examine root.cell"),
        ("vos exa -i 5", "vos examine --id 5"),
        ("vos volinfo 5", "vos examine 5"),
        ("vos listvol -s a -p b -q", "vos listvol --server a --partition b --quiet"),
        ("vos listvldb -na x -loca", "vos listvldb --name x --localauth"),
        ("vos -c there rename -o a -newn b", "vos --cell there rename --oldname a --newname b"),
        ("vos --dir /x create a vicep v", "vos --dir /x create a vicep v"),
        // -model is an option of this program alone.
        ("vos create -m 5 -model acl", "vos create --maxquota 5 --model acl"),
        ("vos create a b v -encrypt-at-rest", "vos create a b v --encrypt-at-rest"),
        ("vos create a b v -e", "vos create a b v"),
        ("vos create a b v -noencrypt", "vos create a b v --noencrypt"),
        ("vos evac x -tos y", "vos evacuate x --toserver y"),
        ("vos snap c v before", "vos snapshot create v before"),
        ("vos backupsys -noexecute", "vos backupsys --noexecute"),
        ("vos restore -na x -ov full -fi=f", "vos restore --name x --overwrite full --file=f"),
        ("pts cu joe -i 5", "pts createuser joe --id 5"),
        ("pts cg joe:x -o joe", "pts creategroup joe:x --owner joe"),
        ("pts groups joe -s", "pts membership joe --supergroups"),
        ("pts check -5", "pts examine -5"),
        ("pts chname a b", "pts rename a b"),
        ("pts adduser -u a b -g c d", "pts adduser --user a b --group c d"),
        ("pts listent -g", "pts listentries --groups"),
        ("fs la", "fs listacl"),
        ("fs sa -d . -a joe rl -n", "fs setacl --dir . --acl joe rl --negative"),
        ("fs checkb", "fs checkvolumes"),
        ("fs removem x", "fs rmmount x"),
        ("fs gp", "fs getserverprefs"),
        ("fs sp -se a 5", "fs setserverprefs --servers a 5"),
        ("fs mkm -d x -v y -r", "fs mkmount --dir x --vol y --rw"),
        ("fs mkm x -- -y", "fs mkmount x -- -y"),
        ("vos zork -x", "vos zork -x"),
    ] {
        assert_eq!(read(typed).as_deref(), Ok(meant.split_once(' ').unwrap().1), "{typed}");
    }
}

#[test]
fn an_ambiguous_word_is_refused_with_its_candidates() {
    for (typed, candidates) in [
        ("vos l", "it may mean listaddrs, listpart, listvldb, listvol, lock;"),
        ("vos rel", ""),
        ("vos listvol -l", "it may mean -localauth, -long;"),
        ("vos listvldb -loc", "it may mean -localauth, -locked;"),
        ("vos listvldb -n x", "it may mean -name, -noauth, -noresolve, -nosort;"),
        ("vos move -id x -fr", "it may mean -frompartition, -fromserver;"),
        ("pts lis", "it may mean listentries, listmax, listowned;"),
        ("pts create x", "it may mean creategroup, createuser;"),
        ("fs flushv x", ""),
        ("fs flushm", ""),
        ("fs get", "it may mean getcacheparms, getcalleraccess, "),
    ] {
        match read(typed) {
            Ok(_) => assert_eq!(candidates, "", "{typed}"),
            Err(why) => assert!(!candidates.is_empty() && why.contains(candidates), "{why}"),
        }
    }
}

#[test]
fn options_that_do_nothing_are_said_and_others_refused() {
    let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
    let line = read_line("vos", &words("release -f -noresolve -encrypt home")).unwrap();
    assert_eq!(line.words, ["release", "home"]);
    assert_eq!(line.notes.len(), 2, "{:?}", line.notes);
    assert!(line.notes[0].starts_with("-force does nothing: "), "{:?}", line.notes);
    // A script that means the disk by it learns the option's new name.
    let line = read_line("vos", &words("create a v -encrypt")).unwrap();
    assert_eq!(line.words, ["create", "a", "v"]);
    assert!(line.notes[0].contains("-encrypt-at-rest encrypts the volume"), "{:?}", line.notes);
    // Their values go with them.
    let line = read_line("vos", &words("copy v -froms a -fromp b -ton c")).unwrap();
    assert_eq!(line.words, ["copy", "v", "--toname", "c"]);
    let refused = read("vos clone v -toi 5").unwrap_err();
    assert_eq!(refused, "reading the option -toid: the cell gives the number");
    let refused = read("vos remaddrs v").unwrap_err();
    assert!(refused.contains("vos changeaddr"), "{refused}");
}

/// The document has the reasons of the program, in its order.
#[test]
fn the_document_names_every_foreign_word() {
    use foreign::{FOREIGN_OPTIONS, FOREIGN_VERBS};
    let document = include_str!("../../../../../docs/operations/openafs-commands.md");
    let how = |how: &ForeignUse| match how {
        ForeignUse::AlwaysSo => "always so",
        ForeignUse::NoMeaning => "does nothing, with a note",
        ForeignUse::Refused => "refused",
    };
    let options = FOREIGN_OPTIONS.iter().map(|(suite, verb, name, met, why)| {
        let verb = if *verb == "*" { String::new() } else { format!(" {verb}") };
        format!("| `{suite}{verb} -{name}` | {} | {why} |", how(met))
    });
    let verbs =
        FOREIGN_VERBS.iter().map(|(suite, verb, why)| format!("| `{suite} {verb}` | {why} |"));
    let rows: Vec<String> = options.chain(verbs).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !document.contains(*row)).collect();
    assert!(missing.is_empty(), "not in the document: {missing:#?}");
    let count = document.lines().filter(|line| line.starts_with("| `")).count();
    let programs = super::PROGRAMS.iter().filter(|program| {
        let row = format!("| `{}", program.name);
        let command = format!("| `rialto {}", program.command.join(" "));
        document.lines().any(|line| line.starts_with(&row) && line.contains(&command))
    });
    assert_eq!(programs.count(), super::PROGRAMS.len(), "a program has another row, or none");
    let wanted = rows.len() + super::PROGRAMS.len();
    assert_eq!(count, wanted, "the document has rows that the program has not");
}
