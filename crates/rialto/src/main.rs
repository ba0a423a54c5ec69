//! The one binary; everything is in the library beside it, so that the fuzz targets can have it too.

fn main() -> std::process::ExitCode {
    rialto::run()
}
