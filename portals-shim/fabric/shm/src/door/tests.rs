use super::*;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

fn file() -> OwnedFd {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

fn inode(fd: &OwnedFd) -> u64 {
    std::fs::File::from(fd.try_clone().unwrap())
        .metadata()
        .unwrap()
        .ino()
}

fn stranger(door: &Door) -> OwnedFd {
    let to = SocketAddrUnix::new_abstract_name(door.address.name.as_bytes()).unwrap();
    reach(&to, PATIENCE, Duration::ZERO).unwrap()
}

/// A door after the first fence.
fn open(ranks: u32, files: usize) -> Door {
    let door = Door::open(ranks, files).unwrap();
    door.listen().unwrap();
    door
}

/// While rank 0 waits for a rank that comes late, strangers cannot fill its queue. Another that leaves the fence before
/// rank 0 does waits for it to listen, and one of another network does not.
#[test]
fn nobody_can_connect_before_all_ranks_are_there() {
    let mut door = Door::open(2, 0).unwrap();
    let told = door.told();
    let to = SocketAddrUnix::new_abstract_name(door.address.name.as_bytes()).unwrap();
    let early = reach(&to, PATIENCE, Duration::ZERO);
    assert!(matches!(early, Err(Errno::CONNREFUSED)), "{early:?}");
    let mut elsewhere = door.address.clone();
    elsewhere.network += 1;
    let away = Guest::knock(&elsewhere.tell(), 1, Vec::new()).unwrap();
    assert_eq!(away.word(), AWAY);
    std::thread::scope(|s| {
        let guest = s.spawn(|| Guest::knock(&told, 1, Vec::new()).unwrap());
        door.expect().unwrap();
        assert_eq!(guest.join().unwrap().word(), CAME);
    });
}

fn words(ranks: u32) -> Vec<String> {
    vec![CAME.to_owned(); ranks as usize]
}

/// All get what all have brought, however many there are, while strangers stand at the door.
#[test]
fn everybody_gets_everybodys_descriptors_and_strangers_delay_nobody() {
    const RANKS: u32 = 40;
    const EACH: usize = 4;
    let mut door = open(RANKS, EACH);
    let told = door.told();
    let mut strangers: Vec<OwnedFd> = (0..300).map(|_| stranger(&door)).collect();
    for (i, stranger) in strangers.iter().enumerate() {
        // Silent, babbling, with a wrong secret, in the place of a rank, with descriptors, gone.
        let mut knock = Knock {
            number: i as u32 % RANKS,
            secret: *door.address.secret.bytes(),
            files: EACH as u32,
        };
        let fds: Vec<OwnedFd> = (0..EACH).map(|_| file()).collect();
        let with: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        knock.secret[i % Secret::LEN] ^= 1;
        let said = match i % 4 {
            0 => Ok(()),
            1 => send(stranger, &[7; 900], &with),
            2 => send(stranger, &knock.encode(), &with),
            _ => send(stranger, b"", &with[..1]),
        };
        said.unwrap();
    }
    strangers.truncate(200);
    let own: Vec<OwnedFd> = (0..EACH).map(|_| file()).collect();
    let common = [file()];
    let mut expected = vec![inode(&common[0])];
    expected.extend(own.iter().map(inode));
    let mut guests = Vec::new();
    for number in 1..RANKS {
        let files: Vec<OwnedFd> = (0..EACH).map(|_| file()).collect();
        expected.extend(files.iter().map(inode));
        let guest = Guest::knock(&told, number, files).unwrap();
        assert_eq!(guest.word(), CAME);
        guests.push(guest);
    }
    let begun = Instant::now();
    door.expect().unwrap();
    assert!(begun.elapsed() < EARLY, "a stranger was waited for");
    let all = std::thread::scope(|s| {
        let served = s.spawn(move || door.serve(&common, own, &words(RANKS)).unwrap());
        for guest in guests {
            let taken = guest.take(expected.len()).unwrap();
            assert_eq!(taken.iter().map(inode).collect::<Vec<_>>(), expected);
        }
        served.join().unwrap()
    });
    assert_eq!(all.len(), RANKS as usize);
    let inodes: Vec<u64> = all.iter().flatten().map(inode).collect();
    assert_eq!(inodes, expected[1..]);
}

#[test]
fn a_rank_that_cannot_share_is_named_to_all() {
    let mut door = open(3, 0);
    let guest = Guest::knock(&door.told(), 1, Vec::new()).unwrap();
    door.expect().unwrap();
    let mut words = words(3);
    words[2] = failed("no memory");
    let said = "rank 2 cannot share memory: no memory";
    assert_eq!(
        door.serve(&[], Vec::new(), &words).unwrap_err().to_string(),
        said
    );
    let refused = guest.take(1).unwrap_err();
    assert!(refused.to_string().contains(said), "{refused}");
}

#[test]
fn a_rank_that_says_it_came_and_did_not_is_an_answer() {
    let door = open(2, 0);
    let missing = door.serve(&[], Vec::new(), &words(2));
    assert!(matches!(missing, Err(DoorError::Missing(1))));
    // The first rank ends while another waits.
    let door = open(2, 0);
    let guest = Guest::knock(&door.told(), 1, Vec::new()).unwrap();
    drop(door);
    assert!(guest.take(1).is_err());
    assert!(Guest::knock("nonsense", 1, Vec::new()).is_err());
}

/// A process in a network namespace of its own, where no abstract name of this one is known.
#[test]
fn who_cannot_reach_the_name_comes_to_the_second_door_which_leaves_nothing() {
    comes_to_the_second(open(2, 1));
}

/// A name in it is longer than that of a socket may be.
#[test]
fn the_second_door_may_be_in_a_directory_with_a_long_name() {
    let deep = tempfile::tempdir().unwrap();
    let mut door = open(2, 1);
    door.address.directory = deep.path().join("x".repeat(200));
    comes_to_the_second(door);
}

#[test]
fn the_second_door_is_where_its_user_may_make_one() {
    let folder = tempfile::tempdir().unwrap();
    assert!(may_have(folder.path()));
    assert!(!may_have(&folder.path().join("missing")));
    let closed = std::fs::Permissions::from_mode(0o500);
    std::fs::set_permissions(folder.path(), closed).unwrap();
    // Root may everywhere.
    let is_root = host::ids::user().unwrap() == 0;
    assert_eq!(may_have(folder.path()), is_root);
    assert!(Door::open(2, 0).unwrap().address.directory.is_absolute());
}

fn comes_to_the_second(door: Door) {
    let directory = door.address.directory.clone();
    let mut elsewhere = door.address.clone();
    elsewhere.name.push('x');
    let brought = file();
    let expected = inode(&brought);
    let guest = Guest::knock(&elsewhere.tell(), 1, vec![brought]).unwrap();
    assert_eq!(guest.word(), AWAY);
    assert!(!directory.exists(), "not before it is needed");
    let words = [String::new(), guest.word().to_owned()];
    let all = std::thread::scope(|s| {
        let common = [file()];
        let served = s.spawn(move || door.serve(&common, vec![file()], &words).unwrap());
        assert_eq!(guest.take(3).unwrap().len(), 3);
        served.join().unwrap()
    });
    assert_eq!(inode(&all[1][0]), expected);
    assert!(!directory.exists());
}

/// Set for the process that has no descriptor left.
const FULL: &str = "PORTOLAN_TEST_FULL_DOOR";

/// A door without a descriptor for whoever comes does not spin and loses nobody: it lets them in when there are some, and
/// else says why it cannot. Strangers that say nothing make room.
#[test]
fn a_door_without_descriptors_waits_and_loses_nobody() {
    let Some(way) = std::env::var_os(FULL) else {
        for way in ["freed", "kept", "strangers"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("door::tests::a_door_without_descriptors_waits_and_loses_nobody")
                .env(FULL, way)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout).into_owned()
                + &String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "{way}: {said}");
        }
        return;
    };
    let mut door = open(3, 2);
    let bring = || (0..2).map(|_| file()).collect::<Vec<_>>();
    let guests = [1, 2].map(|n| Guest::knock(&door.told(), n, bring()).unwrap());
    let strangers: Vec<OwnedFd> = match way.to_str() {
        Some("strangers") => (0..4).map(|_| stranger(&door)).collect(),
        _ => Vec::new(),
    };
    let (own, common) = (bring(), [file()]);
    // One number is free: what is let in by it brings two more.
    let limit = Rlimit {
        current: Some(200),
        maximum: Some(200),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut filling: Vec<OwnedFd> = std::iter::from_fn(|| own[0].try_clone().ok()).collect();
    filling.pop();
    let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    door.expect().unwrap();
    let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let used = Duration::try_from(after).unwrap() - Duration::try_from(before).unwrap();
    assert!(used < EARLY / 4, "{used:?} of the processor");
    assert!(door.full.is_some() && door.missing() == Some(1));
    if way == "kept" {
        let error = door.serve(&common, own, &words(3)).unwrap_err().to_string();
        let wanted = "rank 1 cannot be let in by rank 0: this process has no descriptor left (ulimit -n): Too many";
        assert!(error.contains(wanted), "{error}");
        return;
    }
    // Room for two more ranks and what they bring, and for no stranger.
    filling.truncate(filling.len() - 6);
    let all = door.serve(&common, own, &words(3)).unwrap();
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    drop((filling, strangers));
    for guest in guests {
        assert_eq!(guest.take(7).unwrap().len(), 7);
    }
}

