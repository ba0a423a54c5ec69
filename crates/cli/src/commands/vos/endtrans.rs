//! `vos endtrans`.

use clap::Args;
use local::failure::Failure;
use serde_json::json;
use types::TaskState;

use super::context::VosContext;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto vos status -server second                   the transactions that run there
    rialto vos endtrans -server second -transaction 7
    rialto vos endtrans second 7

A transaction is the fetch of a volume that 'vos move', 'copy', 'release', 'shadow' and such
have ordered. The command that ordered it is refused then: it undoes what it had begun, or
can be repeated. What came stays ('vos status' shows it) until that, or until 'vos abandon'.
'vos unlock' takes off the claim of a command that was killed.";

/// Ends a transaction that runs at a server.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Endtrans {
    /// The server: its name, address or id.
    #[arg(long, value_name = "MACHINE")]
    server: Option<String>,
    /// The number, as 'rialto vos status' shows it.
    #[arg(long, value_name = "NUMBER")]
    transaction: Option<String>,
    /// SERVER NUMBER, instead of the options.
    #[arg(value_name = "SERVER", num_args = 0..=2)]
    words: Vec<String>,
}

impl Endtrans {
    pub(crate) fn run(self, context: &VosContext) -> Result<(), Failure> {
        let mut words = self.words.into_iter();
        let mut needed = |option: Option<String>, what: &str, name: &str| {
            option.or_else(|| words.next()).ok_or_else(|| {
                Failure::new("reading the command", format!("the {what} is missing"))
                    .mend(format!("name it with {name}"))
                    .wrong_usage()
            })
        };
        let server = needed(self.server, "server", "-server")?;
        let typed = needed(self.transaction, "transaction", "-transaction")?;
        let number: u64 = typed.parse().map_err(|_| {
            Failure::new("reading the command", format!("{typed:?} is no number of a transaction"))
                .mend("'rialto vos status' shows the numbers")
                .wrong_usage()
        })?;
        let server = context.server(&server)?;
        let name = context.server_name(server);
        let what = format!("ending the transaction {number} at {name}");
        let Some(task) = context.lead(&what, |job| vos::end_task(job, server, number))? else {
            return Ok(());
        };
        if context.json {
            local::show::json(&json!({
                "server": name, "number": number, "volume": task.tree.0,
                "done": task.state == TaskState::Done, "text": task.text,
            }));
            return Ok(());
        }
        let volume = task.tree.0;
        match task.state {
            TaskState::Done => println!("Transaction {number} at {name} is over: it was done"),
            _ => {
                println!("Transaction {number} at {name} is over (volume {volume}: {})", task.text);
            }
        }
        Ok(())
    }
}
