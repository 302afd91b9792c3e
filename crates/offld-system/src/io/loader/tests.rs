//! Tests of the loader's search order, with temporary directories.

use super::*;

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

/// A loader of a system with these directories and this list.
fn loader(environment: &[&str], cache: &[u8]) -> Loader {
    let searched = Mutex::default();
    Loader {
        environment: paths(environment),
        cache: cache.to_vec(),
        system: paths(&["/sys"]),
        searched,
    }
}

fn found(loader: &Loader, name: &str, run_paths: &RunPaths) -> Vec<PathBuf> {
    loader.candidates(OsStr::new(name), run_paths).collect()
}

#[test]
fn rpaths_come_before_the_environment_and_runpaths_after_it() {
    let loader =
        loader(&["/env"], b"head\0libx.so\0/listed/libx.so\0/listed/glibc-hwcaps/x86-64-v3/libx.so\0/other/notlibx.so\0");
    let both = Dynamic {
        rpath: vec![b"/rpath"],
        runpath: vec![b"/run:/path"],
        ..Dynamic::default()
    };
    let old = Dynamic {
        rpath: vec![b"/rpath"],
        ..Dynamic::default()
    };
    let program = RunPaths::new(&old, Path::new("/p/program"), None);
    let expected = [
        "/rpath/libx.so",
        "/env/libx.so",
        "/listed/libx.so",
        "/sys/libx.so",
    ];
    assert_eq!(found(&loader, "libx.so", &program), paths(&expected));
    // The program's DT_RPATH counts for its libraries, except for a library with a DT_RUNPATH,
    // whose own DT_RPATH is ignored as well.
    let other = Dynamic {
        rpath: vec![b"/lib-rpath"],
        ..Dynamic::default()
    };
    let library = RunPaths::new(&other, Path::new("/l/a.so"), Some(&program));
    assert_eq!(
        found(&loader, "libx.so", &library)[..3],
        paths(&["/lib-rpath/libx.so", "/rpath/libx.so", "/env/libx.so"])
    );
    let library = RunPaths::new(&both, Path::new("/l/b.so"), Some(&program));
    assert_eq!(
        found(&loader, "libx.so", &library)[..3],
        paths(&["/env/libx.so", "/run/libx.so", "/path/libx.so"])
    );
    let next = RunPaths::new(&Dynamic::default(), Path::new("/l/c.so"), Some(&library));
    assert_eq!(
        found(&loader, "libx.so", &next)[..2],
        paths(&["/rpath/libx.so", "/env/libx.so"])
    );
    assert_eq!(
        found(&loader, "in/libx.so", &program),
        paths(&["in/libx.so"])
    );
}

#[test]
fn origin_is_the_directory_of_the_file() {
    let dynamic = Dynamic {
        runpath: vec![b"$ORIGIN/../x:/y", b"${ORIGIN}"],
        ..Dynamic::default()
    };
    assert_eq!(
        RunPaths::new(&dynamic, Path::new("/l/a.so"), None).folders(),
        paths(&["/l/../x", "/y", "/l"])
    );
    assert_eq!(
        RunPaths::new(&dynamic, Path::new("a.so"), None).folders(),
        paths(&["./../x", "/y", "."])
    );
}

#[test]
fn an_empty_entry_is_the_current_directory() {
    let all = |list: &str| split(OsStr::new(list)).collect::<Vec<_>>();
    assert_eq!(all(""), paths(&[]));
    assert_eq!(all("/a::/b:"), paths(&["/a", ".", "/b", "."]));
}

#[test]
fn every_candidate_includes_variants_for_cpu_levels() {
    let dir = tempfile::tempdir().unwrap();
    let variant = dir.path().join(HWCAPS).join("any-level");
    fs::create_dir_all(&variant).unwrap();
    for folder in [dir.path(), &variant] {
        fs::write(folder.join("libx.so"), "").unwrap();
    }
    let loader = loader(&[dir.path().to_str().unwrap()], b"");
    let every = loader.every_candidate(OsStr::new("libx.so"), &RunPaths::default());
    assert_eq!(
        every.files,
        BTreeSet::from([dir.path().join("libx.so"), variant.join("libx.so")])
    );
    assert!(every.missing.contains(OsStr::new("/sys/libx.so")));
    let none = loader.every_candidate(OsStr::new("liby.so"), &RunPaths::default());
    assert!(none.files.is_empty());
    for path in [dir.path().join("liby.so"), variant.join("liby.so")] {
        assert!(none.missing.contains(path.as_os_str()), "{none:?}");
    }
    let levels = dir.path().join(HWCAPS);
    let missing_folders = loader.missing_folders();
    for folder in [
        levels.join("x86-64-v3"),
        dir.path().join("tls"),
        PathBuf::from("/sys/glibc-hwcaps"),
    ] {
        assert!(missing_folders.contains(&folder), "{missing_folders:?}");
    }
    assert!(!missing_folders.contains(&levels) && !missing_folders.contains(&variant));
}

