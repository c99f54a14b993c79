//! The guest's kernel and first file system.
//!
//! The kernel comes from the distribution's own package (`linux-image-amd64`), unpacked and never installed.
//! Of its several hundred megabytes the cache keeps the kernel and the modules the guest loads, in the order
//! in which they must be loaded:
//!
//! ```text
//! <cache>/<layout>/kernel                 uncompressed if it can be: an emulated processor unpacks slowly
//! <cache>/<layout>/modules/a-00-name.ko … for the console and the files
//! <cache>/<layout>/modules/b-00-name.ko … for the network, loaded while the files are mounted
//! <cache>/lock                            held while the folder above is made
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;

use portals_shim::handover::Handover;

use super::GuestError;
use super::cpio::Archive;

/// Name of the cached folder; changes with [`MODULES`] so that an older cache is not taken for a current one.
const LAYOUT: &str = "debian-amd64-2";

/// Modules the guest loads, besides those they depend on: in which group, and whether the guest is useless
/// without them.
/// The checksum modules are found by name at run time by rxe, overlayfs and 9p and therefore are no
/// dependency that a module declares.
const MODULES: &[(char, &str, bool)] = &[
    ('a', "virtio_pci", true),
    ('a', "virtio_console", true),
    ('a', "9pnet_virtio", true),
    ('a', "9p", true),
    ('a', "overlay", false),
    ('a', "crc32c_generic", false),
    ('b', "crc32_generic", true),
    ('b', "dummy", true),
    ('b', "ib_uverbs", true),
    ('b', "rdma_ucm", false),
    ('b', "rdma_rxe", true),
    ('b', "sch_netem", false),
    ('b', "veth", false),
    ('b', "virtio_net", false),
];

const INIT: &[u8] = include_bytes!("init.sh");

/// Kernel and modules, unpacked in the cache.
#[derive(Debug)]
pub(super) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The cached kernel, fetched first if the cache has none. Callers that come while another process
    /// fetches wait for it.
    pub(super) fn cached() -> Result<Self, GuestError> {
        let cache = cache_folder()?;
        let folder = cache.join(LAYOUT);
        fs::create_dir_all(&cache).map_err(|error| {
            GuestError::Kernel(format!(
                "cannot make {}: {error}: let XDG_CACHE_HOME name a folder that you may write to",
                cache.display()
            ))
        })?;
        if folder.join("kernel").is_file() {
            return Ok(Self { folder });
        }
        let lock_path = cache.join("lock");
        let lock = File::create(&lock_path)
            .map_err(GuestError::io(format!("make {}", lock_path.display())))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|e| GuestError::io(format!("lock {}", lock_path.display()))(e.into()))?;
        if !folder.join("kernel").is_file() {
            let work = cache.join("unpacking");
            // What an interrupted fetch left; the lock says that nobody uses it.
            let _ = fs::remove_dir_all(&work);
            let fetched = fetch(&work, &folder);
            let _ = fs::remove_dir_all(&work);
            fetched?;
        }
        Ok(Self { folder })
    }

    /// The kernel's file, for QEMU to load.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    /// The guest's first file system: busybox, the modules, the init script and the job. The job has the command's
    /// environment, which is nobody else's business: QEMU inherits the file, and it has no name.
    pub(super) fn initramfs(&self, busybox: &Path, job: &[u8]) -> Result<Handover, GuestError> {
        let failed = || GuestError::io("write the guest's first file system".into());
        let image = Handover::new().map_err(failed())?;
        let to = File::create(image.path()).map_err(failed())?;
        let mut archive = Archive::new(BufWriter::new(to));
        let mut fill = || -> io::Result<()> {
            for folder in ["bin", "dev", "modules"] {
                archive.directory(folder)?;
            }
            // The kernel opens the first process's standard streams here before devtmpfs is mounted.
            archive.character_device("dev/console", 5, 1)?;
            archive.character_device("dev/null", 1, 3)?;
            archive.file("bin/busybox", 0o755, &fs::read(busybox)?)?;
            archive.file("init", 0o755, INIT)?;
            archive.file("job", 0o600, job)?;
            let mut modules: Vec<_> = fs::read_dir(self.folder.join("modules"))?
                .map(|entry| entry.map(|e| e.path()))
                .collect::<Result<_, _>>()?;
            modules.sort();
            for module in modules {
                let name = module.file_name().unwrap_or_default().to_string_lossy();
                archive.file(&format!("modules/{name}"), 0o644, &fs::read(&module)?)?;
            }
            Ok(())
        };
        fill().map_err(failed())?;
        archive.finish().map_err(failed())?;
        Ok(image)
    }
}

