//! The Portals 3.3 object model and delivery rules as a pure state machine.
