//! Sets the quota of a volume: `quota SERVER BYTES FILES`, 0 for none. For tests, until
//! administration has its own commands.

use std::process::ExitCode;

use client::{ClientIdentity, Remote, Session, SessionConfig};
use types::{Answer, Call, Caller, Name};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quota: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, bytes, files] = arguments.as_slice() else {
        return Err("quota SERVER BYTES FILES".into());
    };
    let session =
        Session::connect(SessionConfig::new(server.parse()?, ClientIdentity::fleeting()))?;
    let session: &dyn Remote = &session;
    let call = |call| session.call(&Caller::ROOT, call, None);
    let Answer::Status(root) = call(Call::Root { volume: Name::new(b"root.cell")? })?.answer else {
        return Err("the server answered something else".into());
    };
    call(Call::SetQuota { fid: root.fid, bytes: bytes.parse()?, files: files.parse()? })?;
    Ok(())
}
