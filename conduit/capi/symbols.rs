// The symbols by which programs find the library that they were compiled for: one that only an object of that build
// refers to, and `gasnet_init`. Text of the library of each thread model.
macro_rules! symbols {
    ($mode:ident: $($linked:ident $init:ident $reach:ident $checked:literal;)*) => { $(
        /// A program that was compiled for this library refers to this.
        #[unsafe(no_mangle)]
        pub static $linked: std::ffi::c_int = 1;

        /// `gasnet_init`.
        ///
        /// # Safety
        /// The pointers are null or those of `main`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(
            _argc: *mut std::ffi::c_int,
            _argv: *mut *mut *mut std::ffi::c_char,
            max_segment: u64,
        ) -> std::ffi::c_int {
            let build = Build {
                mode: Mode::$mode,
                reach: Reach::$reach,
                checked: $checked,
            };
            gasnet_c::init(build, max_segment)
        }
    )* };
}
