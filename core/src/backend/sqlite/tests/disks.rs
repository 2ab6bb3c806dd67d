//! Full and read-only disks, on small file systems in memory. They need root to be mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Client, held, refused};
use crate::backend::{Ask, Released, RenewItem, Renewal};
use crate::error::{Effect, Retry};

struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// Mounts one, or says why the test does nothing.
    fn mount(test: &str, options: &str) -> Option<Self> {
        if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: {test} needs root on Linux, to mount a small file system");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "polylatch-test"])
            .arg(dir.path())
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self { dir }),
            other => {
                eprintln!("skipped: {test} could not mount a small file system: {other:?}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("locks.db")
    }

    fn make_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(self.dir.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazy: a database thread may not have closed its file yet.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

fn fill(folder: &Path) -> PathBuf {
    let filler = folder.join("filler");
    let _ = fs::write(&filler, vec![0_u8; 16 << 20]);
    filler
}

#[test]
fn a_full_disk_at_open_is_told_and_leaves_a_file_that_can_be_opened_later() {
    let Some(disk) = Disk::mount("a full disk at open", "size=1m") else { return };
    let filler = fill(disk.dir.path());
    let error = refused(Client::try_open(&disk.path()), "backend_unavailable", "disk");
    assert_eq!((error.effect(), error.retry()), (Effect::None, Retry::AfterBackoff));
    println!("{error}");
    fs::remove_file(filler).unwrap();
    Client::open(&disk.path()).hold("orders");
}

#[test]
fn a_disk_that_fills_up_refuses_without_effect_and_recovers() {
    let Some(disk) = Disk::mount("a disk that fills up", "size=12m") else { return };
    let client = Client::open(&disk.path());
    let (holder, fence) = client.hold("kept");
    let filler = fill(disk.dir.path());
    let mut refused = Vec::new();
    for n in 0..200 {
        let contender = client.contender(&format!("lock {n}"));
        if let Err(error) = client.ask(&contender, Ask::Try) {
            assert_eq!(error.code(), "backend_unavailable", "{error}");
            assert_eq!(error.retry(), Retry::AfterBackoff);
            if error.effect() == Effect::None {
                refused.push((contender, error));
            }
        }
    }
    println!(
        "{} refusals without effect, such as: {}",
        refused.len(),
        refused.last().expect("the disk is full").1
    );
    fs::remove_file(filler).unwrap();
    for (contender, _) in &refused {
        let other = client.contender(contender.name.as_str());
        held(client.ask(&other, Ask::Try).expect("there is space again"));
    }
    // What is in the database itself can be changed with a log of any length.
    pollster::block_on(client.backend.close()).unwrap();
    let client = Client::open(&disk.path());
    let renew = |renewals| {
        let item = RenewItem {
            contender: holder.clone(),
            fence,
            lease: holder.lease,
            length: holder.lease,
            renewals,
        };
        pollster::block_on(client.backend.renew(vec![item]))
    };
    for renewals in 1..20 {
        assert_eq!(renew(renewals).unwrap(), [Renewal::Extended]);
    }
    let filler = fill(disk.dir.path());
    for renewals in 20..400 {
        let renewed = renew(renewals).expect("the log's old blocks are used again");
        assert_eq!(renewed, [Renewal::Extended]);
    }
    fs::remove_file(filler).unwrap();
    assert_eq!(pollster::block_on(client.backend.release(&holder, fence)).unwrap(), Released::Released);
    pollster::block_on(client.backend.close()).unwrap();
    let conn = rusqlite::Connection::open(disk.path()).unwrap();
    let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn a_read_only_disk_is_rejected() {
    let Some(disk) = Disk::mount("a read-only disk", "size=2m") else { return };
    let client = Client::open(&disk.path());
    client.hold("orders");
    pollster::block_on(client.backend.close()).unwrap();
    disk.make_read_only();
    let error = refused(Client::try_open(&disk.path()), "backend_rejected", "may not write");
    assert_eq!(error.retry(), Retry::Never);
    refused(Client::try_open(&disk.dir.path().join("new.db")), "backend_rejected", "its folder");
}
