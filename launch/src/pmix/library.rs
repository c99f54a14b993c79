// UNSAFETY: calls of a C library that is found at run time, and the values it gives.
#![expect(unsafe_code, reason = "libpmix is a C library")]
//! The part of `libpmix.so.2` that a rank needs.
//!
//! The declarations are written by hand after `pmix.h` and `pmix_common.h` of OpenPMIx, whose binary
//! interface has been the same since version 2; a test compares them with the header where it is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::JobError;
use host::privilege::{PRIVILEGED, is_privileged};

/// Name of the library, with the version of its binary interface.
pub(super) const FILE: &str = "libpmix.so.2";

const SUCCESS: c_int = 0;
/// A collective call went on without a rank that is gone.
pub(super) const PARTIAL_SUCCESS: c_int = -52;
pub(super) const NOT_FOUND: c_int = -46;
pub(super) const NSPACE_LEN: usize = 256;
pub(super) const KEY_LEN: usize = 512;
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
pub(super) const KIND_BOOL: u16 = 1;
pub(super) const KIND_UINT32: u16 = 14;
pub(super) const KIND_BYTES: u16 = 27;
pub(super) const SCOPE_GLOBAL: u8 = 3;
pub(super) const JOB_SIZE: &CStr = c"pmix.job.size";
/// Ranks of the job on this machine.
pub(super) const LOCAL_SIZE: &CStr = c"pmix.local.size";
pub(super) const COLLECT_DATA: &CStr = c"pmix.collect";

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Proc {
    // Bytes, as the other text here: whether a `char` of C has a sign is the machine's affair.
    pub(super) nspace: [u8; NSPACE_LEN],
    pub(super) rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

/// The union of `pmix_value_t`, as far as it is used; the last member gives it its size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Data {
    pub(super) flag: bool,
    pub(super) uint32: u32,
    pub(super) bytes: Bytes,
    room: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    pub(super) key: [u8; KEY_LEN],
    pub(super) flags: u32,
    pub(super) value: Value,
}

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library's functions, after `PMIx_Init` has succeeded.
#[derive(Debug)]
pub(super) struct Pmi {
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    finalize: Finalize,
    abort: Abort,
    error_string: ErrorString,
    /// This process, as the library named it.
    me: Proc,
}

/// The library, mapped for the life of the process: it has a thread that runs in it.
static LIBRARY: OnceLock<Library> = OnceLock::new();

/// What a get gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Number(u32),
    Bytes(Vec<u8>),
    /// Of another kind than is ever put from here.
    Other(u16),
}

fn open() -> Result<&'static Library, JobError> {
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    if is_privileged() {
        return Err(JobError::NoLibrary {
            library: FILE,
            reason: format!("{PRIVILEGED}, and the library loads plugins that variables name"),
        });
    }
    // SAFETY: the library's constructors have no preconditions; any C program may link it.
    let library = unsafe { Library::new(FILE) }.map_err(|error| JobError::NoLibrary {
        library: FILE,
        reason: error.to_string(),
    })?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// The function `name`, whose type in the header is `T`.
fn symbol<T: Copy>(library: &'static Library, name: &'static CStr) -> Result<T, JobError> {
    // SAFETY: each caller names the function whose declaration in pmix.h is `T` (see the types above).
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|f| *f).map_err(|error| JobError::NoLibrary {
        library: FILE,
        reason: error.to_string(),
    })
}

/// Copies `text` into a field of fixed size, its end included.
fn fill<const N: usize>(text: &CStr) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(text.to_bytes()).take(N - 1) {
        *to = *from;
    }
    field
}

impl Pmi {
    /// Opens the library and joins the job that the environment names.
    pub(super) fn init(doing: &'static str) -> Result<Self, JobError> {
        let library = open()?;
        let init: Init = symbol(library, c"PMIx_Init")?;
        let mut pmi = Self {
            put: symbol(library, c"PMIx_Put")?,
            commit: symbol(library, c"PMIx_Commit")?,
            fence: symbol(library, c"PMIx_Fence")?,
            get: symbol(library, c"PMIx_Get")?,
            finalize: symbol(library, c"PMIx_Finalize")?,
            abort: symbol(library, c"PMIx_Abort")?,
            error_string: symbol(library, c"PMIx_Error_string")?,
            me: Proc {
                nspace: [0; NSPACE_LEN],
                rank: 0,
            },
        };
        // SAFETY: `me` is a whole pmix_proc_t that the call fills in; no info is passed.
        let status = unsafe { init(&raw mut pmi.me, ptr::null_mut(), 0) };
        pmi.check(status, doing, "PMIx_Init")?;
        Ok(pmi)
    }

