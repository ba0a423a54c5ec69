//! `tidy` prints the figures of the source, `tidy RULE` the findings of one rule; `tidy --lower`
//! writes lower numbers into `ratchet.toml`.

use std::path::Path;
use std::process::ExitCode;

use tidy::{RULES, Ratchet, Tree, figures};

const HELP: &str = "\
Checks the source of the workspace.

Usage: tidy              prints the figures and the rules
       tidy RULE [CRATE] prints what a rule finds
       tidy --lower      writes the numbers of findings into crates/tidy/ratchet.toml

Example: cargo run -p tidy -- cycle venus";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&root, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidy: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, args: &[String]) -> Result<(), String> {
    let tree = Tree::read(root).map_err(|error| error.to_string())?;
    match args.first().map(String::as_str) {
        None => {
            println!("{:<36} {:>24}  bar", "figure", "now");
            for figure in figures(&tree) {
                println!("{:<36} {:>24}  {}", figure.name, figure.now, figure.bar);
            }
            println!();
            RULES.iter().for_each(|rule| println!("{:<12} {}", rule.name, rule.asks));
        }
        Some("-h" | "--help") => println!("{HELP}"),
        Some("--lower") => {
            let path = root.join("crates/tidy/ratchet.toml");
            let grown: Vec<String> = match Ratchet::read(&path) {
                Ok(before) => before.changes(&tree).into_iter(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Vec::new().into_iter()
                }
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
            .filter(|change| change.found.len() > change.allowed)
            .map(|change| change.to_string())
            .collect();
            if !grown.is_empty() {
                return Err(format!("fix these findings first:\n{}", grown.join("\n")));
            }
            std::fs::write(&path, Ratchet::of(&tree).text()).map_err(|error| error.to_string())?;
        }
        Some(name) => {
            let rule = RULES.iter().find(|rule| rule.name == name);
            let rule =
                rule.ok_or_else(|| format!("there is no rule '{name}'; 'tidy' lists them"))?;
            let place = args.get(1);
            let findings = (rule.find)(&tree).into_iter();
            findings
                .filter(|finding| place.is_none_or(|place| finding.place == *place))
                .for_each(|finding| println!("{finding}"));
        }
    }
    Ok(())
}
