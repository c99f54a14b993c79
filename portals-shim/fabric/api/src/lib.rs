//! What fabrics are made of, and what they are asked for.
//!
//! | module | has |
//! |---|---|
//! | [`nal`] | the trait of a fabric |
//! | [`op`] | puts and gets as values |
//! | [`library`], [`delivery`] | the library over one fabric; messages taken and answered |
//! | [`bridge`], [`direct`], [`call`] | how an interface reaches the library: in this process, or by a value |
//! | [`expected`] | requests whose answer has not come |
//! | [`region`] | memory that descriptors name |
//! | [`address`] | peers that are no ranks of a job |
//! | [`config`], [`choice`], [`mode`], [`place`], [`identity`] | which fabric, and who is who there |
//! | [`gate`], [`bell`] | who may enter, and what wakes a thread |
//! | [`protocol`] | which protocol carries which operation, as a table |

pub mod address;
pub mod attached;
pub mod bell;
pub mod bridge;
pub mod call;
pub mod choice;
pub mod config;
pub mod delivery;
pub mod direct;
pub mod expected;
pub mod gate;
pub mod identity;
pub mod library;
pub mod mode;
pub mod nal;
pub mod op;
pub mod place;
pub mod protocol;
pub mod region;