    pub(super) fn rank(&self) -> u32 {
        self.me.rank
    }

    /// The job's name.
    pub(super) fn nspace(&self) -> String {
        let text = self.me.nspace.split(|b| *b == 0).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }

    fn check(
        &self,
        status: c_int,
        doing: &'static str,
        call: &'static str,
    ) -> Result<(), JobError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes any number and gives a string that is never freed, or null.
        let words = unsafe { (self.error_string)(status) };
        let words = if words.is_null() {
            String::new()
        } else {
            // SAFETY: the library's strings end with a zero and live as long as it is mapped.
            let words = unsafe { CStr::from_ptr(words) };
            words.to_string_lossy().into_owned()
        };
        Err(JobError::Library {
            doing,
            call,
            status,
            words,
        })
    }

    /// Puts `bytes` under `key` for all ranks, and hands it to the server.
    pub(super) fn put(
        &self,
        key: &CStr,
        bytes: &[u8],
        doing: &'static str,
    ) -> Result<(), JobError> {
        let mut copy = bytes.to_vec();
        let mut value = Value {
            kind: KIND_BYTES,
            data: Data {
                bytes: Bytes {
                    bytes: copy.as_mut_ptr().cast(),
                    size: copy.len(),
                },
            },
        };
        // SAFETY: the key ends with a zero; the value and its bytes live until the call returns, which
        // copies them.
        let status = unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.check(status, doing, "PMIx_Put")?;
        // SAFETY: the library is initialised (`init` succeeded).
        let status = unsafe { (self.commit)() };
        self.check(status, doing, "PMIx_Commit")
    }

    /// Meets all ranks of the job and exchanges what they have put.
    pub(super) fn fence(&self, doing: &'static str) -> Result<(), JobError> {
        let mut data = Data { room: [0; 3] };
        data.flag = true;
        let collect = Info {
            key: fill(COLLECT_DATA),
            flags: 0,
            value: Value {
                kind: KIND_BOOL,
                data,
            },
        };
        // SAFETY: no list of processes means all; the one info is a whole pmix_info_t and outlives the call.
        let status = unsafe { (self.fence)(ptr::null(), 0, &raw const collect, 1) };
        self.check(status, doing, "PMIx_Fence")
    }

    /// What `rank` has put under `key`, or what the server knows of the job (`RANK_WILDCARD`).
    pub(super) fn get(&self, rank: u32, key: &CStr, doing: &'static str) -> Result<Got, JobError> {
        let proc = Proc { rank, ..self.me };
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: `proc` is whole, the key ends with a zero, no info is passed, and `value` takes the
        // address of what the library allocates.
        let status = unsafe {
            (self.get)(
                &raw const proc,
                key.as_ptr(),
                ptr::null(),
                0,
                &raw mut value,
            )
        };
        self.check(status, doing, "PMIx_Get")?;
        if value.is_null() {
            return Ok(Got::Other(0));
        }
        // SAFETY: after success the pointer is to a value that is now this caller's.
        let got = unsafe { value.read() };
        let result = match got.kind {
            KIND_UINT32 => {
                // SAFETY: the kind says which member the library has written.
                Got::Number(unsafe { got.data.uint32 })
            }
            KIND_BYTES => {
                // SAFETY: the kind says which member the library has written.
                let object = unsafe { got.data.bytes };
                let copy = if object.bytes.is_null() {
                    Vec::new()
                } else {
                    // SAFETY: the object names `size` bytes that the library allocated for this value.
                    unsafe { std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.size) }
                        .to_vec()
                };
                // SAFETY: the bytes came from malloc and are named by this value alone.
                unsafe { libc::free(object.bytes.cast::<c_void>()) };
                Got::Bytes(copy)
            }
            other => Got::Other(other),
        };
        // SAFETY: the value came from malloc and nothing refers to it any more.
        unsafe { libc::free(value.cast::<c_void>()) };
        Ok(result)
    }

    /// Leaves in good order.
    pub(super) fn finalize(&self, doing: &'static str) -> Result<(), JobError> {
        // SAFETY: the library is initialised, and `Job` finalizes once.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check(status, doing, "PMIx_Finalize")
    }

    /// Asks the launcher to end the job with `code`.
    pub(super) fn abort(&self, code: i32, message: &str) {
        let message = CString::new(message).unwrap_or_default();
        // SAFETY: the message ends with a zero; no list of processes means the whole job.
        unsafe { (self.abort)(code, message.as_ptr(), ptr::null_mut(), 0) };
    }
}
