//! Spares this library's own calls of the system's clocks (`clock/offer`), and keeps it loaded: programs may read a clock of it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        for name in ["clock_gettime", "clock_nanosleep"] {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        }
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
