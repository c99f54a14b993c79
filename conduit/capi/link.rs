//! Names the shared library, and keeps it loaded: its exit handler must outlive a `dlclose`. Spares its
//! own calls of the system's clocks (`clock/offer`).

fn main() {
    println!("cargo:rerun-if-changed=../link.rs");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    if let (true, Some(model)) = (linux, package.strip_prefix("gasnet-c-")) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgasnet-portals-{model}.so");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        for name in ["clock_gettime", "clock_nanosleep"] {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        }
    }
}
