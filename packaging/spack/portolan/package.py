# A recipe for Spack: put this folder into `packages` of a repository of yours, and set `git` to where the sources are.
from spack.package import *


class Portolan(Package):
    """Portals 3.3, the GASNet portals-conduit and a libfabric provider, on RDMA verbs, shared memory and a SeaStar model."""

    homepage = "https://portolan.invalid"
    git = "https://portolan.invalid/portolan.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    depends_on("rust@1.88:", type="build")
    depends_on("c", type="build")
    depends_on("rdma-core", type="run")

    def install(self, spec, prefix):
        cargo = which("cargo")
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)
