//! Names the shared library, and keeps it loaded: its exit handler must outlive a `dlclose`. Spares its
//! own calls of the system's clocks (`clock/offer`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libportals3.so");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        for name in ["clock_gettime", "clock_nanosleep"] {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        }
    }
}
