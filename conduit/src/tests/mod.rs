//! Ranks as threads over the in-process fabric.
