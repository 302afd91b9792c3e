//! Cache of registration objects. The key of an object contains its plan, with the images that are
//! part of it, and the program that generates it. The object is host code that runs before `main`,
//! so a shared cache is used for it only if its entries are signed (`OFFLD_CACHE_KEY`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::RegisterContext;
use crate::link::device::Tool;
use crate::llvm::protocol::{BUILD, Form, Request};
use crate::llvm::{Purpose, program};
use crate::registration::Plan;
use crate::store::{Cache, Event, Key, Scope};
use crate::sys::session::Session;

/// Returns the object of `plan` from the cache, or generates and caches it.
pub(super) fn object(
    plan: &Plan,
    purpose: &Purpose,
    context: &RegisterContext<'_>,
    session: &Session,
) -> Result<Vec<u8>> {
    let request = Request::Make {
        form: Form::Object,
        plan: plan.clone(),
    }
    .encode()?;
    let (Some(cache), Ok(program)) = (context.cache, program::find()) else {
        return context.llvm.make_encoded(&request, purpose);
    };
    let say = |what: &str| {
        if context.request.run.verbose {
            session.shell.note(&format!("{}: {what}", purpose.step));
        }
    };
    let known = generator(&program, cache);
    let found = known
        .as_ref()
        .map(|generator| key(&request, generator, cache))
        .and_then(|key| Some((key, cache.record(key, Scope::Code)?)));
    if let Some((key, object)) = found {
        cache.count(Event::RegistrationHit);
        say(if cache.was_shared_record(key) {
            "found in the remote cache"
        } else {
            "found in the cache"
        });
        return Ok(object);
    }
    cache.count(Event::RegistrationMiss);
    say("not in the cache");
    let object = context.llvm.make_encoded(&request, purpose)?;
    let (later, copy, since) = (Arc::clone(cache), object.clone(), context.llvm.created());
    cache.later(move || {
        let generator = known.or_else(|| Tool::of(&program, &later).ok());
        // If the program was replaced in the meantime, either version may have generated the
        // object.
        if let Some(generator) =
            generator.filter(|generator| generator.verify_unchanged(since).is_ok())
        {
            let key = key(&request, &generator, &later);
            let _ = later.put_record(key, &copy, Scope::Code);
        }
    });
    Ok(object)
}

/// Returns the request for the object of `plan`, if the object is not in the cache.
pub(super) fn missing(plan: &Plan, context: &RegisterContext<'_>) -> Option<Vec<u8>> {
    let request = Request::Make {
        form: Form::Object,
        plan: plan.clone(),
    }
    .encode()
    .ok()?;
    let Some(cache) = context.cache else {
        return Some(request);
    };
    let known = program::find()
        .ok()
        .and_then(|program| generator(&program, cache));
    let found =
        known.and_then(|generator| cache.record(key(&request, &generator, cache), Scope::Code));
    found.is_none().then_some(request)
}

/// Returns the identity of the program that generates objects, if a lookup can succeed with it. A
/// program without a record has generated no object in this machine's cache, and hashing it takes a
/// while. But with a signed cache, another machine may have shared the objects of its copy.
fn generator(program: &Path, cache: &Arc<Cache>) -> Option<Tool> {
    let known = Tool::from_record(program, cache);
    known.or_else(|| {
        if cache.is_signed() {
            Tool::of(program, cache).ok()
        } else {
            None
        }
    })
}

/// Returns the key in `cache` for the object of `request` by `generator`.
fn key(request: &[u8], generator: &Tool, cache: &Cache) -> Key {
    let mut key = cache.shared_key("registration object 2");
    key.add(BUILD).add(generator.digest.bytes()).add(request);
    key.key()
}
