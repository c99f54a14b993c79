//! Raw declarations of libibverbs, opened at run time.
