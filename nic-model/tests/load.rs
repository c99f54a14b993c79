//! The loads of the book.

#[path = "load/mod.rs"]
mod load;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/src/mechanisms/load-table.txt"
);

/// The book has what the example prints; `PORTOLAN_BLESS=1` writes it.
#[test]
fn the_book_has_the_loads_that_are_carried() {
    let table = load::table(1);
    if std::env::var_os("PORTOLAN_BLESS").is_some() {
        std::fs::write(PAGE, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(PAGE).unwrap(), table);
}
