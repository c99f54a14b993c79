//! Safe RDMA verbs.
