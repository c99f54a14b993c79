//! The program of the SeaStar embedded processor.