#[test]
fn configured_directories_include_those_of_included_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    write(
        "ld.so.conf",
        "# folders\n/first # of all\ninclude conf.d/*.conf\n\n/last\n",
    );
    write("conf.d/b.conf", "/b\n");
    write("conf.d/a.conf", "/a\ninclude a.conf\n");
    write("conf.d/other", "/other\n");
    let a = ["/a"; 4];
    let expected = [&["/first"], &a[..], &["/b", "/last"]].concat();
    assert_eq!(
        configured(&dir.path().join("ld.so.conf"), 0),
        paths(&expected)
    );
}

#[test]
fn names_placeholders_that_only_the_loader_can_expand() {
    let word = |environment: &[&str], name: &str, runpath: &'static [u8]| {
        let dynamic = Dynamic {
            runpath: vec![runpath],
            ..Dynamic::default()
        };
        let run_paths = RunPaths::new(&dynamic, Path::new("/l/a.so"), None);
        loader(environment, b"")
            .word(OsStr::new(name), &run_paths)
            .map(|word| word.into_string().unwrap())
    };
    assert_eq!(word(&["/env"], "libx.so", b"$ORIGIN/../x"), None);
    for name in ["/usr/$LIB/libx.so", "${ORIGIN}/libx.so", "lib$PLATFORM.so"] {
        assert_eq!(word(&["/env"], name, b"/run").as_deref(), Some(name));
    }
    assert_eq!(
        word(&["/env", "/usr/$LIB"], "libx.so", b"/run").as_deref(),
        Some("/usr/$LIB")
    );
    assert_eq!(
        word(&["/env"], "libx.so", b"/run:$ORIGIN/${LIB}").as_deref(),
        Some("/l/${LIB}")
    );
    // No directory is searched for a library that is given as a path.
    assert_eq!(word(&["/usr/$LIB"], "/lib/libx.so", b"/$LIB"), None);
}

#[test]
fn only_entries_for_the_names_count() {
    // The list as ldconfig writes it, of entries with a flag, a name and a path each.
    let list = |entries: &[(u8, &str, &str)]| {
        let mut head = [LIST_MAGIC, &(entries.len() as u32).to_le_bytes(), &[0; 24]].concat();
        let (mut table, mut texts) = (Vec::new(), Vec::new());
        let texts_at = LIST_HEADER + 24 * entries.len();
        for (flag, name, path) in entries {
            table.extend([*flag, 0, 0, 0]);
            for text in [name, path] {
                table.extend(((texts_at + texts.len()) as u32).to_le_bytes());
                texts.extend(text.bytes().chain([0]));
            }
            table.extend([0; 12]);
        }
        head.extend(table.into_iter().chain(texts));
        head
    };
    let digest = |cache: &[u8]| {
        loader(&[], cache).listed_digest([OsStr::new("libz.so.1"), OsStr::new("libc.so.6")])
    };
    let z = (1, "libz.so.1", "/lib/libz.so.1");
    let local = (1, "libz.so.1", "/usr/local/lib/libz.so.1");
    let other = (1, "libother.so", "/lib/libother.so");
    let first = digest(&list(&[z, local]));
    assert_eq!(digest(&list(&[other, z, local])), first);
    assert_eq!(digest(&list(&[z, other, local])), first);
    assert_ne!(digest(&list(&[local, z])), first);
    assert_ne!(digest(&list(&[z])), first);
    assert_ne!(digest(&list(&[(2, z.1, z.2), local])), first);
    let zero = (1, "libz.so.01", "/lib/libz.so.01");
    assert_ne!(digest(&list(&[zero, z, local])), first);
    assert_eq!(without_zeros(b"lib0a007.so.0.10"), b"lib0a7.so.0.10");
    // In other formats, and where an entry leads out of the list, everything counts.
    let mut cut = list(&[z, local]);
    cut.pop();
    let mut longer = cut.clone();
    longer.extend(b"more");
    assert_ne!(digest(&cut), digest(&longer));
    assert_ne!(digest(b"ld.so-1.7.0 1"), digest(b"ld.so-1.7.0 2"));
    assert_ne!(
        digest(b"glibc-ld.so.cache1.1\xff\xff\xff\xff1"),
        digest(b"glibc-ld.so.cache1.1\xff\xff\xff\xff2")
    );
    if let Ok(own) = fs::read(CACHE) {
        assert!(!own.starts_with(LIST_MAGIC) || !entries(&own).unwrap().is_empty());
    }
}
