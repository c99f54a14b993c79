//! How the launcher says that this process is a rank.

use std::env;

use super::JobError;

/// What the environment says about the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// No launcher: a job of one.
    Singleton,
    /// `PMI_FD`, `PMI_RANK`, `PMI_SIZE`: an open socket was inherited.
    Inherited { fd: i32, rank: u32, size: u32 },
    /// `PMI_PORT` and `PMI_ID`: connect, then be told rank and size.
    Port { address: String, id: u32 },
}

impl Start {
    /// Reads the environment of this process.
    pub(super) fn from_env() -> Result<Self, JobError> {
        Self::from_lookup(|name| env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads the variables through `get`.
    pub(super) fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Self, JobError> {
        if let Some(fd) = get("PMI_FD") {
            let fd = number::<i32>("PMI_FD", Some(&fd))?;
            if fd < 0 {
                return Err(bad(
                    "PMI_FD",
                    Some(&fd.to_string()),
                    "a descriptor number is expected",
                ));
            }
            let rank = number("PMI_RANK", get("PMI_RANK").as_deref())?;
            let size = number("PMI_SIZE", get("PMI_SIZE").as_deref())?;
            check(rank, size)?;
            return Ok(Self::Inherited { fd, rank, size });
        }
        match get("PMI_PORT") {
            Some(address) => {
                // Hydra says PMI_ID, some servers only PMI_RANK.
                let id = get("PMI_ID").or_else(|| get("PMI_RANK"));
                Ok(Self::Port {
                    address,
                    id: number("PMI_ID", id.as_deref())?,
                })
            }
            None => Ok(Self::Singleton),
        }
    }
}

/// Refuses a rank outside its job and an empty job.
pub(super) fn check(rank: u32, size: u32) -> Result<(), JobError> {
    if rank < size {
        return Ok(());
    }
    Err(bad(
        "PMI_RANK",
        Some(&rank.to_string()),
        "it must be less than PMI_SIZE",
    ))
}

fn number<T: std::str::FromStr>(name: &'static str, value: Option<&str>) -> Result<T, JobError> {
    let parsed = value.and_then(|v| v.parse().ok());
    parsed.ok_or_else(|| bad(name, value, "a number is expected"))
}

fn bad(name: &'static str, value: Option<&str>, reason: &'static str) -> JobError {
    let value = value.map_or_else(
        || "not set".to_owned(),
        |v| format!("{:?}", super::wire::excerpt(v)),
    );
    JobError::Environment {
        name,
        value,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(vars: &[(&str, &str)]) -> Result<Start, JobError> {
        Start::from_lookup(|n| {
            vars.iter()
                .find(|(k, _)| *k == n)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn no_variables_mean_a_job_of_one() {
        assert_eq!(start(&[]).unwrap(), Start::Singleton);
        assert_eq!(start(&[("PMI_RANK", "3")]).unwrap(), Start::Singleton);
    }

    #[test]
    fn both_styles_are_understood() {
        let got = start(&[("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!(
            got,
            Start::Inherited {
                fd: 7,
                rank: 2,
                size: 4
            }
        );
        let got = start(&[("PMI_PORT", "localhost:9"), ("PMI_ID", "1")]).unwrap();
        assert_eq!(
            got,
            Start::Port {
                address: "localhost:9".into(),
                id: 1
            }
        );
    }

    #[test]
    fn nonsense_names_the_variable_and_its_value() {
        let says = |vars: &[(&str, &str)]| start(vars).unwrap_err().to_string();
        let fd = says(&[("PMI_FD", "seven")]);
        assert_eq!(fd, "PMI_FD is \"seven\": a number is expected");
        assert!(says(&[("PMI_FD", "-1")]).contains("descriptor"));
        assert!(says(&[("PMI_FD", "3"), ("PMI_RANK", "0")]).starts_with("PMI_SIZE is not set"));
        let out = says(&[("PMI_FD", "3"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")]);
        assert!(out.starts_with("PMI_RANK is \"4\""), "{out}");
        assert!(says(&[("PMI_PORT", "h:1")]).starts_with("PMI_ID"));
    }
}
