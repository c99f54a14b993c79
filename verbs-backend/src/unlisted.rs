//! Why libibverbs does not list a device of the kernel: a container was not given its file, or no provider is installed for it.

use std::fs;
use std::path::Path;

use crate::device::DeviceError;

/// The names in a folder; none where there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort_unstable();
    names
}

/// Whether the file by which a program uses `device` is there.
fn has_file(root: &Path, device: &str) -> bool {
    let class = root.join("sys/class/infiniband_verbs");
    let is_of = |file: &String| {
        fs::read_to_string(class.join(file).join("ibdev")).is_ok_and(|of| of.trim() == device)
    };
    let mut files = names(&class).into_iter().filter(is_of);
    files.any(|file| root.join("dev/infiniband").join(file).exists())
}

/// Why libibverbs does not list the devices of the kernel, or not the one of this name. `None`: the kernel does not have it either.
pub(crate) fn why(root: &Path, name: Option<&str>) -> Option<DeviceError> {
    let mut devices = names(&root.join("sys/class/infiniband"));
    devices.retain(|device| name.is_none_or(|name| name == device));
    if devices.is_empty() {
        return None;
    }
    Some(match devices.iter().any(|device| has_file(root, device)) {
        true => DeviceError::NoProvider { devices },
        false => DeviceError::NoFiles { devices },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose kernel has two devices, of which the file of the first is there.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (device, file) in [("mlx5_0", "uverbs0"), ("mlx5_1", "uverbs1")] {
            let of = root.path().join("sys/class/infiniband_verbs").join(file);
            fs::create_dir_all(&of).unwrap();
            fs::write(of.join("ibdev"), format!("{device}\n")).unwrap();
            fs::create_dir_all(root.path().join("sys/class/infiniband").join(device)).unwrap();
        }
        fs::create_dir_all(root.path().join("dev/infiniband")).unwrap();
        fs::write(root.path().join("dev/infiniband/uverbs0"), "").unwrap();
        root
    }

    #[test]
    fn a_machine_without_devices_is_no_reason() {
        let empty = tempfile::tempdir().unwrap();
        assert!(why(empty.path(), None).is_none());
        assert!(why(machine().path(), Some("rxe0")).is_none());
    }

    #[test]
    fn a_device_without_its_file_and_one_without_a_provider_are_told_apart() {
        let root = machine();
        let of = |name| why(root.path(), name).unwrap();
        let hidden = of(Some("mlx5_1"));
        assert!(matches!(hidden, DeviceError::NoFiles { devices } if devices == ["mlx5_1"]));
        let known = of(Some("mlx5_0"));
        assert!(matches!(known, DeviceError::NoProvider { devices } if devices == ["mlx5_0"]));
        let all = of(None);
        assert!(
            matches!(all, DeviceError::NoProvider { devices } if devices == ["mlx5_0", "mlx5_1"])
        );
        fs::remove_file(root.path().join("dev/infiniband/uverbs0")).unwrap();
        let hidden = of(None);
        assert!(
            matches!(hidden, DeviceError::NoFiles { devices } if devices == ["mlx5_0", "mlx5_1"])
        );
    }
}
