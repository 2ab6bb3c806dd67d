//! What all processes of one host agree on: its boot, a clock that counts from it, and which file
//! systems are not of this host alone.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::rows::{Now, signed};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};

/// This host since it was started.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Names the boot: another text means that every lease in the file is from before a restart.
    pub boot: String,
    /// What this process's time namespace adds to the boot clock, in milliseconds.
    offset_ms: i64,
}

impl Host {
    /// Reads who this host is.
    ///
    /// Linux and Android: `/proc/sys/kernel/random/boot_id` (random(4)). macOS and FreeBSD: sysctl
    /// `kern.bootsessionuuid` and `kern.boot_id`. Elsewhere there is no clock that all processes
    /// share and that also runs during sleep, so the answer is `unsupported` rather than a guess.
    pub(crate) fn of_this_process() -> Result<Self> {
        Ok(Self { boot: boot_id()?, offset_ms: time_namespace_offset_ms() })
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = SystemClock.now().as_nanos();
        let host_ms = |ms: u64| signed(ms).saturating_sub(self.offset_ms);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now {
            clock_ms: host_ms(nanos / 1_000_000),
            begun_ms: host_ms(nanos.div_ceil(1_000_000)),
            wall_us: i64::try_from(wall.as_micros()).unwrap_or(0),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_id() -> Result<String> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(FILE).map_err(|error| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{FILE} cannot be read, so leases from before a restart could not be distinguished; mount \
                 /proc in this container, or use another store"
            ),
        )
        .with_source(error)
    })?;
    Ok(text.trim().to_owned())
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn boot_id() -> Result<String> {
    for key in ["kern.bootsessionuuid", "kern.boot_id"] {
        if let Ok(output) = std::process::Command::new("/usr/sbin/sysctl").args(["-n", key]).output()
            && output.status.success()
        {
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if !text.is_empty() {
                return Ok(text);
            }
        }
    }
    Err(no_boot_id())
}

#[cfg(not(unix))]
fn boot_id() -> Result<String> {
    Err(no_boot_id())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn no_boot_id() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this system does not say which boot it is in, so leases in a file from before a restart could \
         not be distinguished; use another store",
    )
}

/// A process in a time namespace (a restored container, a test) reads a shifted boot clock. Taking
/// the shift out lets it agree with its neighbours on when a lease ends (time_namespaces(7)).
fn time_namespace_offset_ms() -> i64 {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return 0;
    }
    std::fs::read_to_string("/proc/self/timens_offsets").map_or(0, |text| parse_offset_ms(&text))
}

fn parse_offset_ms(text: &str) -> i64 {
    let mut fields = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("boottime"))
        .unwrap_or_default()
        .split_whitespace()
        .map(|field| field.parse::<i64>().unwrap_or(0));
    let (secs, nanos) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    secs.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
}

/// Names the network file system that a path is on, if it is on one.
///
/// Only Linux tells it by number; elsewhere the answer is `None`, and the check of the boot id still
/// finds a file that two machines use.
pub(crate) fn network_file_system_at(path: &Path) -> Option<&'static str> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let stat = rustix::fs::statfs(path).ok()?;
        // The field's width and sign differ between architectures; the numbers have 32 bits.
        network_file_system(stat.f_type as u32)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = path;
        None
    }
}

/// Source: statfs(2) and linux/magic.h.
///
/// FUSE counts as network: the number alone cannot tell a local one from sshfs, and virtiofs, which
/// shares a folder between virtual machines with different boot ids, has the same number.
pub(crate) fn network_file_system(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x564c => "NCP",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x786f_4256 => "VirtualBox shared folder",
        0xbacb_acbc => "VMware shared folder",
        0x7c7c_6673 => "Parallels shared folder",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_number() {
        for (magic, name) in [
            (0x6969, Some("NFS")),
            (0xff53_4d42, Some("CIFS")),
            (0x6573_5546, Some("FUSE")),
            (0x0102_1997, Some("9p")),
            (0xef53, None),      // ext4
            (0x0102_1994, None), // tmpfs
            (0x794c_7630, None), // overlayfs
            (0x9123_683e, None), // btrfs
        ] {
            assert_eq!(network_file_system(magic), name, "{magic:#x}");
        }
        assert_eq!(network_file_system_at(&std::env::temp_dir()), None);
    }

    #[test]
    fn the_shift_of_a_time_namespace_is_taken_out() {
        assert_eq!(
            parse_offset_ms("monotonic           5         0\nboottime        1000 500000000\n"),
            1_000_500
        );
        assert_eq!(parse_offset_ms("monotonic 0 0\nboottime -20 0\n"), -20_000);
        assert_eq!(parse_offset_ms(""), 0);
    }

    #[test]
    fn this_host_has_a_boot_and_a_clock() {
        let host = Host::of_this_process().unwrap();
        assert!(host.boot.len() >= 16, "{:?}", host.boot);
        let (first, second) = (host.now(), host.now());
        assert!(second.clock_ms >= first.clock_ms && first.clock_ms > 0);
    }
}
