//! The table of procedures in the documents, against what was heard.
//!
//! A row is `| service | number | procedure | answered or codes | why |`. A procedure is answered
//! if one of the superuser's calls is; otherwise all of its calls end with the codes of the row.

use std::collections::BTreeMap;

use afs3::{ProcedureRow, RpcMessage};

use crate::asking::Heard;

fn services() -> [(&'static str, &'static [ProcedureRow]); 5] {
    [
        ("RXAFS", afs3::files::FilesCall::PROCEDURES),
        ("VL", afs3::locations::LocationsCall::PROCEDURES),
        ("PR", afs3::protection::ProtectionCall::PROCEDURES),
        ("AFSVol", afs3::volumes::VolumesCall::PROCEDURES),
        ("BOZO", afs3::bos::BosCall::PROCEDURES),
    ]
}

/// The rows that are not true, and the procedures without a row.
pub fn check(text: &str, heard: &Heard) -> Vec<String> {
    let mut rows = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", service, number, procedure, told, _, ""] = cells[..] else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        if rows.insert((service.to_owned(), number), (procedure, told)).is_some() {
            wrong.push(format!("a second row: {line}"));
        }
    }
    for (service, procedures) in services() {
        for ProcedureRow { number, name, .. } in procedures {
            let Some((procedure, told)) = rows.remove(&(service.to_owned(), *number)) else {
                wrong.push(format!("no row: {service} {number} {name}"));
                continue;
            };
            let codes = heard.get(&(service, *number)).cloned().unwrap_or_default();
            let refused: Vec<i32> = told.split(", ").filter_map(|code| code.parse().ok()).collect();
            let is_true = match told {
                "answered" => codes.contains(&0),
                _ => !codes.is_empty() && codes.iter().all(|code| refused.contains(code)),
            };
            if procedure != *name || !is_true {
                wrong.push(format!(
                    "not true: {service} {number} {procedure} ({name}), {told}: {codes:?}"
                ));
            }
        }
    }
    wrong.extend(rows.keys().map(|(service, number)| format!("no procedure: {service} {number}")));
    wrong
}