fn cache_folder() -> Result<PathBuf, GuestError> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => match std::env::var_os("HOME").filter(|v| !v.is_empty()) {
            Some(home) => PathBuf::from(home).join(".cache"),
            None => {
                return Err(GuestError::Kernel(
                    "neither XDG_CACHE_HOME nor HOME is set: no place to keep the kernel".into(),
                ));
            }
        },
    };
    Ok(base.join("portolan").join("guest"))
}

/// Downloads and unpacks the kernel package in `work`, then moves what the guest needs to `folder`.
fn fetch(work: &Path, folder: &Path) -> Result<(), GuestError> {
    portals_shim::say(format_args!(
        "portolan guest: fetching the guest's kernel (once, about 70 MB)"
    ));
    fs::create_dir_all(work).map_err(GuestError::io(format!("make {}", work.display())))?;
    let depends = output(
        Command::new("apt-cache").args(["depends", "--important", "linux-image-amd64"]),
        "apt-get update",
    )?;
    let package = kernel_package(&depends).ok_or_else(|| {
        GuestError::Kernel(
            "apt knows no package linux-image-amd64: run apt-get update on a Debian system".into(),
        )
    })?;
    output(
        Command::new("apt-get")
            .args(["-q", "download", &package])
            .current_dir(work),
        "check the network, then apt-get update",
    )?;
    let read = |what: &Path| GuestError::io(format!("read {}", what.display()));
    let archive = entries(work)?
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "deb"))
        .ok_or_else(|| GuestError::Kernel(format!("apt-get download {package} left no file")))?;
    let tree = work.join("tree");
    output(
        Command::new("dpkg").arg("-x").arg(&archive).arg(&tree),
        "make room in the cache's file system (500 MB)",
    )?;
    let vmlinuz = entries(&tree.join("boot"))?
        .into_iter()
        .find(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz-"))
        })
        .ok_or_else(|| GuestError::Kernel(format!("{package} holds no boot/vmlinuz-*")))?;
    let libraries = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|p| tree.join(p))
        .find(|p| p.is_dir())
        .ok_or_else(|| GuestError::Kernel(format!("{package} holds no lib/modules")))?;
    let mut files = BTreeMap::new();
    let mut built_in = String::new();
    walk(&libraries, &mut |path| {
        if path.file_name().is_some_and(|n| n == "modules.builtin") {
            built_in = fs::read_to_string(&path)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
        Ok(())
    })
    .map_err(read(&libraries))?;
    let built_in: Vec<String> = built_in
        .lines()
        .filter_map(|line| module_name(Path::new(line)))
        .collect();

    let ready = work.join("ready");
    let modules = ready.join("modules");
    fs::create_dir_all(&modules).map_err(GuestError::io(format!("make {}", modules.display())))?;
    let mut order: Vec<(String, Vec<u8>)> = Vec::new();
    let mut groups = Vec::new();
    for &(group, name, needed) in MODULES {
        let mut chain = Vec::new();
        match resolve(name, &files, &built_in, &order, &mut chain) {
            Ok(()) => order.append(&mut chain),
            Err(error) if needed => return Err(error),
            Err(_) => {}
        }
        groups.resize(order.len(), group);
    }
    for (index, ((name, data), group)) in order.iter().zip(groups).enumerate() {
        let path = modules.join(format!("{group}-{index:02}-{name}.ko"));
        fs::write(&path, data).map_err(GuestError::io(format!("write {}", path.display())))?;
    }
    // The kernel last: its presence says that the folder is complete, and the rename makes it appear whole.
    let image = fs::read(&vmlinuz).map_err(read(&vmlinuz))?;
    let image = uncompressed(&image, work).unwrap_or(image);
    let path = ready.join("kernel");
    fs::write(&path, image).map_err(GuestError::io(format!("write {}", path.display())))?;
    let _ = fs::remove_dir_all(folder);
    fs::rename(&ready, folder).map_err(GuestError::io(format!("make {}", folder.display())))
}

