//! CUDA payload: one fatbinary of all images, which NVIDIA's `fatbinary` writes
//! (docs/spec/link-driver.md 7).

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::{BundleContext, Payload, PayloadImage};
use crate::args::response::Style;
use crate::io::bytes::Bytes;
use crate::io::rope::Rope;
use crate::link::device::{Linked, Tool};
use crate::model::{Generation, OffloadKind};
use crate::store::{BlobName, Cache, Digest, Key, KeyBuilder, Scope};
use crate::sys::clock::{self, Moment};
use crate::sys::run::{CapturedOutput, Cmd};
use crate::sys::session::Session;
use crate::sys::toolchain;

/// Returns the fatbinary of the images of one generation.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let output = session.scratch.path(&context.out_base, "fatbin")?;
    let width = if context.host_is_64_bit() {
        "-64"
    } else {
        "-32"
    };
    let mut args: Vec<OsString> = vec![width.into(), "--create".into()];
    args.push(output.clone().into_os_string());
    let mut described = Vec::new();
    for image in images {
        let arch = image
            .target
            .arch
            .strip_prefix("sm_")
            .unwrap_or(&image.target.arch);
        let option = format!("--image3=kind=elf,sm={arch},file=");
        let mut with_file = OsString::from(&option);
        with_file.push(&image.path);
        args.push(with_file);
        described.push((image.path.as_path(), option));
    }
    let cmd = Cmd {
        step: "bundling of CUDA images".to_owned(),
        program: session.runner.program(
            toolchain::cuda_tool("fatbinary", context.settings.device.cuda_path.as_deref()),
            "fatbinary",
        )?,
        args,
        quoting: Style::Gnu,
        inputs: images
            .iter()
            .map(|image| format!("the image for {}", image.target))
            .collect(),
        output: Some(output.clone()),
    };
    let cached = context
        .cache()
        .and_then(|cache| FatbinaryCache::new(cache, &cmd.program, width, &described));
    if cached
        .as_ref()
        .map_or(Ok(false), |cached| cached.fetch(&output))?
    {
        if context.settings.run.verbose {
            session
                .shell
                .note(&format!("{}: found in the cache", cmd.step));
        }
    } else if let Some(cached) = cached {
        let (_, captured) = session.runner.run_capturing(&cmd, &|| ())?;
        cached.put(&output, &captured);
    } else {
        session.runner.run(&cmd)?;
    }
    Ok(Payload {
        kind: OffloadKind::Cuda,
        generation,
        images: vec![PayloadImage::whole(
            Rope::of_file(output.clone())?,
            Some(output),
        )],
    })
}

/// The cache lookup of one fatbinary. NVIDIA's `fatbinary` reads only the images, and no environment
/// variable (the test `releases::nvidia` traces it). So the key consists of the images' contents,
/// their options, and the identity of the tool.
struct FatbinaryCache<'c> {
    cache: &'c Arc<Cache>,
    tool: Tool,
    /// The time before the tool runs.
    begun: Moment,
    key: Key,
}

impl<'c> FatbinaryCache<'c> {
    /// Prepares the lookup for `images`, each a file and its option for the tool. The tool is at
    /// `program` and gets the option `width`. Returns none if the tool or an image cannot be read.
    fn new(
        cache: &'c Arc<Cache>,
        program: &Path,
        width: &str,
        images: &[(&Path, String)],
    ) -> Option<Self> {
        let begun = cache.clock().moment();
        let tool = Tool::of(program, cache).ok()?;
        let mut key = KeyBuilder::default();
        key.add("fatbinary 1")
            .add(tool.digest.to_string())
            .add(width);
        for (file, option) in images {
            key.add(option)
                .add(Digest::of(Bytes::open(file).ok()?.as_slice()).to_string());
        }
        Some(FatbinaryCache {
            cache,
            tool,
            begun,
            key: key.key(),
        })
    }

    /// Writes the cached fatbinary to `output`. Returns false on a cache miss.
    fn fetch(&self, output: &Path) -> Result<bool> {
        let name = self
            .cache
            .record(self.key, Scope::Local)
            .and_then(|name| BlobName::parse(std::str::from_utf8(&name).ok()?));
        name.map_or(Ok(false), |name| {
            self.cache.fetch_blob(name, output, Scope::Local)
        })
    }

    /// Stores the new fatbinary `output`, after the tool printed `captured`. If the tool printed a
    /// message, the fatbinary is not stored, because only another run repeats the message. Failures
    /// to store are ignored: the tool runs again.
    fn put(self, output: &Path, captured: &CapturedOutput) {
        let unchanged = || {
            self.tool.verify_unchanged(self.begun.time_of_day)?;
            clock::check_not_set(self.cache.clock(), self.begun)
        };
        if captured.stderr.is_empty()
            && !captured.printed
            && unchanged().is_ok()
            && let Ok(name) = self.cache.put_blob(output, Scope::Local)
        {
            let _ = self
                .cache
                .put_record(self.key, name.to_string().as_bytes(), Scope::Local);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::formats::reference;
    use crate::store::Store;
    use crate::sys::clock::{Clock, TestClock};

    #[test]
    fn output_during_a_clock_change_is_not_cached() {
        let Some([program]) = reference::tools(["true"]) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(
            &dir.path().join("cache"),
            1 << 30,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .unwrap();
        let cache = Arc::new(Cache::new(store));
        clock.pass(Duration::from_secs(3600));
        let (image, made, found) = (
            dir.path().join("image"),
            dir.path().join("made"),
            dir.path().join("found"),
        );
        for file in [&image, &made] {
            std::fs::write(file, "CUDA").unwrap();
        }
        let lookup = || {
            FatbinaryCache::new(&cache, &program, "-64", &[(&image, "sm=80".to_owned())]).unwrap()
        };
        for (set_back, is_cached) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
            let begun = lookup();
            clock.set(clock.now() - set_back);
            begun.put(&made, &CapturedOutput::default());
            cache.finish();
            assert_eq!(lookup().fetch(&found).unwrap(), is_cached, "{set_back:?}");
        }
        assert_eq!(std::fs::read(&found).unwrap(), b"CUDA");
    }
}
