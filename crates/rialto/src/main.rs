//! The one binary. What it does is in crate `cli`, and the parts that `cli` puts together.

fn main() -> std::process::ExitCode {
    cli::run()
}