/// Another user connects and goes away as fast as it can, from several processes: the queue never becomes empty.
#[test]
fn strangers_that_come_without_a_pause_delay_nobody() {
    const RANKS: u32 = 4;
    const FLOOD: &str = "\
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(flush=True)
while os.getppid() == int(sys.argv[2]):
    try:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        s.connect('\\0' + sys.argv[1])
    except OSError: pass
    s.close()
";
    if host::ids::user().unwrap() != 0 {
        println!("skipped: only root can be another user too");
        return;
    }
    let mut door = open(RANKS, 1);
    let told = door.told();
    let mut flood = Vec::new();
    for _ in 0..3 {
        let child = std::process::Command::new("python3")
            .args(["-c", FLOOD, &door.address.name])
            .arg(std::process::id().to_string())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            println!("skipped: no python3");
            return;
        };
        let begun = std::io::Read::read(child.stdout.as_mut().unwrap(), &mut [0]);
        assert_eq!(begun.unwrap(), 1);
        flood.push(child);
    }
    let begun = Instant::now();
    // The last comes late, after the first rank has given up looking.
    let early: Vec<Guest> = std::thread::scope(|s| {
        let knocking: Vec<_> = (1..RANKS - 1)
            .map(|n| {
                let told = &told;
                s.spawn(move || Guest::knock(told, n, vec![file()]).unwrap())
            })
            .collect();
        door.expect().unwrap();
        knocking.into_iter().map(|k| k.join().unwrap()).collect()
    });
    let late = Guest::knock(&told, RANKS - 1, vec![file()]).unwrap();
    let guests: Vec<Guest> = early.into_iter().chain([late]).collect();
    let mut words = vec![String::new()];
    words.extend(guests.iter().map(|g| g.word().to_owned()));
    let all = std::thread::scope(|s| {
        let served = s.spawn(move || door.serve(&[file()], vec![file()], &words).unwrap());
        // Each by itself: one that found the queue full comes to the second door, and the others wait for it.
        let taking: Vec<_> = guests
            .into_iter()
            .map(|guest| s.spawn(move || guest.take(RANKS as usize + 1).unwrap()))
            .collect();
        for taken in taking {
            assert_eq!(taken.join().unwrap().len(), RANKS as usize + 1);
        }
        served.join().unwrap()
    });
    let took = begun.elapsed();
    for mut child in flood {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(all.len(), RANKS as usize);
    assert!(took < EARLY + Duration::from_secs(2), "{took:?}");
}

