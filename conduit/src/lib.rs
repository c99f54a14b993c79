//! The GASNet portals-conduit.