/// The kernel inside the self-unpacking `image`, if it is packed in a way that is known here and QEMU can boot it
/// unpacked.
///
/// Layout: `Documentation/arch/x86/boot.rst` of the kernel: sectors of the real-mode part at 0x1f1, the payload's
/// offset and length at 0x248 and 0x24c, its unpacked length in its last four bytes.
fn uncompressed(image: &[u8], work: &Path) -> Option<Vec<u8>> {
    let number = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = number(0x248)?.checked_add((sectors + 1) * 512)?;
    let payload = image.get(start..start.checked_add(number(0x24c)?)?)?;
    let (packed, _length) = payload.split_last_chunk::<4>()?;
    let tool = match packed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0x1f, 0x8b, ..] => "gzip",
        _ => return None,
    };
    let file = work.join("payload");
    fs::write(&file, packed).ok()?;
    let result = Command::new(tool)
        .arg("-dc")
        .stdin(File::open(&file).ok()?)
        .output()
        .ok()?;
    let kernel = result.stdout;
    (result.status.success() && kernel.starts_with(b"\x7fELF") && has_pvh_entry(&kernel))
        .then_some(kernel)
}

/// Has the kernel an entry point for QEMU's direct boot: the ELF note 18 (`XEN_ELFNOTE_PHYS32_ENTRY`)?
fn has_pvh_entry(kernel: &[u8]) -> bool {
    [4, 8].iter().any(|&length| {
        let note = [
            4, 0, 0, 0, length, 0, 0, 0, 18, 0, 0, 0, b'X', b'e', b'n', 0,
        ];
        kernel.windows(note.len()).any(|window| window == note)
    })
}

/// The package that `linux-image-amd64` stands for, from the output of `apt-cache depends`.
fn kernel_package(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends:"))
        .map(|name| name.trim().to_owned())
        .find(|name| name.starts_with("linux-image-"))
}

/// Appends to `chain` the module `name` after all it depends on, leaving out what `loaded` or `chain` has.
fn resolve(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    built_in: &[String],
    loaded: &[(String, Vec<u8>)],
    chain: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), GuestError> {
    let name = name.replace('-', "_");
    if built_in.contains(&name) || loaded.iter().chain(chain.iter()).any(|(n, _)| *n == name) {
        return Ok(());
    }
    let path = files
        .get(&name)
        .ok_or_else(|| GuestError::Kernel(format!("the kernel package has no module {name}")))?;
    let data = module_data(path)?;
    for dependency in dependencies(&data) {
        resolve(&dependency, files, built_in, loaded, chain)?;
    }
    chain.push((name, data));
    Ok(())
}

/// The modules that a module declares to depend on: the `depends=` string of its `.modinfo` section, whose
/// strings are separated by NUL bytes.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else {
        return Vec::new();
    };
    let value = &module[at + KEY.len()..];
    let value = &value[..value.iter().position(|&b| b == 0).unwrap_or(value.len())];
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The name of the module in the file `path`, with `_` for `-` as the kernel spells it.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, extension) = file.split_once(".ko")?;
    matches!(extension, "" | ".xz" | ".zst").then(|| name.replace('-', "_"))
}

/// The module's ELF image; distributions compress it in different ways.
fn module_data(path: &Path) -> Result<Vec<u8>, GuestError> {
    let tool = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).map_err(GuestError::io(format!("read {}", path.display()))),
    };
    let result = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(|e| GuestError::Kernel(format!("{tool}: {e}: apt-get install {tool}")))?;
    if !result.status.success() {
        return Err(GuestError::Kernel(format!(
            "{tool} cannot unpack {}",
            path.display()
        )));
    }
    Ok(result.stdout)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, GuestError> {
    let failed = || GuestError::io(format!("read {}", folder.display()));
    fs::read_dir(folder)
        .map_err(failed())?
        .map(|entry| entry.map(|e| e.path()).map_err(failed()))
        .collect()
}

fn walk(folder: &Path, visit: &mut dyn FnMut(PathBuf) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), visit)?;
        } else {
            visit(entry.path())?;
        }
    }
    Ok(())
}

