//! A cycle-approximate model of the Cray SeaStar NIC and its torus.
