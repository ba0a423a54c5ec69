//! The only binary. Crate `cli` has its commands.

fn main() -> std::process::ExitCode {
    cli::run()
}