/// The rank that knocks holds everybody's descriptors for a moment, as the first does.
#[test]
fn who_knocks_may_have_as_many_descriptors_as_the_system_gives() {
    use host::limit::limit;
    const NAME: &str = "PORTOLAN_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(NAME).is_none() {
        let child = std::process::Command::new("prlimit")
            .arg("--nofile=64:1024")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("door::tests::who_knocks_may_have_as_many_descriptors_as_the_system_gives")
            .env(NAME, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned()
            + &String::from_utf8_lossy(&child.stderr);
        return assert!(child.status.success(), "{said}");
    }
    let door = open(2, 0);
    let told = door.told();
    drop(door);
    let before = limit(Resource::Nofile).unwrap();
    assert_eq!((before.current, before.maximum), (Some(64), Some(1024)));
    let guest = Guest::knock(&told, 1, Vec::new()).unwrap();
    assert_eq!(limit(Resource::Nofile).unwrap().current, Some(1024));
    drop(guest);
    assert_eq!(limit(Resource::Nofile).unwrap(), before);
}

/// A filter of system calls refuses every connection: that is what is said, and not that descriptors are missing.
#[test]
fn a_refused_connection_is_said_to_be_refused() {
    let test = "door::tests::a_refused_connection_is_said_to_be_refused";
    if !fabric_testing::is_denied("EPERM", "accept4", test) {
        return;
    }
    let mut door = open(2, 0);
    door.look(None);
    assert_eq!(door.full, None, "nobody is there");
    let _guest = Guest::knock(&door.told(), 1, Vec::new()).unwrap();
    door.look(None);
    let why = door.full.unwrap();
    assert_eq!(
        DoorError::Full { rank: 1, why }.to_string(),
        "rank 1 cannot be let in by rank 0: Operation not permitted (os error 1)"
    );
}
