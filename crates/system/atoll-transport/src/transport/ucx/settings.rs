//! The settings of UCX: devices, transports, and limits of what is under way.
//!
//! `context.rs` passes them to UCX by its configuration calls, never by the environment. Values that the user set there
//! (`UCX_…`) have precedence over atoll's, except that UCX always stays on the devices of [`Settings::devices`].

use std::time::Duration;

/// The settings of a job; `longest` and `queue` must be the same on all its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The network devices that UCX may use and listen on, separated by commas: interfaces (`eth0`) or ports of RDMA cards
    /// (`mlx5_0:1`). `None` takes those of `UCX_NET_DEVICES`, or else `lo`, which reaches only nodes on this machine.
    pub devices: Option<String>,
    /// UCX's transports, as `UCX_TLS` names them (`tcp`, `rc`, `shm`…). `None` takes those of `UCX_TLS`, or else all.
    pub transports: Option<String>,
    /// The bytes of the longest message, 64 to 1 GiB.
    pub longest: usize,
    /// The bytes of messages that may be under way to one node before `Full`.
    pub queue: usize,
    /// The number of puts, gets and flushes that may be under way to one node before `Full`.
    pub operations: usize,
    /// The time without any message of a node after which it is declared lost, 100 ms or more. A process's end is reported at
    /// once while its machine runs; this setting is for machines and cables. A node that does not call `progress` for this long
    /// is lost for the others. `None` leaves it to UCX, which may take a quarter of an hour. It should be the same on all
    /// nodes.
    pub silence: Option<Duration>,
    /// How long a dropped transport waits for others to take what was sent.
    pub linger: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: None,
            transports: None,
            longest: 1 << 20,
            queue: 4 << 20,
            operations: 1024,
            silence: Some(Duration::from_secs(10)),
            linger: Duration::from_secs(2),
        }
    }
}

/// The minor version from which UCX wants the names of a transport's settings as in its environment; before, without the name
/// of the transport, or with that of the table within.
const NAMED_FROM: u32 = 17;

/// The name and the value of a setting.
type Setting = (&'static str, &'static str);

/// The settings of UCX as a whole, by names without `UCX_`.
const GENERAL: [Setting; 2] = [("KEEPALIVE_INTERVAL", "1s"), ("KEEPALIVE_NUM_EPS", "inf")];
/// The settings for TCP. With these times the loss of a peer's host is noticed after some seconds. Puts are sent as messages of
/// UCX's, as gets are: with its own kind of put over TCP, UCX 1.13 ends the process by a failed assertion, in about one of
/// forty cases, when a node dies to which puts are under way.
const TCP: [Setting; 4] = [("KEEPIDLE", "2s"), ("KEEPINTVL", "1s"), ("KEEPCNT", "3"), ("PUT_ENABLE", "n")];
/// The setting without which UCX does not use shared memory if the death of a peer is to be reported.
const MEMORY: [Setting; 1] = [("ERROR_HANDLING", "y")];

/// The settings for UCX of version 1.`minor`, except those that the environment sets. UCX warns of settings of transports that
/// it does not use in the end, so only those are listed that `transports` and `devices` lead to.
pub(super) fn chosen(
    minor: u32,
    transports: &str,
    devices: &str,
    environment: impl Fn(&str) -> bool,
) -> Vec<(String, &'static str)> {
    let mut list: Vec<_> = GENERAL.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    list.retain(|(name, _)| !environment(name));
    let (without, transports) = transports.strip_prefix('^').map_or((false, transports), |rest| (true, rest));
    let used =
        |names: &[&str]| transports.split(',').any(|word| word == "all" || names.contains(&word)) != without;
    let interface = devices.split(',').any(|device| !device.contains(':'));
    let mut kinds: Vec<(&str, &str, &[Setting])> = Vec::new();
    if interface && used(&["tcp"]) {
        kinds.push(("TCP_", "", &TCP));
    }
    for (prefix, word) in [("POSIX_", "posix"), ("SYSV_", "sysv")] {
        if used(&["sm", "shm", "mm", word]) {
            kinds.push((prefix, "MM_", &MEMORY));
        }
    }
    for (prefix, table, settings) in kinds {
        for (name, value) in settings {
            let full = format!("{prefix}{name}");
            if environment(&full) {
                continue;
            }
            let name = if minor < NAMED_FROM { format!("{table}{name}") } else { full };
            if !list.iter().any(|(known, _)| *known == name) {
                list.push((name, value));
            }
        }
    }
    list
}

/// The devices to use: explicit ones, or the environment's, or the loopback interface.
pub(super) fn devices(chosen: Option<&str>, environment: Option<&str>) -> Result<String, String> {
    let devices = chosen.or(environment).unwrap_or("lo");
    let plain = |device: &str| {
        !device.is_empty()
            && device != "all"
            && device.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:@".contains(&b))
    };
    if devices.split(',').all(plain) { Ok(devices.to_owned()) } else { Err(devices.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_transports_that_are_used_are_told() {
        let names = |minor, transports, devices, set: &'static str| -> Vec<String> {
            let list = chosen(minor, transports, devices, |name| name == set);
            list.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with("KEEPALIVE")).collect()
        };
        assert_eq!(names(13, "tcp", "lo", ""), ["KEEPIDLE", "KEEPINTVL", "KEEPCNT", "PUT_ENABLE"]);
        assert_eq!(names(13, "posix,cma", "lo", ""), ["MM_ERROR_HANDLING"]);
        assert_eq!(names(13, "all", "mlx5_0:1", ""), ["MM_ERROR_HANDLING"]);
        assert_eq!(names(13, "^sm", "lo", ""), ["KEEPIDLE", "KEEPINTVL", "KEEPCNT", "PUT_ENABLE"]);
        assert_eq!(names(18, "sm", "lo", ""), ["POSIX_ERROR_HANDLING", "SYSV_ERROR_HANDLING"]);
        assert_eq!(names(18, "posix", "lo", ""), ["POSIX_ERROR_HANDLING"]);
        assert_eq!(names(18, "posix", "lo", "POSIX_ERROR_HANDLING"), [""; 0]);
        assert_eq!(chosen(18, "rc", "mlx5_0:1", |name| name == "KEEPALIVE_NUM_EPS").len(), 1);
    }

    #[test]
    fn only_named_devices_are_used_and_loopback_by_default() {
        assert_eq!(devices(None, None).unwrap(), "lo");
        assert_eq!(devices(None, Some("mlx5_0:1,eth0")).unwrap(), "mlx5_0:1,eth0");
        assert_eq!(devices(Some("lo"), Some("eth0")).unwrap(), "lo");
        for all in ["all", "", "eth0,all", "^eth0", "eth0,", "e*"] {
            assert_eq!(devices(Some(all), None), Err(all.to_owned()));
        }
    }
}
