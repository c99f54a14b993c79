// What tests of C programs and of loaded libraries start: cargo builds such libraries, and programs of other packages, for no test.
// Several packages have this file as a module.

use std::path::PathBuf;
use std::process::Command;

/// Set where everything of the workspace was built in this profile before its tests began.
const BUILT: &str = "PORTOLAN_TEST_BUILT";

/// Builds what `words` name, in the profile of the test that calls, and gives the folder of the results. A build of these packages
/// alone has other features than one of the workspace, and compiles most of it once more.
pub(crate) fn built(words: &[&str]) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let built = exe.ancestors().nth(2).unwrap().to_path_buf();
    if std::env::var_os(BUILT).is_some() {
        return built;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet"]).args(words);
    build.arg("--target-dir").arg(built.parent().unwrap());
    if built.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.unwrap().success(), "{words:?} does not build");
    built
}