/// The standard output of a successful `command`; otherwise an error with its last line and `advice`.
fn output(command: &mut Command, advice: &str) -> Result<String, GuestError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let result = command
        .output()
        .map_err(|e| GuestError::Kernel(format!("cannot run {name}: {e}")))?;
    if result.status.success() {
        return Ok(String::from_utf8_lossy(&result.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&result.stderr);
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    Err(GuestError::Kernel(format!(
        "{name} failed ({last}): {advice}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_read_from_apt() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-9-amd64\n";
        assert_eq!(
            kernel_package(text).as_deref(),
            Some("linux-image-6.1.0-9-amd64")
        );
        assert_eq!(kernel_package("linux-image-amd64\n"), None);
    }

    /// The part of the guest's script that runs the job, as the first process of a namespace, with files for the ports. They come
    /// late, and meanwhile an orphan ends.
    #[test]
    fn what_ends_while_the_guest_comes_up_does_not_keep_it_from_its_job() {
        let own = tempfile::tempdir().unwrap();
        let folder = own.path();
        let init = std::str::from_utf8(INIT).unwrap();
        let from = init.find("step \"output ports\"").unwrap();
        let to = init.find("# Whatever the job left running").unwrap();
        let job = "sh -c 'echo said; echo wrong >&2; exit 7'";
        let part = init[from..to]
            .replace("/out", "./out")
            .replace("/err", "./err")
            .replace(
                "env -i /bin/chroot /host /bin/sh /run/portolan-guest/job",
                job,
            );
        assert!(part.contains(job));
        let script = format!(
            "step() {{ :; }}\nport() {{ busybox usleep 400000; echo \"./$1\"; }}\nexec 9>control\n\
             ( ( busybox usleep 200000 ) & )\n{part}\nwait $out $err\nexit $status\n"
        );
        let run = std::process::Command::new("timeout")
            .args([
                "-s",
                "KILL",
                "20",
                "unshare",
                "--fork",
                "--pid",
                "--kill-child",
            ])
            .args(["busybox", "sh", "-c", &script])
            .current_dir(folder)
            .output();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let seen = (
            read("portolan.stdout"),
            read("portolan.stderr"),
            read("control"),
        );
        let Ok(run) = run.inspect_err(|_| portals_shim::say(format_args!("skipped: no timeout")))
        else {
            return;
        };
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        if said.contains("unshare: ") || said.contains("failed to run command") {
            portals_shim::say(format_args!("skipped: {said}"));
            return;
        }
        assert_eq!(run.status.code(), Some(7), "{said}");
        assert_eq!(
            seen,
            ("said\n".to_owned(), "wrong\n".to_owned(), "up\n".to_owned())
        );
    }

    #[test]
    fn dependencies_come_before_their_users_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = BTreeMap::new();
        for (name, text) in [
            ("top", &b"ELF\0depends=left-half,right\0name=top\0"[..]),
            ("left_half", b"ELF\0depends=base\0"),
            ("right", b"ELF\0depends=base,inside\0"),
            ("base", b"ELF\0depends=\0"),
        ] {
            let path = folder.path().join(format!("{name}.ko"));
            fs::write(&path, text).unwrap();
            files.insert(module_name(&path).unwrap(), path);
        }
        let mut chain = Vec::new();
        resolve("top", &files, &["inside".to_owned()], &[], &mut chain).unwrap();
        let names: Vec<_> = chain.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["base", "left_half", "right", "top"]);
        assert!(resolve("absent", &files, &[], &[], &mut Vec::new()).is_err());
    }

    #[test]
    fn a_packed_kernel_is_unpacked_if_it_can_be_booted() {
        let own = tempfile::tempdir().unwrap();
        let work = own.path();
        let pack = |kernel: &[u8]| {
            let file = work.join("kernel");
            fs::write(&file, kernel).unwrap();
            let packed = Command::new("gzip")
                .arg("-c")
                .arg(&file)
                .output()
                .unwrap()
                .stdout;
            let mut image = vec![0; 0x1000];
            image[0x1f1] = 1;
            image[0x248..0x24c].copy_from_slice(&0xc00u32.to_le_bytes());
            let length = u32::try_from(packed.len() + 4).unwrap();
            image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
            image.extend_from_slice(&packed);
            image.extend_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
            image
        };
        let note = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";
        let bootable = [&b"\x7fELF"[..], &[7; 999], note, &[0; 8]].concat();
        let image = pack(&bootable);
        let unpacked = uncompressed(&image, work);
        let cut = uncompressed(&image[..image.len() - 1], work);
        let without_entry = uncompressed(&pack(&bootable[..500]), work);
        assert_eq!(unpacked.as_deref(), Some(&bootable[..]));
        assert_eq!((cut, without_entry), (None, None));
        assert_eq!(uncompressed(b"MZ", work), None);
    }

    #[test]
    fn module_names() {
        let name = |p: &str| module_name(Path::new(p));
        assert_eq!(name("kernel/a/sch-netem.ko").as_deref(), Some("sch_netem"));
        assert_eq!(name("x.ko.xz").as_deref(), Some("x"));
        assert_eq!(name("x.konfig"), None);
        assert_eq!(name("modules.dep"), None);
    }
}
