//! Recipes are found for the output of offld's writers, and for that of LLVM's bundler if it has
//! the same zstd. There are none for other streams.

use super::*;
use crate::compressed::{Options, compress, read_at};
use crate::error::Error;
use crate::reference::{Outcome, run, tools};

/// Data similar to device code: repetitions at small and large distances, between random parts.
fn plain(size: usize) -> Vec<u8> {
    let mut state = 7u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let mut data: Vec<u8> = Vec::with_capacity(size + 4096);
    while data.len() < size {
        match random() % 4 {
            0 => data.extend((0..random() % 900).map(|_| random() as u8)),
            1 if !data.is_empty() => {
                let from = random() as usize * 61 % data.len();
                let part = data[from..(from + random() as usize % 3000).min(data.len())].to_vec();
                data.extend(part);
            }
            _ => data.extend((0..random() % 500).map(|step| (step * step % 23) as u8)),
        }
    }
    data.truncate(size);
    data
}

fn found(stream: &[u8], plain: &[u8]) -> io::Result<Option<Recipe>> {
    find(|| stream, || plain, plain.len() as u64)
}

/// Several levels may give the same stream, so any recipe that reproduces it is accepted.
fn expect_found(what: &str, stream: &[u8], plain: &[u8]) -> Outcome {
    let Some(recipe) = found(stream, plain)? else {
        return Err(format!("{what}: no recipe").into());
    };
    assert!(
        recipe.pack(plain, plain.len() as u64, Vec::new())? == stream,
        "{what}: {recipe}"
    );
    Ok(())
}

#[test]
fn every_level_and_style_is_found() -> Outcome {
    for (size, levels) in [
        (0, &[3][..]),
        (1, &[3]),
        (1000, &[1, 3, 9, 15, 19, 22]),
        (200_000, &[3, 19]),
    ] {
        let data = plain(size);
        for (style, _) in STYLES {
            for level in levels
                .iter()
                .copied()
                .filter(|level| style.levels().contains(level))
            {
                let recipe = Recipe { style, level };
                let stream = recipe.pack(&data[..], size as u64, Vec::new())?;
                expect_found(&format!("{recipe} of {size}"), &stream, &data)?;
            }
        }
    }
    Ok(())
}

#[test]
fn several_jobs_are_found() -> Outcome {
    let data = plain(18 << 20);
    for (level, workers) in [(3, 1), (1, 3)] {
        let packed = compress(
            &data,
            Options {
                level,
                workers,
                ..Options::default()
            },
        )?;
        let stream = &packed[32..];
        assert_eq!(
            found(stream, &data)?,
            Some(Recipe {
                style: Style::ZstdJobs,
                level
            }),
            "{workers}"
        );
    }
    Ok(())
}

#[test]
fn streams_of_llvms_bundler_are_found_if_it_has_our_zstd() -> Outcome {
    let Some([bundler]) = tools(["clang-offload-bundler"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    for size in [3000, 3 << 20] {
        std::fs::write(folder.path().join("in"), plain(size))?;
        for level in [3, 9, 19] {
            let level = format!("-compression-level={level}");
            let args = [
                "-type=bc",
                "-compress",
                &level,
                "-targets=hip-amdgcn-amd-amdhsa--gfx90a",
                "-input=in",
                "-output=out",
            ];
            run(&bundler, folder.path(), args)?;
            let packed = std::fs::read(folder.path().join("out"))?;
            let plain = read_at(&packed, 0)?.unpack()?;
            let stream = &packed[32..];
            match found(stream, &plain)? {
                Some(recipe) => assert!(
                    recipe.pack(&plain[..], plain.len() as u64, Vec::new())? == stream,
                    "{recipe}"
                ),
                // Releases of zstd agree on small data, but divide larger data differently.
                None => assert!(size > 3000, "{level}: no recipe with {}", compressor()),
            }
        }
    }
    Ok(())
}

#[test]
fn foreign_streams_have_no_recipe() -> Outcome {
    let data = plain(400_000);
    let mut with_checksum = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
    with_checksum.include_checksum(true)?;
    with_checksum.write_all(&data)?;
    assert_eq!(found(&with_checksum.finish()?, &data)?, None);
    let recipe = Recipe {
        style: Style::Zstd,
        level: 3,
    };
    let stream = recipe.pack(&data[..], data.len() as u64, Vec::new())?;
    for other in [
        &stream[..stream.len() - 1],
        &[&stream[..], b"\0"].concat(),
        &stream[1..],
        b"",
        b"x",
        b"\x28\xb5\x2f\xfd\x60",
    ] {
        assert_eq!(found(other, &data)?, None);
    }
    let mut changed = data.clone();
    changed[399_999] ^= 1;
    assert_eq!(found(&stream, &changed)?, None);
    Ok(())
}

#[test]
fn read_errors_are_reported() -> Outcome {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("broken"))
        }
    }
    let data = plain(1000);
    let stream = Recipe {
        style: Style::Zstd,
        level: 3,
    }
    .pack(&data[..], 1000, Vec::new())?;
    let text =
        |result: io::Result<Option<Recipe>>| result.map_err(|error| Error::from(error).to_string());
    assert_eq!(
        text(find(|| Broken, || &data[..], 1000)),
        Err("broken".to_owned())
    );
    assert_eq!(
        text(find(|| &stream[..], || Broken, 1000)),
        Err("broken".to_owned())
    );
    // A size that differs from that of the data.
    assert!(find(|| &stream[..], || &data[..], 999).is_err());
    Ok(())
}

#[test]
fn recipes_have_names() {
    for text in ["zstd-long 3", "zstd-jobs 22", "zstd 1", "zlib 9"] {
        assert_eq!(
            text.parse::<Recipe>().map(|recipe| recipe.to_string()),
            Ok(text.to_owned())
        );
    }
    for text in [
        "", "zstd", "zstd 0", "zstd 23", "zlib 10", "zstd  3", "xz 6", "zstd 3 ",
    ] {
        assert_eq!(text.parse::<Recipe>(), Err(NoRecipe), "{text}");
    }
}
